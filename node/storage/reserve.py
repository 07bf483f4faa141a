"""Disk space reserved for Raft's journal: a file of that size, deleted when the space is needed.

Without it, a disk that an attempt has filled leaves no space for the entry that ends the attempt. `WaitForRoom` is what
Raft's thread does when its disk is full: it releases the reserve, and otherwise waits for free space.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

NAME: Final = "reserve"
START_BYTES: Final = 4 * 1024 * 1024
"""What a node needs to start: its own records, and a WAL for its databases."""

_log = logging.getLogger("rota.disk")

RETRY_S: Final = 0.05
LOG_AGAIN_S: Final = 60.0


class Reserve:
    """The reserve file in Raft's folder. Any thread may use it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._changing = threading.Lock()

    def hold(self, size_bytes: int) -> None:
        """Reserve `size_bytes`, if that much is free. Raises `OSError`; then nothing is reserved."""
        with self._changing:
            try:
                if self._path.stat().st_blocks * 512 >= size_bytes:
                    return
            except FileNotFoundError:
                pass
            opened = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(opened, 0, max(1, size_bytes))
            except OSError:
                self._path.unlink(missing_ok=True)
                raise
            finally:
                os.close(opened)

    def release(self) -> bool:
        """Free the reserve. Returns whether there was one."""
        with self._changing:
            try:
                self._path.unlink()
            except FileNotFoundError:
                return False
            return True


def room_to_start(folder: Path) -> None:
    """Free the reserve in a node's data folder if less than `START_BYTES` are free. Raises `OSError`."""
    found = os.statvfs(folder)
    if found.f_bavail * found.f_frsize < START_BYTES:
        Reserve(folder / "raft").release()


class WaitForRoom:
    """Called in Raft's thread after each failed write. `release` frees the reserve; `tell` makes the disk watch measure
    at once. Both may be called from any thread.

    The node acknowledges nothing meanwhile. To other members it is one whose disk does not answer
    (`node.telemetry.raft_watchdog`); it resumes by itself as soon as there is space.
    """

    def __init__(
        self,
        release: Callable[[], bool],
        tell: Callable[[], None],
        sleep: Callable[[float], None] = time.sleep,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._release = release
        self._tell = tell
        self._sleep = sleep
        self._now_s = now_s
        self._logged_s: float | None = None

    def __call__(self, error: Exception) -> bool:
        """Whether to retry the write: always; after a pause if there was no reserve to release."""
        now_s = self._now_s()
        released = self._release()
        if released:
            _log.warning("the disk is full (%s): the space reserved for Raft's journal is released", error)
        elif self._logged_s is None or now_s - self._logged_s >= LOG_AGAIN_S:
            self._logged_s = now_s
            _log.error(
                "the disk is full (%s): this node commits nothing until there is free space, and then resumes by "
                "itself. Delete files on the file system of ROTA_DATA",
                error,
            )
        self._tell()
        if not released:
            self._sleep(RETRY_S)
        return True
