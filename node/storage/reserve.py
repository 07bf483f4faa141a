"""Room on the disk that is kept back for Raft's journal: a file of that size, which is deleted when it is needed.

Without it, what fills the disk leaves no room to write down that it has been stopped.
"""

import os
import threading
from pathlib import Path
from typing import Final

NAME: Final = "reserve"
START_BYTES: Final = 4 * 1024 * 1024
"""What a node needs to start: its own records, and a log for its databases."""


class Reserve:
    """The file in Raft's folder. From any thread."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._changing = threading.Lock()

    def hold(self, size_bytes: int) -> None:
        """Keep so much back from now on, as far as there is room. Raises `OSError`; then nothing is held."""
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
        """Give it up. Whether there was something to give."""
        with self._changing:
            try:
                self._path.unlink()
            except FileNotFoundError:
                return False
            return True


def room_to_start(folder: Path) -> None:
    """Give up what a node keeps back in its data folder, where there is no room to start with. Raises `OSError`."""
    found = os.statvfs(folder)
    if found.f_bavail * found.f_frsize < START_BYTES:
        Reserve(folder / "raft").release()
