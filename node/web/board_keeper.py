"""Keeps the latest picture of all tasks for the requests of one server: read in another thread, and not too often."""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Final

from node.duty.ownership import Ownership
from node.state.value import State
from node.web.board import Picture, TaskBoard

SHARE: Final = 20
"""A picture is used again for this many times as long as it took to read, whatever has changed: 5% of a core."""

OLD_S: Final = 5.0
"""A picture of an earlier state is used no longer than this, whatever it cost."""

CHEAP_S: Final = 0.05
"""A picture that took less is read anew whenever the state has changed."""

STILL_US: Final = 2_000_000
"""A picture of the present state is used again for this long, in microseconds: what is due changes with the time."""


class BoardKeeper:
    """The latest picture. `now_s` is a monotonic clock. Used on the event loop."""

    def __init__(self, now_s: Callable[[], float] = monotonic) -> None:
        self._board = TaskBoard()
        self._now_s = now_s
        self._lock = asyncio.Lock()
        self._picture: Picture | None = None
        self._read_s = 0.0
        self._took_s = 0.0

    async def picture(self, state: State, ownership: Ownership, now_us: int) -> Picture:
        """The picture of `state`, or a slightly earlier one."""
        async with self._lock:
            if self._picture is None or not self._is_fresh(self._picture, state, now_us):
                began_s = self._now_s()
                self._picture = await asyncio.to_thread(self._board.read, state, ownership, now_us)
                self._read_s = self._now_s()
                self._took_s = self._read_s - began_s
            return self._picture

    def _is_fresh(self, picture: Picture, state: State, now_us: int) -> bool:
        if self._took_s > CHEAP_S and self._now_s() - self._read_s < min(SHARE * self._took_s, OLD_S):
            return True
        return picture.index == state.index and abs(now_us - picture.now_us) < STILL_US
