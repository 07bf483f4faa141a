"""What a thread of another process asks of the kernel, in order: ptrace, with the kernel's own description of each call
(PTRACE_GET_SYSCALL_INFO, Linux 5.3 and later).

strace does this, and is not everywhere; python-ptrace stops every thread of a process, where one is of interest.
"""

import ctypes
import os
import platform
import signal
import struct
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SEIZE: Final = 0x4206
_INTERRUPT: Final = 0x4207
_SYSCALL: Final = 24
_GET_SYSCALL_INFO: Final = 0x420E
_TRACESYSGOOD: Final = 1
_WALL: Final = 0x40000000
_ENTRY, _EXIT = 1, 2
_INFO: Final = struct.Struct("<B3xIQQ")
_ENTERED: Final = struct.Struct("<Q6Q")
_LEFT: Final = struct.Struct("<q")

_NUMBERS: Final = {
    "x86_64": {1: "write", 18: "pwrite64", 44: "sendto", 45: "recvfrom", 74: "fsync", 75: "fdatasync"},
    "aarch64": {64: "write", 68: "pwrite64", 82: "fsync", 83: "fdatasync", 206: "sendto", 207: "recvfrom"},
}


class CannotTrace(Exception):
    """The kernel does not let this process look at another, or is of an architecture that is not known here."""


@dataclass(frozen=True, slots=True)
class Call:
    """A system call that has returned: its name, the file of its descriptor, its result, and what `write` wrote."""

    name: str
    file: str
    result: int
    data: bytes = b""


class Tracer:
    """Follows thread `thread` of process `pid`, a child of this one, until it ends. `calls` grows meanwhile.

    Raises CannotTrace.
    """

    def __init__(self, pid: int, thread: int) -> None:
        if platform.machine() not in _NUMBERS:
            raise CannotTrace(f"the numbers of the system calls of {platform.machine()} are not known here")
        self.calls: list[Call] = []
        self._pid, self._traced = pid, thread
        self._names = _NUMBERS[platform.machine()]
        self._begun = threading.Event()
        self._refused = ""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.ptrace.restype = ctypes.c_long
        self._libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        self._thread = threading.Thread(target=self._follow, name=f"tracer of {thread}", daemon=True)
        self._thread.start()
        self._begun.wait()
        if self._refused:
            raise CannotTrace(self._refused)

    def join(self) -> None:
        """Wait until the thread that is followed has ended."""
        self._thread.join(20)

    def _ptrace(self, request: int, address: int = 0, data: int = 0) -> int:
        done: int = self._libc.ptrace(request, self._traced, address, data)
        if done < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        return done

    def _follow(self) -> None:
        """All of it in one thread: the kernel knows the tracer by that."""
        try:
            self._ptrace(_SEIZE, data=_TRACESYSGOOD)
            self._ptrace(_INTERRUPT)
        except OSError as error:
            self._refused = f"the kernel refuses ptrace: {error}"
            return
        finally:
            self._begun.set()
        entered: tuple[int, ...] = ()
        try:
            while True:
                _, status = os.waitpid(self._traced, _WALL)
                if not os.WIFSTOPPED(status):
                    return
                stop = os.WSTOPSIG(status)
                if stop == signal.SIGTRAP | 0x80:
                    entered = self._at_call(entered)
                event = status >> 16
                passed_on = 0 if event or stop & 0x7F == signal.SIGTRAP else stop
                self._ptrace(_SYSCALL, data=passed_on)
        except (ChildProcessError, ProcessLookupError):
            return  # killed

    def _at_call(self, entered: tuple[int, ...]) -> tuple[int, ...]:
        buffer = ctypes.create_string_buffer(128)
        self._ptrace(_GET_SYSCALL_INFO, len(buffer), ctypes.addressof(buffer))
        operation = _INFO.unpack_from(buffer.raw)[0]
        if operation == _ENTRY:
            return _ENTERED.unpack_from(buffer.raw, _INFO.size)
        if operation == _EXIT and entered and (name := self._names.get(entered[0])):
            [result] = _LEFT.unpack_from(buffer.raw, _INFO.size)
            data = self._read(entered[2], result) if name == "write" and result > 0 else b""
            self.calls.append(Call(name, self._file(entered[1]), result, data))
        return ()

    def _file(self, descriptor: int) -> str:
        try:
            return str(Path(f"/proc/{self._pid}/fd/{descriptor}").readlink())
        except OSError:
            return ""

    def _read(self, address: int, size: int) -> bytes:
        with open(f"/proc/{self._pid}/mem", "rb", buffering=0) as memory:  # noqa: PTH123 - a Path cannot be unbuffered
            memory.seek(address)
            return memory.read(min(size, 4096)) or b""
