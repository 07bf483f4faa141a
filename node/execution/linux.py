"""Linux calls that Python 3.11 does not have: prctl, capabilities, and a timer on CLOCK_BOOTTIME.

CLOCK_BOOTTIME includes the time for which the machine is suspended. The timeout of poll does not include it: after a
resume, work would continue that another member has taken over in the meantime.
"""

import ctypes
import logging
import os
import resource
import struct
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 47, 2
_CAPABILITIES: Final = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "DAC_READ_SEARCH": 2,
    "FOWNER": 3,
    "FSETID": 4,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "SYS_PTRACE": 19,
    "SETFCAP": 31,
}
"""Numbers of the capabilities that Rota asks for, as in capabilities(7)."""

_CAPABILITY_VERSION_3 = 0x20080522
_TFD_NONBLOCK = os.O_NONBLOCK
_TFD_CLOEXEC = os.O_CLOEXEC
_TFD_TIMER_ABSTIME = 1

_STATUS: Final = Path("/proc/self/status")
_AUTOGROUP: Final = Path("/proc/self/autogroup")
_AUTOGROUP_AGAIN_S: Final = 0.15

_libc = ctypes.CDLL(None, use_errno=True)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


def _checked(code: int, what: str) -> int:
    if code < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return code


def die_with_parent(signal_number: int) -> None:
    """Have the kernel send `signal_number` to this process when the thread that forked it ends. Raises `OSError`.

    Check `getppid` afterwards, because the parent may have ended before this call.
    """
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0), "prctl(PR_SET_PDEATHSIG)")


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, so that no process can leave the process tree."""
    _checked(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl(PR_SET_CHILD_SUBREAPER)")


def close_memory() -> None:
    """Keep other processes of this user from tracing this one, and from reading its memory, environment and open files.

    The kernel then makes root the owner of the files in /proc/PID, and writes no core dump. A forked child begins with
    its memory closed too; after an exec, the memory is open.
    """
    _checked(_libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0), "prctl(PR_SET_DUMPABLE)")


def open_memory() -> None:
    """Undo `close_memory`."""
    _checked(_libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0), "prctl(PR_SET_DUMPABLE)")


def dump_no_core() -> None:
    """Set the soft limit on core dumps to 0, for this process and the processes that it starts."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def lacking_capabilities(names: Iterable[str], status: Path = _STATUS) -> tuple[str, ...]:
    """Return those of the capabilities `names` that this process does not have."""
    effective = next(line for line in status.read_text().splitlines() if line.startswith("CapEff:"))
    has = int(effective.split()[1], 16)
    return tuple(name for name in names if not has & 1 << _CAPABILITIES[name])


def may_signal_everybody(status: Path = _STATUS) -> bool:
    """Whether this process has CAP_KILL, and so may signal its descendants even if they run as another user."""
    return not lacking_capabilities(("KILL",), status)


def gain_no_rights() -> None:
    """Keep programs that this process starts from gaining rights that it does not have (sudo, file capabilities)."""
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl(PR_SET_NO_NEW_PRIVS)")


_CAP_HEADER: Final = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
"""struct __user_cap_header_struct: this thread."""

_CAP_SETS: Final = "=6I"
"""Two structs __user_cap_data_struct, for 32 capabilities each: the effective, permitted and inheritable ones."""


def permitted_capabilities() -> int:
    """Return the permitted capabilities of this thread, as a bit mask by their numbers. Raises `OSError`."""
    sets = ctypes.create_string_buffer(struct.calcsize(_CAP_SETS))
    _checked(_libc.capget(_CAP_HEADER, sets), "capget")
    _, low, _, _, high, _ = struct.unpack(_CAP_SETS, sets.raw)
    return int(low | high << 32)


def keep_capabilities(names: Iterable[str]) -> None:
    """Give up all capabilities of this thread except `names`. Raises `OSError`.

    Programs that it starts keep the same capabilities, as root or not, because a JVM with fewer could not open the
    files that this process passes to it as /proc/PID/fd. After `gain_no_rights`, no program gets more, not even root's.
    """
    permitted = permitted_capabilities()
    kept = {number for number in map(_CAPABILITIES.__getitem__, names) if permitted >> number & 1}
    bits = sum(1 << number for number in kept)
    low, high = bits & 0xFFFFFFFF, bits >> 32
    _checked(_libc.capset(_CAP_HEADER, struct.pack(_CAP_SETS, low, low, low, high, high, high)), "capset")
    for number in kept:
        _checked(_libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, number, 0, 0), "prctl(PR_CAP_AMBIENT)")


def session_priority() -> int | None:
    """Open a descriptor for `lower_session`, while this process is not confined. None: the kernel has no such file."""
    try:
        return os.open(_AUTOGROUP, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return None  # a kernel without autogroups, or a read-only /proc: only the process's own nice value applies


def lower_session(nice: int, descriptor: int | None, tries: int = 50, again_s: float = _AUTOGROUP_AGAIN_S) -> None:
    """Give this process's session the priority `nice` relative to other sessions. Closes `descriptor` in the end.

    If the kernel shares the processor between sessions (sched_autogroup_enabled, as on most desktops), a process's own
    nice value counts only within its session. Without this, work in its own session would get as much time as the node.
    The kernel allows one change in a tenth of a second; a change that is refused as too early is retried in a thread.
    """
    if descriptor is None:
        return
    try:
        os.write(descriptor, str(nice).encode())
    except OSError as error:
        if isinstance(error, BlockingIOError) and tries > 1:
            again = threading.Timer(again_s, lower_session, (nice, descriptor, tries - 1, again_s))
            again.daemon = True
            again.start()
            return
        _log.warning(
            "the attempt's priority cannot be lowered: it competes with the node: /proc/self/autogroup: %s",
            error.strerror,
        )
    os.close(descriptor)


class Timer:
    """One alarm on CLOCK_BOOTTIME: a file descriptor that becomes readable when the alarm is due."""

    def __init__(self) -> None:
        self._fd = _checked(
            _libc.timerfd_create(time.CLOCK_BOOTTIME, _TFD_NONBLOCK | _TFD_CLOEXEC), "timerfd_create(CLOCK_BOOTTIME)"
        )
        self._at_s: float | None = None

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._fd

    def set(self, at_s: float | None) -> None:
        """Set the alarm to `at_s` on CLOCK_BOOTTIME; due at once if that has passed; None: no alarm."""
        if at_s == self._at_s:
            return
        self._at_s = at_s
        # Zero would disarm the timer; one nanosecond after the start of the machine is a time that has passed.
        total_ns = 0 if at_s is None else max(1, int(at_s * 1e9))
        value = _Itimerspec(_Timespec(0, 0), _Timespec(*divmod(total_ns, 1_000_000_000)))
        _checked(_libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(value), None), "timerfd_settime")

    def clear(self) -> None:
        """Acknowledge the alarm, so that it can be set again."""
        self._at_s = None
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)
