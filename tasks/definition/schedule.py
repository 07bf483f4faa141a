"""The due times of a schedule, in microseconds since the Unix epoch. `tasks.definition.cron` reads cron lines.

Most functions ask for the days of the task's calendars, so that no caller forgets them; None: it names none.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, tzinfo
from functools import lru_cache, partial
from typing import Final

from tasks.definition.calendar_times import LeftOut, left_out, on_days
from tasks.definition.calendars import CalendarDays
from tasks.definition.cron import CronLine, at_us_of, cron_line, cron_times, known_zone, unreadable_line
from tasks.definition.spec import At, Continuous, Cron, Every, Schedule, TaskTiming

_SECOND_US: Final = 1_000_000
_WALKED_MAX: Final = 8


def occurrences(schedule: Schedule | None, days: CalendarDays | None, since_us: int, after_us: int) -> Iterator[int]:
    """Yield the due times of `schedule` later than both `since_us` and `after_us`, in order; often without end.

    `since_us` is the time from which the schedule counts (the registration, the last change or the resumption); an
    `at` that is not later is never due. A continuous schedule has one occurrence, `since_us` itself, which counts as
    handled if `after_us` is not before it; `since_us` is moved when a run has ended. By calendars, an occurrence counts
    by the time to which it is moved. Where they are not known any more, the occurrences end.
    """
    start_us = max(since_us, after_us)
    if days is not None and isinstance(schedule, Cron | At):
        yield from on_days(partial(occurrences, schedule, None, 0), zone_of(schedule), days, start_us)
        return
    match schedule:
        case None:
            return
        case Cron(cron=line, timezone=timezone):
            yield from cron_times(line, timezone, start_us)
        case Every(every_s=every_s):
            every_us = max(1, round(every_s * 1_000_000))
            due_us = since_us + ((start_us - since_us) // every_us + 1) * every_us
            while True:
                yield due_us
                due_us += every_us
        case At(at=at):
            at_us = at_us_of(at)
            if at_us > start_us:
                yield at_us
        case Continuous():
            if since_us > after_us:
                yield since_us


def next_due_us(schedule: Schedule | None, days: CalendarDays | None, since_us: int, after_us: int) -> int | None:
    """Return the first due time from `occurrences`, or None. Cheap for many tasks with one cron line.

    >>> next_due_us(Every(every_s=300), None, since_us=7, after_us=300_000_007)
    600000007
    """
    match schedule:
        case Cron(cron=line, timezone=timezone):
            known = cron_line(line, timezone) if days is None else _line_on_days(line, timezone, days)
            return known.next_us(max(since_us, after_us))
        case _:
            return next(occurrences(schedule, days, since_us, after_us), None)


@lru_cache(maxsize=1024)
def _line_on_days(line: str, timezone: str, days: CalendarDays) -> CronLine:
    schedule = Cron.model_construct(cron=line, timezone=timezone)
    return CronLine(partial(occurrences, schedule, days, 0))


def zone_of(schedule: Schedule | None) -> tzinfo:
    """Return the time zone whose days count for a schedule. UTC where this machine does not know it."""
    match schedule:
        case Cron(timezone=timezone):
            return known_zone(timezone) or UTC
        case At(at=at):
            return at.tzinfo or UTC
    return UTC


def latest_due_us(schedule: Schedule | None, days: CalendarDays | None, since_us: int, until_us: int) -> int | None:
    """Return the last of `occurrences` up to `until_us`, or None. A continuous schedule has none.

    >>> latest_due_us(Cron(cron="0 3 * * *"), None, since_us=0, until_us=97_300_000_000)
    97200000000
    >>> every = Every(every_s=300)
    >>> latest_due_us(every, None, since_us=7, until_us=899_000_000), latest_due_us(every, None, 7, 9)
    (600000007, None)
    """
    if days is not None or isinstance(schedule, Cron):
        return _latest_us(partial(next_due_us, schedule, days, 0), since_us, until_us)
    match schedule:
        case Every(every_s=every_s):
            every_us = max(1, round(every_s * 1_000_000))
            number = (until_us - since_us) // every_us
            return since_us + number * every_us if number > 0 else None
        case At(at=at):
            return at_us if since_us < (at_us := at_us_of(at)) <= until_us else None
    return None


def reckoned_from_us(schedule: Schedule | None, since_us: int) -> int:
    """Return the time from which a schedule that counts from `since_us` counts if it goes as far back as it can.

    >>> reckoned_from_us(Every(every_s=300), since_us=900_000_007), reckoned_from_us(Cron(cron="0 3 * * *"), 7)
    (7, 0)
    """
    if isinstance(schedule, Every):
        return since_us % max(1, round(schedule.every_s * 1_000_000))
    return 0


def _latest_us(next_us: Callable[[int], int | None], since_us: int, until_us: int) -> int | None:
    """Search backwards in growing steps for a time after which something is due, and then halve what is left."""
    step_us, none_after_us = 60 * _SECOND_US, until_us
    while True:
        from_us = max(since_us, until_us - step_us)
        found_us = next_us(from_us)
        if found_us is not None and found_us <= until_us:
            break
        if from_us == since_us:
            return None
        none_after_us, step_us = from_us, step_us * 4
    # Mostly a few times are left: to walk over them costs less than to halve.
    for _ in range(_WALKED_MAX):
        later_us = next_us(found_us)
        if later_us is None or later_us > until_us:
            return found_us
        from_us = found_us = later_us
    # Times are whole seconds, so what is left holds one of them.
    while none_after_us - from_us > _SECOND_US:
        middle_us = (from_us + none_after_us) // 2
        later_us = next_us(middle_us)
        if later_us is not None and later_us <= until_us:
            from_us, found_us = middle_us, later_us
        else:
            none_after_us = middle_us
    return found_us


def left_out_days(
    schedule: Schedule | None, days: CalendarDays | None, after_us: int, until_us: int
) -> Iterator[LeftOut]:
    """Yield the days later than `after_us`, up to `until_us`, that fall out or are moved because of the calendars."""
    if days is not None and isinstance(schedule, Cron | At):
        yield from left_out(partial(occurrences, schedule, None, 0), zone_of(schedule), days, after_us, until_us)


def may_be_due(timing: TaskTiming, since_us: int, due_us: int) -> bool:
    """Whether `due_us` may be one of `occurrences`. The answer depends on no time zones and no calendars.

    >>> from tasks.definition.spec import Spec, timing
    >>> every = timing(Spec(name="a", kind="command", schedule={"every_s": 300}).pack())
    >>> may_be_due(every, since_us=7, due_us=600_000_007), may_be_due(every, 7, 600_000_000)
    (True, False)
    """
    if isinstance(timing.schedule, Cron):
        return due_us > since_us and due_us % 1_000_000 == 0
    if timing.calendar is not None:
        return due_us > since_us  # it may have been moved
    return next(occurrences(timing.schedule, None, since_us, due_us - 1), None) == due_us


def unreadable(schedule: Schedule | None) -> str | None:
    """Say why this machine cannot compute the due times of an accepted schedule; None if it can.

    Such a schedule has no due times here. Time zones depend on a machine's version of tzdata, and another member with
    another version may have accepted the task.

    >>> unreadable(Cron.model_construct(cron="0 3 * * *", timezone="Mars/Olympus"))
    "'Mars/Olympus' is not a time zone of the IANA database, such as Europe/Paris or UTC"
    """
    match schedule:
        case Cron(cron=line, timezone=timezone):
            return unreadable_line(line, timezone)
    return None
