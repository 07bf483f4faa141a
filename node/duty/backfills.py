"""Which occurrence of a backfill comes next, and what the leader proposes for backfills. Pure.

`apply` never evaluates a schedule, so the leader works out the next time from the schedule that the task had when the
backfill was asked for. A leader that knows nothing of the one before it goes on from the position in the state.
"""

from collections.abc import Collection, Iterator, Mapping
from graphlib import TopologicalSorter
from itertools import islice, takewhile
from typing import Final

from node.state.backfill import BackfillRow
from node.state.backfills import AdvanceBackfill, ChangeBackfill, what_is_over
from node.state.calendar import Calendars, days_of
from node.state.entries import Entry
from node.state.value import State
from tasks.definition.calendars import CalendarDays
from tasks.definition.schedule import latest_due_us, next_due_us, occurrences, reckoned_from_us, unreadable
from tasks.definition.spec import Schedule, timing

AGAIN_US: Final = 1_000_000
"""The pause before an entry is proposed again if its effect has not been observed, and between two looks at what is
under way."""


def times_between(
    schedule: Schedule | None, days: CalendarDays | None, since_us: int, from_us: int, to_us: int
) -> Iterator[int]:
    """Yield the times of a schedule from `from_us` on and before `to_us`, in order, also those before `since_us`."""
    times = occurrences(schedule, days, reckoned_from_us(schedule, since_us), from_us - 1)
    return takewhile(lambda time_us: time_us < to_us, times)


def next_time_us(calendars: Calendars, row: BackfillRow) -> int | None:
    """Return the time of the next occurrence of a backfill; None: it has no further ones."""
    rhythm = timing(row.spec_packed)
    schedule, days = rhythm.schedule, days_of(calendars, rhythm)
    since_us = reckoned_from_us(schedule, row.phase_us)
    if row.newest_first:
        found = latest_due_us(schedule, days, since_us, row.position_us - 1)
    else:
        found = next_due_us(schedule, days, since_us, row.position_us)
    return found if found is not None and row.from_us <= found < row.to_us else None


class BackfillKeeper:
    """Keeps backfills going for the leader, from `state` on.

    The caller must call `observe` with every new state, and then `step`. For each leadership a new keeper is made.
    """

    def __init__(self, me: str, state: State) -> None:
        self._me = me
        self._state = state
        self._proposed: dict[int, tuple[int, int]] = {}
        """For each backfill, the position from which it was last advanced, and until when that is not repeated."""
        self._look_us = 0
        """When what is under way is looked at again."""

    def observe(self, state: State) -> bool:
        """Use a new state from now on. Returns whether `step` is to be called at once: backfills differ."""
        before, self._state = self._state, state
        return state.backfills is not before.backfills

    def step(self, now_us: int) -> tuple[list[Entry], int | None]:
        """Return the entries to propose at `now_us`, and when to step again; None: only when the state has changed."""
        opened = [row for row in self._state.backfills.values() if row.open] if self._state.backfills else ()
        if not opened:
            self._proposed.clear()
            return [], None
        entries: list[Entry] = []
        times: list[int] = []
        for row in sorted(opened, key=lambda row: row.number):
            if not row.begins:
                continue
            position_us, until_us = self._proposed.get(row.number, (-1, 0))
            if position_us == row.position_us and until_us - AGAIN_US <= now_us < until_us:  # the clock may be set back
                times.append(until_us)
                continue
            self._proposed[row.number] = row.position_us, now_us + AGAIN_US
            times.append(now_us + AGAIN_US)
            entries.append(self._advance(row, now_us))
        if any(row.in_flight for row in opened):
            self._look_us = min(self._look_us, now_us + AGAIN_US)
            if now_us >= self._look_us:
                self._look_us = now_us + AGAIN_US
                over = (row for row in opened if row.in_flight and what_is_over(self._state, row))
                entries += [AdvanceBackfill(now_us, row.number, row.position_us) for row in over]
            times.append(self._look_us)
        return entries, min(times, default=None)

    def _advance(self, row: BackfillRow, now_us: int) -> Entry:
        if (why := unreadable(timing(row.spec_packed).schedule)) is not None:
            return ChangeBackfill(now_us, row.number, "paused", f"{self._me} cannot evaluate its schedule: {why}")
        time_us = next_time_us(self._state.calendars, row)
        return AdvanceBackfill(now_us, row.number, row.position_us, time_us or 0, exhausted=time_us is None)


def counted(
    schedule: Schedule | None, days: CalendarDays | None, since_us: int, from_us: int, to_us: int, most: int
) -> tuple[int, int, int]:
    """Return how many times of a schedule there are between two times, and the first and the last of them (0: none).

    No more than `most` and one are counted.
    """
    count = first_us = last_us = 0
    for last_us in islice(times_between(schedule, days, since_us, from_us, to_us), most + 1):
        first_us = first_us or last_us
        count += 1
    return count, first_us, last_us


def least_s(
    chain: Mapping[str, Collection[str]], took_s: Mapping[str, float], alone: Collection[str], count: int, parallel: int
) -> float:
    """Return how long a backfill takes at least, in seconds, if nothing else needs its places.

    `chain` has for each of its tasks those before it, and `took_s` how long a run of each takes. The tasks in `alone`
    have one run at a time.

    >>> chain, took_s = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}, {"a": 1.0, "b": 2.0, "c": 5.0, "d": 1.0}
    >>> least_s(chain, took_s, [], 10, 1), least_s(chain, took_s, [], 10, 2), least_s(chain, took_s, ["c"], 10, 5)
    (70.0, 35.0, 50.0)
    """
    ends_s: dict[str, float] = {}
    for task in TopologicalSorter(
        {name: [one for one in before if one in chain] for name, before in chain.items()}
    ).static_order():
        ends_s[task] = took_s[task] + max((ends_s[one] for one in chain[task] if one in chain), default=0.0)
    by_lanes_s = count * max(ends_s.values()) / min(parallel, count)
    return max(by_lanes_s, count * max((took_s[task] for task in alone), default=0.0))
