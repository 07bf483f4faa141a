"""Disk space reserved for Raft's journal: a file of that size, deleted when the space is needed.

Without it, a disk that an attempt has filled leaves no space for the entry that ends the attempt.
"""

import os
import threading
from pathlib import Path
from typing import Final

NAME: Final = "reserve"
START_BYTES: Final = 4 * 1024 * 1024
"""What a node needs to start: its own records, and a WAL for its databases."""


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
