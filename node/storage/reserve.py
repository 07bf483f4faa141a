"""Disk space reserved for Raft's journal: a file of the reserved size, deleted when the space is needed.

Without the reserve, a disk that an attempt has filled would have no space for the entry that ends the attempt. Raft's
thread calls `WaitForRoom` when its disk is full: this releases the reserve, or waits for free space.
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
"""The space that a node needs to start: for its own records, and the write-ahead logs of its databases."""

_log = logging.getLogger("rota.disk")

RETRY_S: Final = 0.05
LOG_AGAIN_S: Final = 60.0


class Reserve:
    """The reserve file in Raft's folder. Any thread may use it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._changing = threading.Lock()

    def hold(self, size_bytes: int) -> None:
        """Reserve `size_bytes`. Raises `OSError`, for example if the space is not free; then nothing is reserved."""
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
        """Delete the reserve file. Returns whether it existed."""
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

    Meanwhile the node acknowledges no entry, like a node whose disk does not answer (`node.telemetry.raft_watchdog`).
    It resumes by itself as soon as there is space.
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
        """Release the reserve, or pause if there was none. Always returns True, so that the write is retried."""
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
