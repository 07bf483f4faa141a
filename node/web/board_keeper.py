"""Keeps the latest picture of all tasks for the requests of one server. It is made in another thread, not too often."""

import asyncio
from collections.abc import Callable
from time import monotonic, thread_time
from typing import Final

from node.duty.ownership import Ownership
from node.http.api.what_ifs import is_current, is_spared
from node.http.door.request_context import RequestContext
from node.state.value import State
from node.web.board import Picture, TaskBoard

OLD_S: Final = 5.0
"""A picture of an earlier state is used no longer than this, however expensive it was."""


class BoardKeeper:
    """The latest picture. `now_s` is a monotonic clock, `spent_s` the processor time of a thread. Used on the loop.

    The cost of a picture is measured in processor time, because on a busy machine it takes longer but costs the same.
    """

    def __init__(self, now_s: Callable[[], float] = monotonic, spent_s: Callable[[], float] = thread_time) -> None:
        self._board = TaskBoard()
        self._now_s = now_s
        self._spent_s = spent_s
        self._lock = asyncio.Lock()
        self._picture: Picture | None = None
        self._read_s = 0.0
        self._cost_s = 0.0

    async def picture(self, state: State, ownership: Ownership, now_us: int) -> Picture:
        """Return the picture of `state`, or a slightly earlier picture."""
        async with self._lock:
            if self._picture is not None and self._is_fresh(self._picture, state, now_us):
                return self._picture
            picture, self._cost_s = await asyncio.to_thread(self._read, state, ownership, now_us)
            self._picture, self._read_s = picture, self._now_s()
            return picture

    def _read(self, state: State, ownership: Ownership, now_us: int) -> tuple[Picture, float]:
        """Make the picture. Returns it with the processor time that it took, in seconds."""
        began_s = self._spent_s()
        picture = self._board.read(state, ownership, now_us)
        return picture, self._spent_s() - began_s

    def _is_fresh(self, picture: Picture, state: State, now_us: int) -> bool:
        if is_spared(self._now_s() - self._read_s, self._cost_s, OLD_S):
            return True
        return is_current(picture.index, picture.now_us, state.index, now_us)


async def picture_of(context: RequestContext) -> Picture:
    """Return the present picture of all tasks."""
    ownership = await context.ownership()
    return await context.server.kept(BoardKeeper).picture(context.state, ownership, context.server.now_us())
