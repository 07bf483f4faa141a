"""Watches this machine's disk, beside the nodes: a shared one may stand still for seconds, and no node commits then."""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench.chaos.background import Background
from bench.chaos.observer import now_s

LOOK_S: Final = 0.25
STALL_S: Final = 0.3
"""A sync that took longer than this was no commit as usual."""


class DiskWatch(Background):
    """A thread that writes a page into `folder` and syncs it, again and again, from `start` to `stop`.

    `stalls`: from when to when (CLOCK_BOOTTIME) a sync took longer than `stall_s`, with the time since the one before.
    """

    def __init__(
        self,
        folder: Path,
        look_s: float = LOOK_S,
        stall_s: float = STALL_S,
        sync: Callable[[int], object] = os.fdatasync,
    ) -> None:
        super().__init__("watch of the disk", self._watch)
        self._look_s, self._stall_s, self._sync = look_s, stall_s, sync
        self.stalls: list[tuple[float, float]] = []
        self._path = folder / "disk-watch"

    def said(self) -> str:
        """How often the disk stood still, and how long at worst."""
        if not self.stalls:
            return f"this machine's disk never stood still for {self._stall_s} s"
        worst_s = max(to_s - from_s for from_s, to_s in self.stalls)
        return f"this machine's disk stood still {len(self.stalls)} times, for {worst_s:.1f} s at worst"

    def _watch(self, over: threading.Event) -> None:
        with self._path.open("wb", buffering=0) as file:
            before_s = now_s()
            while not over.wait(self._look_s):
                begin_s = now_s()
                os.pwrite(file.fileno(), bytes(4096), 0)
                self._sync(file.fileno())
                end_s = now_s()
                if end_s - begin_s > self._stall_s:
                    self.stalls.append((before_s, end_s))
                before_s = end_s
