"""When a task is due next, in the time zone of its schedule, with changes of the clocks (daylight saving). Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final
from zoneinfo import ZoneInfo

from tasks.definition.calendars import CalendarDays
from tasks.definition.schedule import occurrences, unreadable
from tasks.definition.spec import Continuous, Cron, Schedule

SHOWN: Final = 5
"""The number of occurrences that are shown, beside those around the next change of the clocks."""

CHANGE_DAYS: Final = 370
"""How far ahead to look for a change of the clocks."""

_BEFORE_US: Final = (3 * 3_600_000_000, 25 * 3_600_000_000)
"""How far to look back for the last occurrence before a change: first a short time, as a schedule may be frequent."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class ComingTime:
    """An occurrence by the clocks of its time zone."""

    #: When it is due, in microseconds since the epoch.
    at_us: int
    #: The day, as text.
    day: str
    #: The time of day, as text.
    clock: str
    #: The time zone's offset from UTC, as text.
    offset: str
    #: How the clocks change between the previous occurrence and this one; None: they do not change.
    note: str | None = None
    #: Whether occurrences between the previous one and this one are left out.
    apart: bool = False


def coming_times(
    schedule: Schedule | None, days: CalendarDays | None, since_us: int, through_us: int, now_us: int
) -> list[ComingTime]:
    """Return the next occurrences, and those just before and after the next change of the clocks; [] if there are none.

    `since_us` and `through_us` are from the task's row: when its schedule began, and up to when it is decided.
    """
    if schedule is None or isinstance(schedule, Continuous) or unreadable(schedule) is not None:
        return []
    zone = ZoneInfo(schedule.timezone) if isinstance(schedule, Cron) else ZoneInfo("UTC")
    times = list(islice(occurrences(schedule, days, since_us, max(now_us, through_us)), SHOWN))
    if not times:
        return []
    change_us = next_change_us(zone, now_us)
    apart_us = None
    if change_us is not None and change_us > times[-1] and isinstance(schedule, Cron):
        around = [at_us for at_us in _around(schedule, days, since_us, change_us) if at_us > times[-1]]
        apart_us = around[0] if around else None
        times += around
    return list(_told(zone, times, now_us, apart_us))


def next_change_us(zone: ZoneInfo, from_us: int) -> int | None:
    """Return when the clocks of a time zone change next, to the second; None: not within `CHANGE_DAYS`.

    >>> next_change_us(ZoneInfo("Europe/Paris"), 1_795_000_000_000_000)
    1806195600000000
    >>> next_change_us(ZoneInfo("UTC"), 1_795_000_000_000_000) is None
    True
    """
    before_s = from_us // 1_000_000
    offset = _offset(zone, before_s)
    for _ in range(CHANGE_DAYS):
        after_s = before_s + 86_400
        if _offset(zone, after_s) != offset:
            while after_s - before_s > 1:
                middle_s = (before_s + after_s) // 2
                before_s, after_s = (middle_s, after_s) if _offset(zone, middle_s) == offset else (before_s, middle_s)
            return after_s * 1_000_000
        before_s = after_s
    return None


def _around(schedule: Schedule, days: CalendarDays | None, since_us: int, change_us: int) -> Iterator[int]:
    """Yield the last occurrence before a change, if it is within 25 hours, and the first one after the change."""
    after = next(occurrences(schedule, days, since_us, change_us - 1), None)
    for before_us in _BEFORE_US:
        last = None
        for at_us in occurrences(schedule, days, since_us, change_us - before_us):
            if at_us >= change_us:
                break
            last = at_us
        if last is not None:
            yield last
            break
    if after is not None:
        yield after


def _told(zone: ZoneInfo, times: list[int], now_us: int, apart_us: int | None) -> Iterator[ComingTime]:
    before = _local(zone, now_us)
    for at_us in times:
        local = _local(zone, at_us)
        note = None
        if local.utcoffset() != before.utcoffset():
            change_us = next_change_us(zone, round(before.timestamp() * 1e6))
            note = _note(zone, change_us or at_us, before, local)
        yield ComingTime(
            at_us=at_us,
            day=f"{local:%a} {local.day} {local:%b %Y}",
            clock=f"{local:%H:%M:%S}" if local.second else f"{local:%H:%M}",
            offset=_written(local),
            note=note,
            apart=at_us == apart_us,
        )
        before = local


def _note(zone: ZoneInfo, change_us: int, before: datetime, after: datetime) -> str:
    at = _local(zone, change_us)
    hours = (after.utcoffset() or timedelta()) - (before.utcoffset() or timedelta())
    way = "forward" if hours > timedelta() else "back"
    minutes = abs(hours) // timedelta(minutes=1)
    by = f"{minutes // 60} h" if minutes % 60 == 0 else f"{minutes} min"
    day = f"{at:%a} {at.day} {at:%b %Y}"
    return f"the clocks of {zone.key} go {way} by {by} on {day}, from {_written(before)} to {_written(after)}"


def _local(zone: ZoneInfo, at_us: int) -> datetime:
    return (_EPOCH + timedelta(microseconds=at_us)).astimezone(zone)


def _offset(zone: ZoneInfo, at_s: int) -> timedelta | None:
    return _local(zone, at_s * 1_000_000).utcoffset()


def _written(local: datetime) -> str:
    text = f"{local:%z}"
    return f"{text[:3]}:{text[3:5]}"
