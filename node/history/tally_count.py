"""Counts finished runs by task and state, one after the other. Pure."""

from collections import Counter

from node.duty.digests import RunTally
from node.state.codec import glance
from node.state.value import Series
from tasks.definition.run import RunState


class TallyCount:
    """The runs counted so far, of those that ended since `since_us`, in microseconds since the epoch."""

    def __init__(self, since_us: int) -> None:
        self._since_us = since_us
        self._ends: Counter[tuple[str, RunState]] = Counter()
        self._backfilled = 0

    def add(self, task: str, state: RunState, packed: bytes) -> None:
        """Count a run, packed as history stores it. Actions are none. Raises `DamagedSnapshot`."""
        found = glance(packed)
        if not found.action:
            self._ends[task, state] += 1 if found.series is None else count_since(found.series, self._since_us)
            self._backfilled += found.backfill > 0

    def tally(self, through: int, *, complete: bool) -> RunTally:
        """Return the counts; of entries up to `through`."""
        return RunTally(through, dict(self._ends), self._backfilled, complete)


def count_since(series: Series, since_us: int) -> int:
    """Return how many occurrences of a series came since a time.

    A series that began before it is one record still, which has the whole count: they are taken to be evenly spread.

    >>> series = Series("missed", 100, fire_at_us=100, last_fire_at_us=500, count=5)
    >>> count_since(series, 50), count_since(series, 300), count_since(series, 499)
    (5, 2, 1)
    """
    span_us = series.last_fire_at_us - series.fire_at_us
    if series.created_at_us >= since_us or span_us <= 0:
        return series.count
    share = (series.last_fire_at_us - since_us) / span_us
    return max(1, min(series.count, round((series.count - 1) * share)))
