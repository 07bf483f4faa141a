"""A filter of system calls for attempts: they may not change the limits of another process (seccomp(2)).

A process may set the limits of every other one of its user, the node among them, and end it so: by no processor time,
or by no descriptors. Landlock does not look at that call.
"""

import ctypes
import os
import platform
import struct
from pathlib import Path
from typing import Final, NamedTuple

_SECCOMP_SET_MODE_FILTER: Final = 1
_ALLOW_SPECULATION: Final = 1 << 2
"""Without it, kernels before 5.16 slow the process down."""

_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
"""The codes of classic BPF: load a word, jump by whether it is equal to a constant, and end."""

_ALLOWED: Final = 0x7FFF0000
_REFUSED: Final = 0x00050000 | 1
"""SECCOMP_RET_ERRNO, with EPERM."""

_NUMBER, _ARCHITECTURE, _FIRST, _THIRD = 0, 4, 16, 32
"""Where struct seccomp_data has the call's number, the architecture, and the lower words of the first argument, a pid,
and of the third, a pointer to the new limit."""


_FILTERS: Final = Path("/proc/sys/kernel/seccomp/actions_avail")


class _Calls(NamedTuple):
    """The numbers of seccomp and prlimit64, and those of prlimit64 by architecture: a program may use an older one."""

    seccomp: int
    prlimit: tuple[tuple[int, int], ...]


_X32: Final = 0x40000000
_MACHINES: Final = {
    "x86_64": _Calls(317, ((0xC000003E, 302), (0xC000003E, _X32 | 302), (0x40000003, 340))),
    "aarch64": _Calls(277, ((0xC00000B7, 261), (0x40000028, 369))),
}

_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def program(calls: tuple[tuple[int, int], ...]) -> bytes:
    """The filter, as classic BPF: prlimit64 of another process with a new limit is refused, and all else is allowed.

    `calls` are pairs of an architecture and the number of prlimit64 there. Pure.
    """
    checks = b""
    for architecture, number in calls:
        checks += b"".join(
            (
                _instruction(_LOAD, 0, 0, _ARCHITECTURE),
                _instruction(_EQUAL, 0, 9, architecture),
                _instruction(_LOAD, 0, 0, _NUMBER),
                _instruction(_EQUAL, 0, 7, number),
                _instruction(_LOAD, 0, 0, _FIRST),
                _instruction(_EQUAL, 5, 0, 0),  # its own limits
                _instruction(_LOAD, 0, 0, _THIRD),
                _instruction(_EQUAL, 0, 2, 0),
                _instruction(_LOAD, 0, 0, _THIRD + 4),
                _instruction(_EQUAL, 1, 0, 0),  # it only asks
                _instruction(_RETURN, 0, 0, _REFUSED),
            )
        )
    return checks + _instruction(_RETURN, 0, 0, _ALLOWED)


def _instruction(code: int, if_true: int, if_false: int, value: int) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def known() -> bool:
    """Whether this kernel has such filters, and the numbers of its system calls are known here."""
    return platform.machine() in _MACHINES and _FILTERS.exists()


def keep_from_others_limits() -> None:
    """Refuse this thread, and all that it starts, to change other processes' limits. Raises `OSError`.

    It must not gain rights by exec (PR_SET_NO_NEW_PRIVS). Does nothing where that is not `known`.
    """
    if not known():
        return
    calls = _MACHINES[platform.machine()]
    code = program(calls.prlimit)
    made = _Program(len(code) // 8, code)
    if _libc.syscall(calls.seccomp, _SECCOMP_SET_MODE_FILTER, _ALLOW_SPECULATION, ctypes.byref(made)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")
