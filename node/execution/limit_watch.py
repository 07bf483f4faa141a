"""Measures an attempt's usage through /proc, for the limits that the kernel does not enforce.

It does so in a thread of its own, because the supervisor's loop, which enforces the lease's deadline, must not wait for
these reads.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable
from typing import Final

from node.execution import machine, process_tree
from node.execution.cgroup import AttemptGroup
from node.execution.limits import Pace, Usage, Watched, next_look, over

_RESIDENT: Final = (b"RssAnon:", b"RssShmem:", b"VmSwap:")
_PROPORTIONAL: Final = (b"Pss_Anon:", b"Pss_Shmem:", b"SwapPss:")
_THREADS: Final = b"Threads:"


class LimitWatch:
    """Measures the processes below `root` until they have exceeded a limit, or `close` is called.

    `group` is the attempt's cgroup, if it has one. A resource that a controller limits there is not measured.
    """

    def __init__(self, watched: Watched, root: int, group: AttemptGroup | None) -> None:
        held = () if group is None else group.controllers
        self._watched = watched
        self._root = root
        self._group = group if group is not None and "pids" in held and watched.may.processes is not None else None
        self._memory = watched.may.memory is not None and "memory" not in held
        self._processes = watched.may.processes is not None and "pids" not in held
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self.exceeded: str | None = None
        """A sentence on the limit that the attempt has exceeded; None: it has exceeded no limit so far."""

    def start(self, on_exceeded: Callable[[], None]) -> None:
        """Start the thread if any limit is watched. The thread calls `on_exceeded` once, when a limit is exceeded."""
        if self._memory or self._processes or self._group is not None:
            self._thread = threading.Thread(target=self._watch, args=(on_exceeded,), daemon=True, name="limits")
            self._thread.start()

    def close(self) -> None:
        """Stop. Does not wait for the thread, because a read may take long while the machine is out of memory."""
        self._over.set()

    def _watch(self, on_exceeded: Callable[[], None]) -> None:
        bound_bytes = machine.memory_bytes()
        pace = Pace()
        while not self._over.wait(pace.pause_s):
            begun_s = time.thread_time()
            used = self._look()
            if (exceeded := over(used, self._watched)) is not None:
                self.exceeded = exceeded
                on_exceeded()
                return
            free_bytes = min(bound_bytes, machine.free_bytes())
            pace = next_look(pace, used, self._watched.may, free_bytes, time.thread_time() - begun_s)

    def _look(self) -> Usage:
        memory = count = 0
        if self._memory or self._processes:
            pids = process_tree.below(self._root)
            memory, count = _resident(pids)
            most = self._watched.may.memory
            if self._memory and most is not None and memory > most:
                # `_resident` counts memory that forked processes share once for each of them.
                memory = _proportional(pids)
        return Usage(memory if self._memory else 0, count, 0 if self._group is None else self._group.forks_refused())


def _resident(pids: list[int]) -> tuple[int, int]:
    """Sum the processes' memory, and their threads. Counts shared memory once for each process, mapped files never."""
    memory = threads = 0
    for pid in pids:
        for line in _lines(f"/proc/{pid}/status"):
            if line.startswith(_RESIDENT):
                memory += int(line.split()[1])
            elif line.startswith(_THREADS):
                threads += int(line.split()[1])
    return memory * 1024, threads


def _proportional(pids: list[int]) -> int:
    """Sum the memory as `_resident` does, but divide shared memory by the number of processes that share it.

    If a process's share cannot be read, because the process belongs to another user, all of its memory counts.
    """
    total = 0
    for pid in pids:
        shares = [line for line in _lines(f"/proc/{pid}/smaps_rollup") if line.startswith(_PROPORTIONAL)]
        total += sum(int(line.split()[1]) * 1024 for line in shares) if shares else _resident([pid])[0]
    return total


def _lines(path: str) -> list[bytes]:
    """Read the lines of a file in /proc. Returns no lines if its process is gone, or the file may not be read."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        # pathlib would be too slow: this runs for every process of an attempt, up to twenty times a second.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, 16_384).split(b"\n")
        finally:
            os.close(descriptor)
    return []
