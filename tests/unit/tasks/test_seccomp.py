"""The filter of system calls, run as the kernel runs it: each architecture's numbers, and what stays allowed."""

import errno
import os
import socket
import struct
from collections.abc import Mapping

import pytest

from tasks import seccomp

X86_64, I386, AARCH64, ARM = 0xC000003E, 0x40000003, 0xC00000B7, 0x40000028
X32 = 0x40000000
NODE = 4711


def judged(filter_code: bytes, architecture: int, number: int, *arguments: int) -> str:
    """What classic BPF makes of a call: "" if it is allowed, else the name of its error."""
    data = struct.pack("<IIQ6Q", number, architecture, 0, *[*arguments, *[0] * 6][:6])
    at = loaded = 0
    while True:
        code, if_true, if_false, value = struct.unpack_from("=HBBI", filter_code, at * 8)
        at += 1
        match code:
            case 0x20:
                [loaded] = struct.unpack_from("<I", data, value)
            case 0x54:
                loaded &= value
            case 0x15:
                at += if_true if loaded == value else if_false
            case 0x06:
                return "" if value == 0x7FFF0000 else errno.errorcode[value & 0xFFFF]
            case _:
                raise AssertionError(f"no such instruction: {code:#x}")


FOREIGN: Mapping[str, tuple[int, ...]] = {
    "prlimit64": (NODE, 7, 1 << 32),
    "setpriority": (os.PRIO_PROCESS, NODE, 19),
    "ioprio_set": (1, NODE, 3 << 13),
    "sched_setaffinity": (NODE, 8, 1),
    "sched_setattr": (NODE, 1, 0),
    "sched_setparam": (NODE, 1),
    "sched_setscheduler": (NODE, 5, 1),
    "io_uring_setup": (0, 0),
}
OWN: Mapping[str, tuple[int, ...]] = {
    "prlimit64": (0, 7, 1),
    "setpriority": (os.PRIO_PROCESS, 0, 19),
    "ioprio_set": (1, 0, 3 << 13),
    "sched_setaffinity": (0, 8, 1),
    "sched_setattr": (0, 1, 0),
    "sched_setparam": (0, 1),
    "sched_setscheduler": (0, 5, 1),
}


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_call_of_each_architecture_is_judged(machine: str) -> None:
    code = seccomp.program(seccomp.MACHINES[machine], network=True)
    for architecture, numbers in seccomp.MACHINES[machine].items():
        for name, number in numbers.items():
            if name in FOREIGN:
                assert judged(code, architecture, number, *FOREIGN[name]) == "EPERM", name
            if name in OWN:
                assert judged(code, architecture, number, *OWN[name]) == "", name
            if name in seccomp.NO_NETWORK:
                assert judged(code, architecture, number, socket.AF_INET) == "", name
        assert set(seccomp.RULES) <= set(numbers)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_without_a_network_only_sockets_of_unix_are_made(machine: str) -> None:
    code = seccomp.program(seccomp.MACHINES[machine], network=False)
    families = [family.value for family in socket.AddressFamily if family != socket.AF_UNIX]
    for architecture, numbers in seccomp.MACHINES[machine].items():
        for name in ("socket", "socketpair"):
            assert {judged(code, architecture, numbers[name], family) for family in families} == {"EPERM"}
            assert judged(code, architecture, numbers[name], socket.AF_UNIX, socket.SOCK_STREAM) == ""
        assert judged(code, architecture, numbers["setpriority"], *FOREIGN["setpriority"]) == "EPERM"
    if machine == "x86_64":
        assert judged(code, I386, 102, 1, 1 << 20) == "EPERM", "the family is behind a pointer"
        assert judged(code, X86_64, X32 | 41, socket.AF_INET) == "EPERM"
        assert judged(code, X86_64, X32 | 41, socket.AF_UNIX) == ""


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_server_that_calls_nobody_connects_and_sends_to_no_socket(machine: str) -> None:
    code = seccomp.program(seccomp.MACHINES[machine], network=False, calls=False)
    free = seccomp.program(seccomp.MACHINES[machine], network=False)
    for architecture, numbers in seccomp.MACHINES[machine].items():
        assert judged(code, architecture, numbers["connect"], 3, 1 << 20, 16) == "EPERM"
        assert judged(code, architecture, numbers["sendto"], 3, 1 << 20, 9, 0, 1 << 20, 16) == "EPERM"
        assert judged(code, architecture, numbers["sendto"], 3, 1 << 20, 9, 0, 1 << 32, 16) == "EPERM"
        assert judged(code, architecture, numbers["sendto"], 3, 1 << 20, 9, 0, 0, 0) == "", "an answer to its caller"
        assert judged(free, architecture, numbers["connect"], 3, 1 << 20, 16) == ""


def test_no_user_and_no_upper_word_gets_by() -> None:
    code = seccomp.program(seccomp.MACHINES["x86_64"], network=True)
    assert judged(code, X86_64, 141, os.PRIO_USER, 0, 19) == "EPERM"
    assert judged(code, X86_64, 251, 3, 0, 0) == "EPERM", "IOPRIO_WHO_USER"
    assert judged(code, X86_64, 141, 1 << 32 | os.PRIO_PROCESS, 1 << 32, 19) == "", "the kernel takes lower words"
    assert judged(code, X86_64, 302, NODE, 7, 0) == "", "it asks for limits, and sets none"
    assert judged(code, X86_64, X32 | 302, NODE, 7, 1) == "EPERM"


def test_of_other_calls_only_those_of_unknown_architectures_are_refused() -> None:
    for machine, known in (("x86_64", (X86_64, I386)), ("aarch64", (AARCH64, ARM))):
        code = seccomp.program(seccomp.MACHINES[machine], network=False)
        judges = {number for numbers in seccomp.MACHINES[machine].values() for number in numbers.values()}
        for architecture in known:
            assert not [each for each in set(range(600)) - judges if judged(code, architecture, each, 7, 7, 7)]
        assert judged(code, 0x15, 0) == "EPERM"
