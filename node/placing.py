"""Keeps the placement up with the state, off the event loop, once for changes that arrive together."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from node.duty.ownership import Ownership
from node.machine import Change
from node.state.value import State

OnPlaced = Callable[[State, Ownership, frozenset[str] | None], None]

SETTLE_S: Final = 0.005
"""So long a change of tasks alone waits before it is looked at: whoever made it is answered first."""
REST_TIMES: Final = 9.0
REST_S: Final = 0.25


def rest_after(took_s: float) -> float:
    """How long changes of tasks alone wait after a placement that took so long: nine times that, `REST_S` at most.

    So while tasks are registered one by one, placing takes a tenth of the time, and not a placement of all for each.
    """
    return min(REST_S, REST_TIMES * took_s)


class Placing:
    """Computes the `Ownership` of the newest epoch. `on_placed(state, ownership, touched)` is called on the loop.

    It is called for every change of state; `touched` is what changed since the call before. The ownership is of the
    state's epoch, but while changes of tasks alone wait for one another (`rest`): then it is the one before.
    A change of members, of settings or of runs waits for nothing, nor does anything while somebody asks for the
    placement.
    """

    def __init__(self, on_placed: OnPlaced, rest: Callable[[float], float] = rest_after) -> None:
        self.ownership = Ownership.of(State())
        self._on_placed = on_placed
        self._rest = rest
        self._state = State()
        self._touched: frozenset[str] | None = frozenset()
        self._unplaced: frozenset[str] | None = frozenset()
        """What changed since the latest placement."""
        self._asked = 0
        self._rests_until_s = 0.0
        self._dirty = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None
        # A thread of its own: a failover does not wait for those that read logs and history.
        self._thread = ThreadPoolExecutor(1, "placing")
        self._placed = asyncio.Condition()

    def look(self, change: Change) -> None:
        """There is a new state."""
        self._state = change.after
        self._touched = _both(self._touched, change.touched)
        if self._asked or change.touched is None or not _only_tasks(change.before, change.after):
            self._dirty.set()
        else:
            self._wake_in(SETTLE_S)

    def close(self) -> None:
        """Let the thread end, when it is done with what it does."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            if self._alarm is not None:
                self._alarm.cancel()
                self._alarm = None
            state, touched = self._state, self._touched
            self._touched = frozenset()
            self._unplaced = _both(self._unplaced, touched)
            if state.epoch != self.ownership.state.epoch or self._unplaced is None:
                if (rest_s := self._rest_s(state)) > 0:
                    self._wake_in(rest_s)
                else:
                    await self._place(state)
            self._on_placed(state, self.ownership, touched)
            async with self._placed:
                self._placed.notify_all()

    def _wake_in(self, wait_s: float) -> None:
        """Look again in so long at the latest."""
        loop = asyncio.get_running_loop()
        at_s = loop.time() + wait_s
        if self._alarm is None or self._alarm.when() > at_s:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = loop.call_at(at_s, self._dirty.set)

    async def _place(self, state: State) -> None:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        self.ownership = await loop.run_in_executor(self._thread, self.ownership.follow, state, self._unplaced)
        self._unplaced = frozenset()
        ended_s = loop.time()
        self._rests_until_s = ended_s + self._rest(ended_s - begun_s)

    def _rest_s(self, state: State) -> float:
        if self._asked or not _only_tasks(self.ownership.state, state):
            return 0.0
        return self._rests_until_s - asyncio.get_running_loop().time()

    async def placed(self, epoch: int, timeout_s: float) -> Ownership:
        """The ownership once it is of `epoch` or later; the latest there is when the time is over."""

        async def reached() -> None:
            async with self._placed:
                await self._placed.wait_for(lambda: self.ownership.state.epoch >= epoch)

        if self.ownership.state.epoch < epoch:
            self._asked += 1
            self._dirty.set()
            try:
                await asyncio.wait_for(reached(), timeout_s)
            except TimeoutError:
                return self.ownership
            finally:
                self._asked -= 1
        return self.ownership


def _only_tasks(before: State, after: State) -> bool:
    """Whether all that placement depends on is as it was, but for the tasks, and those are not."""
    same = after.members is before.members and after.settings == before.settings
    return same and after.epoch != before.epoch


def _both(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    return None if one is None or other is None else one | other
