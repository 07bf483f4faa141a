"""Counts how many more attempts may begin here, in all and of bounded kinds; stores the claims that wait for room."""

import heapq
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from node.duty.decide import Wish
from node.duty.step import WaitsForRoom
from node.state.claims import Claim
from node.state.places import Places
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


def places_told(max_runs: int, kinds: Mapping[str, KindTerms]) -> Places:
    """Return the places of a member that runs `max_runs` attempts at once, and has these terms.

    >>> places_told(8, {"etl": KindTerms(bound="SPARK", most=4)})
    Places(runs=8, bounds=(('etl', 'SPARK'),), most=(('SPARK', 4),))
    """
    bounded = [(kind, kinds[kind]) for kind in sorted(kinds) if kinds[kind].bound]
    most = {terms.bound: terms.most for _, terms in bounded}
    return Places(max_runs, tuple((kind, terms.bound) for kind, terms in bounded), tuple(sorted(most.items())))


def kind_of(state: State, claim: Claim) -> str:
    """Return the kind of the run that a claim would begin; "" if its task is gone."""
    run = None if claim.run_id is None else state.runs.get(claim.run_id)
    if run is not None:
        return run.spec.kind
    row = state.tasks.get(claim.task)
    return "" if row is None else row.placing.kind


class FreePlaces:
    """The places that are left; in all, `free`. `working` has the kind of each attempt that has a place or is claimed.

    `kept` are the places that only continuous work and failovers may have: by bound, and in all for "".

    >>> spark = KindTerms(bound="ENGINES", most=2)
    >>> places = FreePlaces(3, {"load": spark, "copy": spark}, ["load", "command"])
    >>> places.open("copy"), places.take("copy"), places.open("load"), places.take("load"), places.take("command")
    (True, True, False, False, True)
    >>> places.full, places.left("load"), places.left("command") > 100
    (frozenset({'ENGINES'}), 0, True)
    >>> places = FreePlaces(1, {}, (), kept={"": 1})
    >>> places.take("command", batch=True), places.take("command")
    (False, True)
    """

    def __init__(
        self,
        free: int,
        kinds: Mapping[str, KindTerms],
        working: Iterable[str],
        kept: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.free = max(0, free)
        self._kinds = kinds
        self._kept = kept
        self._left = {terms.bound: terms.most for terms in kinds.values() if terms.bound}
        for kind in working if self._left else ():
            self._use(kind)

    def open(self, kind: str, *, batch: bool = False) -> bool:
        """Whether there is a place for an attempt of that kind. `batch`: it is neither continuous nor a failover."""
        bound = self._kinds.get(kind, NO_TERMS).bound
        kept = (self._kept.get("", 0), self._kept.get(bound, 0) if bound else 0) if batch else (0, 0)
        return self.free > kept[0] and self.left(kind) > kept[1]

    def left(self, kind: str) -> int:
        """Return how many more attempts the bound of that kind allows."""
        return max(0, self._left.get(self._kinds.get(kind, NO_TERMS).bound, sys.maxsize))

    def take(self, kind: str, *, batch: bool = False) -> bool:
        """Occupy a place for an attempt of that kind. Returns False if there is no place."""
        if not self.open(kind, batch=batch):
            return False
        self.free -= 1
        self._use(kind)
        return True

    @property
    def full(self) -> frozenset[str]:
        """The bounds that are used up, but for what is kept."""
        return frozenset(bound for bound, left in self._left.items() if left <= self._kept.get(bound, 0))

    def _use(self, kind: str) -> None:
        bound = self._kinds.get(kind, NO_TERMS).bound
        if bound:
            self._left[bound] -= 1


class BackfillPlaces:
    """The places that runs of backfills may still take: half of all, and half of each bound, rounded up.

    `places` is how many attempts may run at once, and `backfilled` has the kind of each of those of backfills.

    >>> spark = KindTerms(bound="ENGINES", most=2)
    >>> places = BackfillPlaces(5, {"load": spark}, ["command"])
    >>> places.take("load"), places.take("load"), places.take("command"), places.take("command")
    (True, False, True, False)
    """

    def __init__(self, places: int, kinds: Mapping[str, KindTerms], backfilled: Iterable[str]) -> None:
        self._kinds = kinds
        bounds = {terms.bound: terms.most for terms in kinds.values() if terms.bound}
        self._left = {name: (most + 1) // 2 for name, most in {"": places, **bounds}.items()}
        for kind in backfilled:
            self._use(kind)

    def open(self, kind: str) -> bool:
        """Whether backfills may have one more run of that kind."""
        return all(self._left[name] > 0 for name in self._of(kind))

    def take(self, kind: str) -> bool:
        """Take a place for a run of that kind. Returns False if backfills have their half."""
        if not self.open(kind):
            return False
        self._use(kind)
        return True

    def _use(self, kind: str) -> None:
        for name in self._of(kind):
            self._left[name] -= 1

    def _of(self, kind: str) -> set[str]:
        return {"", self._kinds.get(kind, NO_TERMS).bound}


class Starved:
    """The claims that wait for room, by task. Iterates over the tasks, in the order in which they began to wait."""

    def __init__(self, kinds: Mapping[str, KindTerms]) -> None:
        self._kinds = kinds
        # A dict as an ordered set: the decisions must not depend on how strings hash.
        self._wishes: dict[str, tuple[Wish, ...]] = {}
        self._shown: tuple[WaitsForRoom, ...] | None = ()

    def __iter__(self) -> Iterator[str]:
        return iter(self._wishes)

    def __bool__(self) -> bool:
        return bool(self._wishes)

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

    def longest(
        self, state: State, places: FreePlaces, backfills: BackfillPlaces | None = None, elsewhere: int = 0
    ) -> list[str]:
        """Return the tasks that have waited the longest, as many as could run now.

        `elsewhere`: how many of those that may be offered could begin on other members.
        """

        def fits(wish: Wish) -> bool:
            kind = kind_of(state, wish.claim)
            if wish.backfill and backfills is not None and not backfills.open(kind):
                return False
            return places.open(kind, batch=wish.batch)

        found: list[str] = []
        if places.free > 0:
            here = (task for task, wishes in self._wishes.items() if fits(wishes[0]))
            found = heapq.nsmallest(places.free, here, key=self._rank)
        if elsewhere > 0:
            there = (task for task, wishes in self._wishes.items() if wishes[0].shared)
            found += heapq.nsmallest(elsewhere, there, key=self._rank)
        return found

    def _rank(self, task: str) -> tuple[bool, bool, int, str]:
        return self._wishes[task][0].rank

    def shown(self, state: State) -> tuple[WaitsForRoom, ...]:
        """Return the waiting claims, as the API shows them."""
        if self._shown is None:
            self._shown = tuple(
                WaitsForRoom(task, wish.claim.run_id, wish.claim.fire_at_us, self._bound_of(state, wish), wish.backfill)
                for task, wishes in self._wishes.items()
                for wish in wishes
            )
        return self._shown

    def _bound_of(self, state: State, wish: Wish) -> str:
        return self._kinds.get(kind_of(state, wish.claim), NO_TERMS).bound
