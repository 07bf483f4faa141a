"""What was due in a while, and how long it took until each began, or how long it has not begun."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from testkit.each_once import due_times

Occurrence = tuple[str, datetime]
"""A task and a due time."""


@dataclass(frozen=True)
class Starts:
    """`delays_ms` of all that was due; of what had not begun, until it was looked for. `begun`: the runs that had."""

    delays_ms: Mapping[Occurrence, float]
    begun: Mapping[Occurrence, Mapping[str, Any]]

    @property
    def not_begun(self) -> list[Occurrence]:
        """What was due and had not begun, in order."""
        return sorted(self.delays_ms.keys() - self.begun.keys())


def starts(
    registered: Mapping[str, datetime],
    every_s: float,
    runs: Iterable[Mapping[str, Any]],
    span: tuple[datetime, datetime],
    looked: datetime,
) -> Starts:
    """Of tasks that are due every so many seconds since they were `registered`, in the `span`, its end included.

    `runs` as the API told them at `looked`, in whatever state: only what says when it began has begun.
    """
    since, until = span
    due = {(task, at) for task, from_ in registered.items() for at in due_times(from_, every_s, until) if at > since}
    begun = {
        occurrence: run
        for run in runs
        if run["started_at"] and (occurrence := (run["task"], datetime.fromisoformat(run["fire_at"]))) in due
    }
    return Starts({one: _delay(one, begun.get(one), looked) / timedelta(milliseconds=1) for one in due}, begun)


def _delay(occurrence: Occurrence, run: Mapping[str, Any] | None, looked: datetime) -> timedelta:
    return (looked if run is None else datetime.fromisoformat(run["started_at"])) - occurrence[1]
