"""Keeps the placement up with the state, off the event loop, once for changes that arrive together."""

import asyncio
from collections.abc import Callable

from node.duty.ownership import Ownership
from node.machine import Change
from node.state.value import State

OnPlaced = Callable[[State, Ownership, frozenset[str] | None], None]


class Placing:
    """Computes the `Ownership` of each new epoch. `on_placed(state, ownership, touched)` is called on the loop.

    It is called for every change of state, with an ownership of the state's epoch; `touched` is what changed
    since the call before.
    """

    def __init__(self, on_placed: OnPlaced) -> None:
        self.ownership = Ownership.of(State())
        self._on_placed = on_placed
        self._state = State()
        self._touched: frozenset[str] | None = frozenset()
        self._dirty = asyncio.Event()
        self._placed = asyncio.Condition()

    def look(self, change: Change) -> None:
        """There is a new state."""
        self._state = change.after
        whole = self._touched is None or change.touched is None
        self._touched = None if whole else self._touched | change.touched  # type: ignore[operator]
        self._dirty.set()

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            state, touched = self._state, self._touched
            self._touched = frozenset()
            if state.epoch != self.ownership.state.epoch or touched is None:
                self.ownership = await asyncio.to_thread(self.ownership.follow, state, touched)
            self._on_placed(state, self.ownership, touched)
            async with self._placed:
                self._placed.notify_all()

    async def placed(self, epoch: int, timeout_s: float) -> Ownership:
        """The ownership once it is of `epoch` or later; the latest there is when the time is over."""
        if self.ownership.state.epoch < epoch:
            try:
                async with asyncio.timeout(timeout_s), self._placed:
                    await self._placed.wait_for(lambda: self.ownership.state.epoch >= epoch)
            except TimeoutError:
                return self.ownership
        return self.ownership
