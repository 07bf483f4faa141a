"""How many occurrences of the next hour have a place and their pools at once, and what the others wait for. Pure.

Each begins at its due time on its owner, or where there is a place, once its pools have enough, in the order of due
times; and it takes as long as the last run of its task. That is not all that is decided then. It leaves out: tasks that
come after others, backfills, retries and runs by hand; priorities, the bounds of kinds (`Places.bounds`), shares of
members and their secrets. A run of which no length is known is taken to end at once, if it is to come; one that works
already is taken to go on for as long again.
"""

import heapq
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from node.duty.held_times import held_time
from node.duty.ownership import Ownership
from node.duty.timetable import TimeSpan, UpcomingTask
from node.state.offers import may_be_offered
from node.state.places import for_batch
from node.state.value import Run, State
from tasks.definition.pools import pool_needs
from tasks.definition.run import HELD

HOUR_US: Final = 3_600_000_000

LOOKED_MAX: Final = 5_000
"""The most occurrences that are looked at; later ones are counted only."""


@dataclass(slots=True)
class RoomAhead:
    """How the occurrences of the next hour fare. Each looked at is counted once in the fields from `at_once` on."""

    #: When they begin and end to be due.
    span: TimeSpan
    #: How many are due.
    due: int = 0
    #: How many of these are not looked at, since there are more than `LOOKED_MAX`.
    uncounted: int = 0
    #: How many have a place and their pools when they are due.
    at_once: int = 0
    #: How many wait for a place on a member.
    no_place: int = 0
    #: How many wait for a pool, by its name: the first one that lacks something.
    no_pool: Counter[str] = field(default_factory=Counter)
    #: How many are due while the run of their task before them works: `overlap` decides.
    behind: int = 0
    #: How many are in a blackout, and begin at its end or are missed.
    held: int = 0
    #: How many no member could begin.
    unowned: int = 0
    #: The longest wait for a place or a pool, in microseconds.
    longest_us: int = 0


class _Seats:
    """What is taken of something that is limited, and until when."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used, self.first_us = limit, 0, 0
        self._ends: list[tuple[int, int]] = []

    def take(self, until_us: int, units: int = 1) -> None:
        """Note that so much is taken until then."""
        self.used += units
        heapq.heappush(self._ends, (until_us, units))

    def free_us(self, at_us: int, units: int = 1) -> int | None:
        """Return when so much is free, at `at_us` or later; None: never. What ends by then is given back."""
        if units > self.limit:
            return None
        at_us = max(at_us, self.first_us)  # nobody overtakes who waits
        while self._ends and (self._ends[0][0] <= at_us or self.used + units > self.limit):
            end_us, given = heapq.heappop(self._ends)
            self.used -= given
            at_us = max(at_us, end_us)
        return at_us

    def has_place(self, at_us: int) -> bool:
        """Whether one is free at a time."""
        while self._ends and self._ends[0][0] <= at_us:
            self.used -= heapq.heappop(self._ends)[1]
        return self.used < self.limit

    def next_us(self) -> int:
        """Return when the first one is given back."""
        return self._ends[0][0] if self._ends else 0


def room_ahead(
    state: State,
    then: Ownership,
    up: Iterable[str],
    upcoming: Sequence[UpcomingTask],
    span: TimeSpan,
    on_each: Mapping[str, Sequence[tuple[str | None, str | None]]],
) -> RoomAhead:
    """Count what is due in the first hour of `span`, with `then` as the owners and `up` as the members that are up.

    `upcoming` is what is due within `span`. `on_each`: of each task that several members begin, these members first.
    """
    hour = TimeSpan(span.from_us, min(span.until_us, span.from_us + HOUR_US))
    return _Count(state, then, up, hour, on_each).of(upcoming)


class _Count:
    """The count, with what is taken of members and pools so far."""

    def __init__(
        self,
        state: State,
        then: Ownership,
        up: Iterable[str],
        span: TimeSpan,
        on_each: Mapping[str, Sequence[tuple[str | None, str | None]]],
    ) -> None:
        self._state, self._then, self._on_each = state, then, on_each
        self._found = RoomAhead(span)
        self._until_us: dict[str, int] = {}
        """Until when the last run of a task works, by the key of its place."""
        self._up = frozenset(up)
        self._pools = {name: _Seats(pool.capacity) for name, pool in state.pools.items()}
        self._places: dict[str, _Seats] = {}

    def of(self, upcoming: Sequence[UpcomingTask]) -> RoomAhead:
        """Count these."""
        found, span = self._found, self._found.span
        batch = [one for one in upcoming if not one.continuous]
        self._open_places([one.task for one in upcoming if one.continuous])
        for run in self._state.runs.values():
            if run.state in HELD and not run.action:
                self._take_up(run)
        times = [(one, one.times[: bisect_right(one.times, span.until_us)]) for one in batch]
        begins = {one.task: len(self._on_each.get(one.task) or ((),)) for one in batch}
        found.due = sum(len(due) * begins[one.task] for one, due in times)
        merged = heapq.merge(*(_named(one, due) for one, due in times))
        events = list(islice(merged, LOOKED_MAX))
        found.uncounted = found.due - sum(begins[task] for _, _, task, _ in events)
        while events:
            at_us, due_us, task, took_us = heapq.heappop(events)
            for member in self._members_of(task):
                self._one(events, at_us, due_us, task, took_us, member)
        return found

    def _open_places(self, continuous: list[str]) -> None:
        owned = Counter(member for task in continuous for member in self._members_of(task))
        for name in sorted(self._up):
            runs = self._state.members[name].places.runs
            if runs:  # else it has not told, and is not limited here
                self._places[name] = _Seats(for_batch(runs, owned[name], continuous=bool(continuous)))

    def _members_of(self, task: str) -> list[str | None]:
        pairs = self._on_each.get(task)
        return [self._then.owner(task)] if pairs is None else [then for then, _ in pairs]

    def _take_up(self, run: Run) -> None:
        """Let a run that works now go on, on its member or the one that takes it over."""
        state, now_us = self._state, self._found.span.from_us
        row = state.tasks.get(run.task)
        since_us = run.attempts[0].claimed_at_us if run.attempts else now_us
        took_us = row.last.took_us if row is not None and row.last is not None else None
        worked_us = max(0, now_us - since_us)
        left_us = worked_us if took_us is None or took_us <= worked_us else took_us - worked_us
        node = run.node if run.node in self._up else None if run.member else self._then.owner(run.task)
        if node is None or row is None or row.timing.continuous:
            return
        self._until_us[_key(run.task, run.member)] = now_us + left_us
        if node in self._places:
            self._places[node].take(now_us + left_us)
        needs = pool_needs(run.spec_packed)
        for name, units in needs.uses if needs is not None else ():
            if name in self._pools:
                self._pools[name].take(now_us + left_us, units)

    def _one(
        self,
        events: list[tuple[int, int, str, int]],
        at_us: int,
        due_us: int,
        task: str,
        took_us: int,
        member: str | None,
    ) -> None:
        found, row = self._found, self._state.tasks.get(task)
        first = at_us == due_us
        if row is None or member is None:
            found.unowned += first
            return
        if first and (held := held_time(self._state, row, due_us)) is not None:
            found.held += 1
            if held.begins and held.until_us <= found.span.until_us and task not in self._on_each:
                heapq.heappush(events, (held.until_us, due_us, task, took_us))
            return
        key = _key(task, member if task in self._on_each else "")
        if (
            self._until_us.get(key, 0) > at_us and row.spec.overlap != "allow"
        ):  # reading a spec costs, so only if needed
            found.behind += first
            return
        begins_us: int | None = at_us
        lacking = ""
        needs = pool_needs(row.spec_packed)
        uses = [(name, units) for name, units in (needs.uses if needs is not None else ()) if name in self._pools]
        for name, units in uses:
            free_us = None if begins_us is None else self._pools[name].free_us(begins_us, units)
            lacking = lacking or (name if free_us != begins_us else "")
            begins_us = free_us
        if begins_us is None:
            found.no_pool[lacking] += first
            return
        pooled_us = begins_us
        if lacking:
            self._pools[lacking].first_us = pooled_us
        member = self._where(task, member, pooled_us)
        if member in self._places:
            free_us = self._places[member].free_us(pooled_us)
            if free_us is None:
                found.no_place += first
                return
            begins_us = free_us
        for name, units in uses:
            self._pools[name].take(begins_us + took_us, units)
        if member in self._places:
            self._places[member].take(begins_us + took_us)
        self._until_us[key] = begins_us + took_us
        if not first:
            return
        if lacking:
            found.no_pool[lacking] += 1
        elif begins_us > at_us:
            found.no_place += 1
        else:
            found.at_once += 1
        found.longest_us = max(found.longest_us, begins_us - at_us)

    def _where(self, task: str, owner: str, at_us: int) -> str:
        """Return the member that begins it: its owner, or one with a place if that has none."""
        row = self._state.tasks[task]
        if owner not in self._places or self._places[owner].has_place(at_us):
            return owner
        if task in self._on_each or not may_be_offered(row):
            return owner
        others = [one for one in self._then.preference(task) if one in self._up]
        able = next((one for one in others if one not in self._places or self._places[one].has_place(at_us)), None)
        return able or min(others or [owner], key=lambda one: self._places[one].next_us())


def _key(task: str, member: str) -> str:
    return f"{task}@{member}"


def _named(one: UpcomingTask, times: Sequence[int]) -> Iterator[tuple[int, int, str, int]]:
    return ((at_us, at_us, one.task, one.took_us or 0) for at_us in times)
