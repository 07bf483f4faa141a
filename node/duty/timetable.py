"""Finds when tasks are due within a span of time, and how long their last runs took. Pure.

The times come from the schedule without policies, so they include an occurrence that will be skipped because of a long
run. The times of an interval are a `range`, however many they are. The times of a cron line are computed once for all
tasks that have this line.
"""

from collections.abc import Sequence
from itertools import islice, takewhile
from typing import Final, NamedTuple

from node.duty.held_times import held_count, holding_within
from node.state.blackout import NO_BLACKOUTS, Blackouts
from node.state.calendar import Calendars, days_of
from node.state.value import State, TaskRow
from tasks.definition.calendars import CalendarDays
from tasks.definition.schedule import occurrences
from tasks.definition.spec import Cron, Every, TaskTiming

LINE_TIMES_MAX: Final = 1500
"""The most times of one cron line that are computed: more than a line of five fields has in a day."""

TIMES_MAX: Final = 40_000
"""The most times of all cron lines that are computed, in half a second. For further lines, only the first time is."""


class TimeSpan(NamedTuple):
    """The times later than `from_us`, up to `until_us`."""

    from_us: int
    until_us: int


class UpcomingTask(NamedTuple):
    """A task that is due within a span."""

    #: The name of the task.
    task: str
    #: When it is due, in microseconds since the epoch; for a continuous task, only the beginning of the span.
    times: Sequence[int]
    #: How long its last run took, in microseconds; None: not known.
    took_us: int | None = None
    #: Whether it runs all the time.
    continuous: bool = False
    #: Whether the task is due more often than `times` shows.
    cut: bool = False
    #: How many of `times` are in a blackout, and wait for its end or are missed then (`node.duty.held_times`).
    held: int = 0


def timetable(state: State, span: TimeSpan) -> list[UpcomingTask]:
    """List the tasks of `state` that are due within `span`. Tasks that are overdue at its beginning are left out."""
    lines = CronTimes(span, state.calendars, state.blackouts)
    return [found for task, row in state.tasks.items() if (found := upcoming(task, row, lines)) is not None]


def upcoming(
    task: str, row: TaskRow, lines: "CronTimes", timing: TaskTiming | None = None, first_us: int | None = None
) -> UpcomingTask | None:
    """Return when a task is due within the span of `lines`; None if it is not due.

    `timing` is `row.timing`, and `first_us` the first time within the span; give them if they are known already.
    """
    timing, span = timing or row.timing, lines.span
    if row.paused or not timing.enabled or timing.schedule is None:
        return None
    took_us = row.last.took_us if row.last is not None else None
    if timing.continuous:
        return UpcomingTask(task, (span.from_us,), None, continuous=True)
    after_us = max(span.from_us, row.through_us, row.since_us)
    days = days_of(lines.calendars, timing)
    match timing.schedule:
        case Every(every_s=every_s):
            if first_us is None:
                first_us = next(occurrences(timing.schedule, days, row.since_us, after_us))
            times: Sequence[int] = range(first_us, span.until_us + 1, max(1, round(every_s * 1_000_000)))
            cut = False
        case Cron() as cron:
            times, cut = lines.after(cron, days, after_us)
        case _:
            times = tuple(
                at_us for at_us in occurrences(timing.schedule, days, row.since_us, after_us) if _within(at_us, span)
            )
            cut = False
    return (
        UpcomingTask(task, times, took_us, cut=cut, held=held_count(lines.holding, row.spec_packed, times))
        if times
        else None
    )


def _within(at_us: int, span: TimeSpan) -> bool:
    return at_us <= span.until_us


class CronTimes:
    """The times of each cron line within a span, computed once for all tasks with it and with the same calendars.

    `holding` are the blackouts within the span.
    """

    def __init__(self, span: TimeSpan, calendars: Calendars, blackouts: Blackouts = NO_BLACKOUTS) -> None:
        self.span, self.calendars = span, calendars
        self.holding = holding_within(blackouts, span.from_us, span.until_us)
        self._known: dict[tuple[str, str, CalendarDays | None, int], tuple[tuple[int, ...], bool]] = {}
        self._left = TIMES_MAX

    def after(self, cron: Cron, days: CalendarDays | None, after_us: int) -> tuple[tuple[int, ...], bool]:
        """Return the computed times later than `after_us`, and whether there are more in the span."""
        key = (cron.cron, cron.timezone, days, after_us)
        if key not in self._known:
            most = max(1, min(LINE_TIMES_MAX, self._left))
            due = takewhile(lambda at_us: _within(at_us, self.span), occurrences(cron, days, 0, after_us))
            found = tuple(islice(due, most + 1))
            self._left -= len(found)
            self._known[key] = (found[:most], len(found) > most)
        return self._known[key]
