"""Ends a drill that takes too long or too much room, or that was asked to stop: its programs end at once."""

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tasks.errors import Failed

_EVERY_S: Final = 0.5
FREE_BYTES_MIN: Final = 64 << 20
"""The room on the disk of the scratch folder at which a drill ends."""


class DrillStopped(Exception):
    """The attempt was asked to stop. It has proven nothing, and left nothing."""


class DrillBounds(Failed):
    """The drill would take more time or room than its params and the disk allow. It has proven nothing."""


def room_needed(size_bytes: int, max_bytes: int | None, left_bytes: int) -> str:
    """Say why a backup with that size of content cannot be restored in a drill; "" if it can be begun. Pure.

    >>> room_needed(5_000_000_000, 1_000_000_000, 9_000_000_000)
    'the backup holds 5,000,000,000 bytes, and max_bytes allows 1,000,000,000'
    >>> room_needed(5, None, 1 << 40)
    ''
    """
    if max_bytes is not None and size_bytes > max_bytes:
        return f"the backup holds {size_bytes:,} bytes, and max_bytes allows {max_bytes:,}"
    if size_bytes + FREE_BYTES_MIN > left_bytes:
        return f"the backup holds {size_bytes:,} bytes, and the scratch folder has room for {left_bytes:,}"
    return ""


def scratch_room(folder: Path) -> int:
    """Return the free room on the disk of a folder, in bytes."""
    return shutil.disk_usage(folder).free


class DrillWatch:
    """Watches one drill during its block. `cancelled` says whether the attempt was asked to stop."""

    def __init__(self, scratch: Path, max_s: float, max_bytes: int | None, cancelled: Callable[[], bool]) -> None:
        self._scratch = scratch
        self._max_s = max_s
        self._end_s = time.monotonic() + max_s
        self._max_bytes = max_bytes
        self._cancelled = cancelled
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._ends: list[Callable[[], None]] = []
        self._why: Exception | None = None
        self._thread = threading.Thread(target=self._watch, name="drill-watch", daemon=True)

    def __enter__(self) -> "DrillWatch":
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._over.set()
        self._thread.join()

    def check(self) -> None:
        """Raise `DrillStopped` or `DrillBounds` if the drill has to end."""
        if self._why is None:
            self._why = self._judge()
        if self._why is not None:
            raise self._why

    def left_s(self) -> float:
        """Return how much of the drill's time is left, in seconds."""
        return self._end_s - time.monotonic()

    @contextmanager
    def ending(self, end: Callable[[], None]) -> Iterator[None]:
        """Call `end`, in another thread, if the drill has to end within the block."""
        with self._lock:
            self._ends.append(end)
        try:
            yield
        finally:
            with self._lock:
                self._ends.remove(end)

    def _watch(self) -> None:
        while not self._over.wait(_EVERY_S):
            try:
                self.check()
            except (DrillStopped, DrillBounds):
                with self._lock:
                    for end in self._ends:
                        end()

    def _judge(self) -> Exception | None:
        if self._cancelled():
            return DrillStopped("asked to stop")
        if time.monotonic() > self._end_s:
            return DrillBounds(f"the drill takes more than the {self._max_s:,.0f} s of max_s")
        if (left_bytes := scratch_room(self._scratch)) < FREE_BYTES_MIN:
            return DrillBounds(f"the disk of the scratch folder has only {left_bytes:,} bytes left")
        if self._max_bytes is not None and (taken := _taken_bytes(self._scratch)) > self._max_bytes:
            return DrillBounds(f"the restored copy takes {taken:,} bytes, and max_bytes allows {self._max_bytes:,}")
        return None


def _taken_bytes(folder: Path) -> int:
    """Return the room on the disk that the files in a folder take. Files that vanish meanwhile are left out."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(f"{parent}/{name}").st_blocks * 512
            except FileNotFoundError:
                continue
    return total
