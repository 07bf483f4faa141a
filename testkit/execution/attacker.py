"""A kind, and a command, whose author wants more than it was given: each way is tried, and what came of it is told."""

import ctypes
import json
import mmap
import os
import platform
import resource
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tasks.kind import Context
from tasks.needs import Needs

_libc = ctypes.CDLL(None, use_errno=True)
PTRACE_ATTACH = 16
CLONE_NEWUSER = 0x10000000
CLONE_NEWNS = 0x00020000


class Target(BaseModel):
    """Where what an attempt may not have is, and which processes are not its own."""

    secrets: str
    data: str
    given: str
    outside: str
    node: int
    neighbour: int
    port: int
    abstract: str
    scratch: str = ""


def _checked(code: int) -> int:
    if code < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return code


def _run(*argv: str) -> str:
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=20).stdout


def _connected(family: int, address: Any) -> str:
    with socket.socket(family) as end:
        end.settimeout(5)
        end.connect(address)
        return end.recv(16).decode()


def _bound() -> str:
    with socket.socket() as end:
        end.bind(("127.0.0.1", 0))
        end.listen()
        return str(end.getsockname()[1])


def _opened(family: int, kind: int, protocol: int = 0) -> str:
    with socket.socket(family, kind, protocol) as end:
        return str(end)


def _heard(listens: socket.socket) -> str:
    """Listening without an address: the kernel takes one."""
    with listens:
        listens.listen()
        return str(listens.getsockname())


def _opened_fast(port: int) -> str:
    """Data with the first packet, by no call of connect."""
    with socket.socket() as end:
        end.sendto(b"x", socket.MSG_FASTOPEN, ("127.0.0.1", port))
        return end.recv(16).decode()


def _inherited() -> str:
    """A socket of another family that was open before."""
    for each in Path("/proc/self/fd").iterdir():
        if each.exists() and each.is_socket():
            with socket.socket(fileno=os.dup(int(each.name))) as end:
                if end.family != socket.AF_UNIX:
                    return str(end)
    raise OSError("there is none")


def _called(x86_64: int, aarch64: int, *arguments: Any) -> str:
    """A system call by its number on this machine."""
    number = {"x86_64": x86_64, "aarch64": aarch64}[platform.machine()]
    return str(_checked(_libc.syscall(number, *arguments)) or 1)


_INT_80 = bytes.fromhex("53 89 f8 89 f3 89 d1 31 d2 cd 80 5b c3")
"""push rbx; mov eax, edi; mov ebx, esi; mov ecx, edx; xor edx, edx; int 0x80; pop rbx; ret"""


def _called_as_i386(number: int, first: int, second: int) -> str:
    """A system call of 32-bit programs, out of a 64-bit one."""
    if platform.machine() != "x86_64":
        raise OSError("of another architecture")
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(_INT_80)
    at = ctypes.addressof(ctypes.c_char.from_buffer(code))
    done = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_int] * 3)(at)(number, first, second)
    if done < 0:
        raise OSError(-done, os.strerror(-done))
    if done > 2:
        os.close(done)
    return str(done or 1)


def _in_a_copy(scratch: Path) -> str:
    copy = scratch / "sh"
    shutil.copy("/bin/sh", copy)
    copy.chmod(0o755)
    return _run(str(copy), "-c", "echo ran")


def _script(scratch: Path) -> str:
    script = scratch / "script"
    script.write_text("#!/bin/sh\necho ran\n")
    script.chmod(0o755)
    return _run(str(script))


def _linked(target: Path, link: Path, how: Callable[[Path, Path], object]) -> str:
    link.unlink(missing_ok=True)
    how(target, link)
    return link.read_text()


def _limited(pid: int) -> int:
    """A filter that looks at the lower word of a pointer only would take this one for none."""
    at = 0x1_0000_0000
    _libc.mmap.restype, _libc.mmap.argtypes = (
        ctypes.c_void_p,
        [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long],
    )
    fixed, rights = 0x10, mmap.PROT_READ | mmap.PROT_WRITE
    assert _libc.mmap(at, 4096, rights, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | fixed, -1, 0) == at
    _libc.prlimit.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    return _checked(_libc.prlimit(pid, resource.RLIMIT_CORE, at, None)) or 1


def _mounted(scratch: Path) -> str:
    pid = os.fork()
    if pid == 0:  # a namespace of its own, in which it has every capability
        failed = _libc.unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0 or _libc.mount(b"none", b"/mnt", b"tmpfs", 0, None) < 0
        os._exit(ctypes.get_errno() if failed else 0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        raise OSError(code, os.strerror(code))
    return "mounted"


def ways(to: Target) -> Mapping[str, Callable[[], Any]]:
    """By name; each raises where it is refused."""
    scratch = Path(to.scratch)
    secret, journal, given, outside = (Path(each) for each in (to.secrets, to.data, to.given, to.outside))
    secret, journal = secret / "pg_password", journal / "raft" / "journal"
    node, neighbour = Path(f"/proc/{to.node}"), Path(f"/proc/{to.neighbour}")
    return {
        "a secret": secret.read_text,
        "the names of secrets": lambda: list(Path(to.secrets).iterdir()),
        "the node's journal": journal.read_text,
        "the node's folders": lambda: list(Path(to.data).iterdir()),
        "another attempt's scratch": Path(to.data, "scratch", "other~1.9", "rows").read_text,
        "to change another attempt's scratch": lambda: Path(to.data, "scratch", "other~1.9", "rows").write_text("x"),
        "a secret by a symbolic link": lambda: _linked(secret, scratch / "symbolic", lambda a, b: b.symlink_to(a)),
        "a secret by a hard link": lambda: _linked(secret, scratch / "hard", lambda a, b: b.hardlink_to(a)),
        "a secret by a rename": lambda: _linked(secret, scratch / "moved", lambda a, b: a.rename(b)),
        "a secret through /proc/self/root": Path(f"/proc/self/root{secret}").read_text,
        "a secret through /proc/PID/root": Path(f"{node}/root{secret}").read_text,
        "a secret through /proc/PID/cwd": lambda: (node / "cwd" / "pg_password").read_text(),
        "an open file of the node": lambda: [each.read_bytes() for each in (node / "fd").iterdir()],
        "the node's memory": lambda: (node / "mem").open("rb"),
        "the node's environment": (node / "environ").read_bytes,
        "a neighbour's environment": (neighbour / "environ").read_bytes,
        "the kernel's settings": lambda: Path("/proc/sys/kernel/core_pattern").open("w"),
        "to write to the installation": lambda: Path(__file__).open("a"),
        "to signal the node": lambda: os.kill(to.node, 0),
        "to signal a neighbour": lambda: os.kill(to.neighbour, 0),
        "to limit the node": lambda: resource.prlimit(to.node, resource.RLIMIT_CORE, (0, 0)),
        "to limit the node by a pointer that ends in zeros": lambda: _limited(to.node),
        "to slow the node down": lambda: os.setpriority(os.PRIO_PROCESS, to.node, 19),
        "to slow all of this user down": lambda: os.setpriority(os.PRIO_USER, 0, os.nice(0)),
        "to slow the node down as a 32-bit program": lambda: _called_as_i386(97, os.PRIO_PROCESS, to.node),
        "to choose the node's processors": lambda: os.sched_setaffinity(to.node, os.sched_getaffinity(to.node)),
        "to choose the node's scheduler": lambda: os.sched_setscheduler(to.node, 0, os.sched_param(0)),
        "to schedule the node": lambda: os.sched_setparam(to.node, os.sched_param(0)),
        "to schedule the node by attributes": lambda: _called(
            314, 274, to.node, struct.pack("IIQiI3Q", *[48, *[0] * 7]), 0
        ),
        "to have the node wait for its disk": lambda: _called(251, 30, 1, to.node, 3 << 13),
        "a ring of calls": lambda: _called(425, 425, 1, bytes(120)),
        "to trace the node": lambda: _checked(_libc.ptrace(PTRACE_ATTACH, to.node, None, None)),
        "to mount in a namespace": lambda: _mounted(scratch),
        "an abstract socket": lambda: _connected(socket.AF_UNIX, f"\0{to.abstract}"),
        # What commands may, and other kinds may not.
        "a file outside": outside.read_text,
        "to write outside": lambda: outside.with_name("planted").write_text("x"),
        "what others may not read": Path("/etc/shadow").read_text,
        "to write to what it reads": lambda: given.write_text("x"),
        "to truncate what it reads": lambda: os.truncate(given, 1),
        "to move what it reads": lambda: given.rename(scratch / "taken"),
        "a shell": lambda: _run("/bin/sh", "-c", "echo ran"),
        "a program": lambda: _run("/usr/bin/env"),
        "Python": lambda: _run(sys.executable, "-S", "-c", "print('ran')"),
        "a script of its own": lambda: _script(scratch),
        "a program's copy": lambda: _in_a_copy(scratch),
        "to connect": lambda: _connected(socket.AF_INET, ("127.0.0.1", to.port)),
        "to listen": _bound,
        "to listen without an address": lambda: _heard(socket.socket()),
        "to connect by the first data": lambda: _opened_fast(to.port),
        "a datagram": lambda: _opened(socket.AF_INET, socket.SOCK_DGRAM),
        "a datagram of IPv6": lambda: _opened(socket.AF_INET6, socket.SOCK_DGRAM),
        "a datagram of a 32-bit program": lambda: _called_as_i386(359, socket.AF_INET, socket.SOCK_DGRAM),
        "TCP of several paths": lambda: _heard(socket.socket(proto=262)),
        "the kernel's routes": lambda: _opened(socket.AF_NETLINK, socket.SOCK_RAW),
        "a packet of its own making": lambda: _opened(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP),
        "a socket that was open": _inherited,
    }


def tried(to: Target) -> dict[str, str]:
    """What came of each way: "" where it was refused."""
    found = {}
    for name, way in ways(to).items():
        try:
            found[name] = f"got {str(way())[:60]!r}"
        except (OSError, subprocess.SubprocessError):
            found[name] = ""
    status = Path("/proc/self/status").read_text()
    found["capabilities"] = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff"))
    (Path(to.scratch) / "own").write_text("x")
    os.setpriority(os.PRIO_PROCESS, 0, os.nice(0))
    os.setpriority(os.PRIO_PGRP, 0, os.nice(0))
    os.sched_setaffinity(0, os.sched_getaffinity(0))
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    for end in socket.socketpair():
        end.close()
    assert Path("/proc/self/environ").read_text()
    return found | {"own": "yes"}


class Attacker:
    """Tries everything, within what it was given."""

    Params = Target

    @staticmethod
    def needs(params: Target, task: str) -> Needs:
        raise AssertionError("the test says what it needs")

    def run(self, ctx: Context[Target]) -> dict[str, Any]:
        given = Path(ctx.params.given).read_text()
        return tried(ctx.params.model_copy(update={"scratch": str(ctx.scratch)})) | {"given": given}


if __name__ == "__main__":
    print(json.dumps(tried(Target(**json.loads(sys.argv[1]), scratch=str(Path.cwd())))))
