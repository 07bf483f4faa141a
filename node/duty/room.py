"""Counts how many more attempts may begin here, in all and of bounded kinds; stores the claims that wait for room."""

import heapq
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from node.duty.decide import Wish
from node.duty.step import WaitsForRoom
from node.state.claims import Claim
from node.state.value import State


@dataclass(frozen=True, slots=True)
class KindTerms:
    """The preparation and the bound of a kind on this member.

    `preparation` names the preparation of its processes; "": none. `bound` names a bound; "": none. A bound limits the
    attempts and prepared processes on this member, of all kinds with this bound together, to `most` at once.
    """

    preparation: str = ""
    bound: str = ""
    most: int = sys.maxsize


NO_TERMS = KindTerms()


def kind_of(state: State, claim: Claim) -> str:
    """Return the kind of the run that a claim would begin; "" if its task is gone."""
    run = None if claim.run_id is None else state.runs.get(claim.run_id)
    if run is not None:
        return run.spec.kind
    row = state.tasks.get(claim.task)
    return "" if row is None else row.placing.kind


class FreePlaces:
    """The places that are left; in all, `free`. `working` has the kind of each attempt that has a place or is claimed.

    >>> spark = KindTerms(bound="ENGINES", most=2)
    >>> places = FreePlaces(3, {"load": spark, "copy": spark}, ["load", "command"])
    >>> places.open("copy"), places.take("copy"), places.open("load"), places.take("load"), places.take("command")
    (True, True, False, False, True)
    >>> places.full, places.left("load"), places.left("command") > 100
    (frozenset({'ENGINES'}), 0, True)
    """

    def __init__(self, free: int, kinds: Mapping[str, KindTerms], working: Iterable[str]) -> None:
        self.free = max(0, free)
        self._kinds = kinds
        self._left = {terms.bound: terms.most for terms in kinds.values() if terms.bound}
        for kind in working if self._left else ():
            self._use(kind)

    def open(self, kind: str) -> bool:
        """Whether the bound of that kind allows one more attempt."""
        return self.left(kind) > 0

    def left(self, kind: str) -> int:
        """Return how many more attempts the bound of that kind allows."""
        return max(0, self._left.get(self._kinds.get(kind, NO_TERMS).bound, sys.maxsize))

    def take(self, kind: str) -> bool:
        """Occupy a place for an attempt of that kind. Returns False if there is no place."""
        if self.free <= 0 or not self.open(kind):
            return False
        self.free -= 1
        self._use(kind)
        return True

    @property
    def full(self) -> frozenset[str]:
        """The bounds that are used up."""
        return frozenset(bound for bound, left in self._left.items() if left <= 0)

    def _use(self, kind: str) -> None:
        bound = self._kinds.get(kind, NO_TERMS).bound
        if bound:
            self._left[bound] -= 1


class Starved:
    """The claims that wait for room, by task. Iterates over the tasks, in the order in which they began to wait."""

    def __init__(self, kinds: Mapping[str, KindTerms]) -> None:
        self._kinds = kinds
        # A dict as an ordered set: the decisions must not depend on how strings hash.
        self._wishes: dict[str, tuple[Wish, ...]] = {}
        self._shown: tuple[WaitsForRoom, ...] | None = ()

    def __iter__(self) -> Iterator[str]:
        return iter(self._wishes)

    def clear(self) -> None:
        """Remove all claims."""
        self._wishes.clear()
        self._shown = None

    def add(self, wish: Wish) -> None:
        """Add a claim that waits."""
        task = wish.claim.task
        self._wishes[task] = (*self._wishes.get(task, ()), wish)
        self._shown = None

    def remove(self, task: str) -> None:
        """Remove all waiting claims of a task."""
        if self._wishes.pop(task, None) is not None:
            self._shown = None

    def longest(self, state: State, places: FreePlaces) -> list[str]:
        """Return the tasks that have waited the longest, as many as could run now."""
        if places.free <= 0:
            return []
        could = (task for task, wishes in self._wishes.items() if places.open(kind_of(state, wishes[0].claim)))
        return heapq.nsmallest(places.free, could, key=lambda task: self._wishes[task][0].rank)

    def shown(self, state: State) -> tuple[WaitsForRoom, ...]:
        """Return the waiting claims, as the API shows them."""
        if self._shown is None:
            self._shown = tuple(
                WaitsForRoom(task, wish.claim.run_id, wish.claim.fire_at_us, self._bound_of(state, wish))
                for task, wishes in self._wishes.items()
                for wish in wishes
            )
        return self._shown

    def _bound_of(self, state: State, wish: Wish) -> str:
        return self._kinds.get(kind_of(state, wish.claim), NO_TERMS).bound
