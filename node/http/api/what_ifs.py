"""Computes the consequences of losing members, in another thread, and keeps the latest answers for a while.

Visiting all tasks is expensive (1 s of a core at 100,000): one answer is computed at a time, and all suppositions share
one timetable of what is due. An answer is not used again once members or settings have changed.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic, thread_time
from typing import Final, Generic, TypeVar

from node.duty.ownership import Ownership
from node.duty.timetable import TimeSpan, UpcomingTask, timetable
from node.duty.what_if import Supposition, WhatIf, suppose
from node.http.door.problems import invalid_field
from node.http.door.request_context import RequestContext
from node.state.value import State

SHARE: Final = 20
"""A value is reused for this many times the processor time that it took, so computing takes at most 5% of a core."""

CHEAP_S: Final = 0.05
"""A value that took less processor time, in seconds, is computed anew whenever the state has changed."""

STILL_US: Final = 2_000_000
"""How long a value of the present state is reused, in microseconds. It ages because what is due changes with time."""


def is_spared(age_s: float, cost_s: float, old_s: float) -> bool:
    """Return whether an expensive value is reused although the state has changed. One older than `old_s` never is."""
    return cost_s > CHEAP_S and age_s < min(SHARE * cost_s, old_s)


def is_current(made_index: int, made_us: int, index: int, now_us: int) -> bool:
    """Return whether a value was made from the present state, less than `STILL_US` ago."""
    return made_index == index and abs(now_us - made_us) < STILL_US


T = TypeVar("T")
OLD_S: Final = 60.0
"""An answer is used no longer than this, in seconds, whatever processor time it cost."""

KEPT: Final = 16
"""How many answers are kept."""


@dataclass(frozen=True, slots=True)
class _Made(Generic[T]):
    """A value that was computed from `state` at `made_s` of a monotonic clock, in `cost_s` of processor time."""

    value: T
    state: State
    now_us: int
    made_s: float
    cost_s: float


@dataclass
class WhatIfs:
    """The latest answers of one server."""

    #: Reads a monotonic clock, in seconds.
    now_s: Callable[[], float] = monotonic
    #: Reads the processor time of the calling thread, in seconds.
    spent_s: Callable[[], float] = thread_time
    #: Held while an answer is computed.
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    #: The latest timetable, by how far it reaches ahead in microseconds.
    _timetables: dict[int, _Made[tuple[TimeSpan, list[UpcomingTask]]]] = field(default_factory=dict)
    #: The latest answers, by reach ahead and supposition; the least recently used first.
    _answers: dict[tuple[int, Supposition], _Made[WhatIf]] = field(default_factory=dict)

    async def answer(
        self, state: State, ownership: Ownership, supposition: Supposition, now_us: int, ahead_us: int
    ) -> WhatIf:
        """Return the consequences of a supposition, with the occurrences due in the next `ahead_us` microseconds."""
        async with self._lock:
            key = (ahead_us, supposition)
            kept = self._answers.pop(key, None)
            if kept is None or not self._is_fresh(kept, state, now_us):
                kept = await asyncio.to_thread(self._make, state, ownership, supposition, now_us, ahead_us)
            self._answers[key] = kept  # now the last in the order; the first is forgotten
            while len(self._answers) > KEPT:
                del self._answers[next(iter(self._answers))]
            return kept.value

    def _make(
        self, state: State, ownership: Ownership, supposition: Supposition, now_us: int, ahead_us: int
    ) -> _Made[WhatIf]:
        table = self._timetables.get(ahead_us)
        if table is None or not self._is_fresh(table, state, now_us):
            began_s = self.spent_s()
            span = TimeSpan(now_us, now_us + ahead_us)
            upcoming = timetable(state, span)
            table = _Made((span, upcoming), state, now_us, self.now_s(), self.spent_s() - began_s)
            self._timetables = {ahead_us: table}
        began_s = self.spent_s()
        span, upcoming = table.value
        found = suppose(state, ownership, supposition, upcoming, span)
        return _Made(found, state, now_us, self.now_s(), self.spent_s() - began_s + table.cost_s)

    def _is_fresh(self, made: _Made[T], state: State, now_us: int) -> bool:
        same = made.state.members is state.members and made.state.settings == state.settings
        if same and is_spared(self.now_s() - made.made_s, made.cost_s, OLD_S):
            return True
        return is_current(made.state.index, made.now_us, state.index, now_us)


async def what_if_of(context: RequestContext, supposition: Supposition, ahead_s: int) -> WhatIf:
    """Return the consequences of a supposition, with the occurrences that are due in the next `ahead_s` seconds."""
    ownership = await context.ownership()
    return await context.server.kept(WhatIfs).answer(
        context.state, ownership, supposition, context.server.now_us(), ahead_s * 1_000_000
    )


def members_named(state: State, name: str, text: str) -> frozenset[str]:
    """Return the members in the query parameter `name`, separated by commas. Raises `Problem` if one is unknown."""
    members = frozenset(part.strip() for part in text.split(",") if part.strip())
    unknown = sorted(member for member in members if member not in state.members)
    if unknown or not members:
        there = ", ".join(sorted(state.members))
        which = ", ".join(unknown) or "''"
        raise invalid_field(name, f"there is no member {which}; the members are {there}", "the query")
    return members
