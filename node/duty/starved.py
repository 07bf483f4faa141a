"""Own tasks whose claims wait for room on this member."""

import heapq
from collections.abc import Iterator, Mapping

from node.duty.decide import Wish
from node.duty.room import NO_TERMS, FreePlaces, KindTerms, kind_of
from node.duty.step import WaitsForRoom
from node.state.value import State


class Starved:
    """The claims that wait, by task. Iterates over the tasks, in the order in which they began to wait."""

    def __init__(self, kinds: Mapping[str, KindTerms]) -> None:
        self._kinds = kinds
        # A dict as an ordered set: the decisions must not depend on how strings hash.
        self._wishes: dict[str, tuple[Wish, ...]] = {}
        self._shown: tuple[WaitsForRoom, ...] | None = ()

    def __iter__(self) -> Iterator[str]:
        return iter(self._wishes)

    def clear(self) -> None:
        """Nothing waits."""
        self._wishes.clear()
        self._shown = None

    def add(self, wish: Wish) -> None:
        """A claim waits."""
        task = wish.claim.task
        self._wishes[task] = (*self._wishes.get(task, ()), wish)
        self._shown = None

    def remove(self, task: str) -> None:
        """Nothing of a task waits."""
        if self._wishes.pop(task, None) is not None:
            self._shown = None

    def longest(self, state: State, places: FreePlaces) -> list[str]:
        """The tasks that have waited the longest, as many as could run now."""
        if places.free <= 0:
            return []
        could = (task for task, wishes in self._wishes.items() if places.open(kind_of(state, wishes[0].claim)))
        return heapq.nsmallest(places.free, could, key=lambda task: self._wishes[task][0].rank)

    def shown(self, state: State) -> tuple[WaitsForRoom, ...]:
        """What waits, for those who ask."""
        if self._shown is None:
            self._shown = tuple(
                WaitsForRoom(task, wish.claim.run_id, wish.claim.fire_at_us, self._bound_of(state, wish))
                for task, wishes in self._wishes.items()
                for wish in wishes
            )
        return self._shown

    def _bound_of(self, state: State, wish: Wish) -> str:
        return self._kinds.get(kind_of(state, wish.claim), NO_TERMS).bound
