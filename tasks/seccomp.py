"""A filter of attempts' system calls (seccomp(2)), for accesses that Landlock does not restrict.

Without the filter, a process may change the limits, priority, processors and scheduling of every other process of its
user, and so end the node or slow it down. And an attempt that needs no network is kept only from TCP by Landlock.

The filter sees registers, but no memory. So a process may change itself only if the call names it by the number 0, and
is refused any call that names a process by another number.
"""

import ctypes
import os
import platform
import struct
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from socket import AF_UNIX
from typing import Final

_SECCOMP_SET_MODE_FILTER: Final = 1
_ALLOW_SPECULATION: Final = 1 << 2
"""Without this flag, kernels before 5.16 slow the process down."""

_LOAD, _EQUAL, _AND, _RETURN = 0x20, 0x15, 0x54, 0x06
"""The codes of classic BPF: load a word, jump if it is equal to a constant, mask it, and end with a verdict."""

_ALLOWED: Final = 0x7FFF0000
_REFUSED: Final = 0x00050000 | 1
"""SECCOMP_RET_ERRNO with EPERM: the error that the kernel itself gives for an operation that is not permitted."""

_NUMBER, _ARCHITECTURE = 0, 4
"""The offsets of the call's number and of the architecture in struct seccomp_data."""

_FIRST, _SECOND, _THIRD, _THIRD_HIGH, _FIFTH, _FIFTH_HIGH = 16, 24, 32, 36, 48, 52
"""The offsets of the lower words of arguments, and of the upper words of the third and the fifth."""

Words = Mapping[int, int]
"""The values that words of struct seccomp_data must have, by the offsets of the words."""

_ITSELF: Final[tuple[Words, ...]] = ({_FIRST: 0},)
_OF_UNIX: Final[tuple[Words, ...]] = ({_FIRST: AF_UNIX},)

RULES: Final[Mapping[str, tuple[Words, ...]]] = {
    "prlimit64": (*_ITSELF, {_THIRD: 0, _THIRD_HIGH: 0}),  # its own limits, or a mere query
    # Only for process 0 and group 0, the caller's own. PRIO_USER and IOPRIO_WHO_USER would include the node.
    "setpriority": tuple({_FIRST: which, _SECOND: 0} for which in (os.PRIO_PROCESS, os.PRIO_PGRP)),
    "ioprio_set": tuple({_FIRST: which, _SECOND: 0} for which in (1, 2)),
    "sched_setaffinity": _ITSELF,
    "sched_setattr": _ITSELF,
    "sched_setparam": _ITSELF,
    "sched_setscheduler": _ITSELF,
    # The filter does not see io_uring's operations, which include sockets. Rota does not use io_uring, and Docker's
    # profile refuses it too.
    "io_uring_setup": (),
}
"""Each of these calls is refused unless its arguments match one of the alternatives. All other calls are allowed."""

NO_NETWORK: Final[Mapping[str, tuple[Words, ...]]] = {
    "socket": _OF_UNIX,
    "socketpair": _OF_UNIX,
    "socketcall": (),  # of 32-bit programs: the family is in memory, which the filter cannot see
}
"""Further rules, in addition to `RULES`, for an attempt that needs no network."""

NO_CALLER: Final[Mapping[str, tuple[Words, ...]]] = {"connect": (), "sendto": ({_FIFTH: 0, _FIFTH_HIGH: 0},)}
"""Further rules for a server that is only called: it connects to no socket of this machine, and sends to none."""

_I386: Final = {
    "setpriority": 97,
    "socketcall": 102,
    "sched_setparam": 154,
    "sched_setscheduler": 156,
    "sched_setaffinity": 241,
    "ioprio_set": 289,
    "prlimit64": 340,
    "sched_setattr": 351,
    "socket": 359,
    "socketpair": 360,
    "connect": 362,
    "sendto": 369,
    "io_uring_setup": 425,
}
_X86_64: Final = {
    "socket": 41,
    "connect": 42,
    "sendto": 44,
    "socketpair": 53,
    "setpriority": 141,
    "sched_setparam": 142,
    "sched_setscheduler": 144,
    "sched_setaffinity": 203,
    "ioprio_set": 251,
    "prlimit64": 302,
    "sched_setattr": 314,
    "io_uring_setup": 425,
}
_ARM: Final = {
    "setpriority": 97,
    "sched_setparam": 154,
    "sched_setscheduler": 156,
    "sched_setaffinity": 241,
    "socket": 281,
    "connect": 283,
    "socketpair": 288,
    "sendto": 290,
    "ioprio_set": 314,
    "prlimit64": 369,
    "sched_setattr": 380,
    "io_uring_setup": 425,
}
_AARCH64: Final = {
    "ioprio_set": 30,
    "sched_setparam": 118,
    "sched_setscheduler": 119,
    "sched_setaffinity": 122,
    "setpriority": 140,
    "socket": 198,
    "socketpair": 199,
    "connect": 203,
    "sendto": 206,
    "prlimit64": 261,
    "sched_setattr": 274,
    "io_uring_setup": 425,
}
"""The numbers of the calls, as the kernel's tables have them."""

Numbers = Mapping[int, Mapping[str, int]]
"""The numbers of calls, by the architecture that struct seccomp_data names."""

MACHINES: Final[Mapping[str, Numbers]] = {
    "x86_64": {0xC000003E: _X86_64, 0x40000003: _I386},
    "aarch64": {0xC00000B7: _AARCH64, 0x40000028: _ARM},
}
"""The numbers of calls, by machine. A machine also runs programs of its older, 32-bit architecture."""

_SECCOMP: Final = {"x86_64": 317, "aarch64": 277}
_X32: Final = 0x40000000
"""The bit in a call's number that marks a program with short pointers (x32) on x86_64. Apart from this bit, the numbers
of the calls in `RULES` are the same."""

_FILTERS: Final = Path("/proc/sys/kernel/seccomp/actions_avail")

_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def program(machine: Numbers, *, network: bool, calls: bool = True) -> bytes:
    """Return the filter for the programs of a machine, as classic BPF. Pure.

    If a program's architecture is not in `machine`, each of its system calls is refused. `calls` False: so are those of
    `NO_CALLER`.
    """
    rules = {**RULES, **({} if network else NO_NETWORK), **({} if calls else NO_CALLER)}
    blocks = b""
    for architecture, numbers in machine.items():
        judged = b"".join(_call(numbers[name], ways) for name, ways in rules.items() if name in numbers)
        block = _load(_NUMBER) + _instruction(_AND, 0, 0, ~_X32 & 0xFFFFFFFF) + judged + _end(_ALLOWED)
        blocks += _load(_ARCHITECTURE) + _unless(architecture, block) + block
    return blocks + _end(_REFUSED)


def _call(number: int, ways: tuple[Words, ...]) -> bytes:
    """Return instructions that allow or refuse the call with that number, and do nothing for other calls.

    They expect that the number of the call is loaded, and for other calls leave it loaded.
    """
    judged = b""
    for words in ways:
        way = _end(_ALLOWED)
        for offset, value in words.items():  # all words must match, in any order
            way = _load(offset) + _unless(value, way) + way
        judged += way
    judged += _end(_REFUSED)
    return _unless(number, judged) + judged


def _unless(value: int, block: bytes) -> bytes:
    """Return instructions that skip `block` unless the loaded word is `value`."""
    return _instruction(_EQUAL, 0, len(block) // 8, value)


def _load(offset: int) -> bytes:
    return _instruction(_LOAD, 0, 0, offset)


def _end(verdict: int) -> bytes:
    return _instruction(_RETURN, 0, 0, verdict)


def _instruction(code: int, if_true: int, if_false: int, value: int) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


@cache
def made_program(*, network: bool, calls: bool = True) -> bytes:
    """Return the filter for this machine's programs. It is made once, because it is the same for every attempt."""
    return program(MACHINES[platform.machine()], network=network, calls=calls)


def is_supported() -> bool:
    """Whether this kernel has seccomp filters, and this module knows the numbers of its system calls."""
    return platform.machine() in MACHINES and _FILTERS.exists()


def enter_filter(*, network: bool, calls: bool = True) -> None:
    """Have the kernel refuse the calls of `RULES` to this thread and to the threads and processes that it starts.

    If `network` is False, sockets of families other than AF_UNIX are refused too; if `calls` is False, connections that
    it begins. PR_SET_NO_NEW_PRIVS must be set before. Does nothing if seccomp is not supported (`is_supported`).
    Raises `OSError`.
    """
    if not is_supported():
        return
    code = made_program(network=network, calls=calls)
    made = _Program(len(code) // 8, code)
    number = _SECCOMP[platform.machine()]
    if _libc.syscall(number, _SECCOMP_SET_MODE_FILTER, _ALLOW_SPECULATION, ctypes.byref(made)) < 0:
        error = ctypes.get_errno()
        raise OSError(
            error,
            f"seccomp: {os.strerror(error)}: the attempt cannot be confined. Let this node use the system call "
            "seccomp, which the profile of a container may refuse",
        )
