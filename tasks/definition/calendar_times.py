"""The due times of a schedule on the days of its calendars, in microseconds since the epoch."""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final, NamedTuple

from tasks.definition.calendars import CalendarDays

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_MINUTE: Final = timedelta(minutes=1)

Times = Callable[[int], Iterator[int]]
"""Gives the due times of a schedule without calendars that are later than a time, in order."""


def day_of(at_us: int, zone: tzinfo) -> int:
    """Return the day of a time in a time zone.

    >>> date.fromordinal(day_of(1_767_221_999_000_000, UTC)), date.fromordinal(day_of(1_767_225_600_000_000, UTC))
    (datetime.date(2025, 12, 31), datetime.date(2026, 1, 1))
    """
    return _local(at_us, zone).toordinal()


def on_days(times: Times, zone: tzinfo, days: CalendarDays, after_us: int) -> Iterator[int]:
    """Yield the due times later than `after_us`, in order, by the calendars. They end where a calendar's days do.

    What is moved to a day is put in order among what is due on it: what falls on one day follows in one go, since the
    order of days does not change.
    """
    held: set[int] = set()
    home: int | None = None
    day = day_of(after_us, zone)
    first = days.first_from(day)
    due = times(after_us if first == day else min(after_us, _midnight_us(first, zone) - 1))
    while (due_us := next(due, None)) is not None:
        local = _local(due_us, zone)
        day = local.toordinal()
        to = days.home(day) if days.knows(day) else None
        if to is None:
            again = days.next_home(day + 1) if days.knows(day) else None
            if again is None:
                break
            due = times(_midnight_us(again, zone) - 1)
            continue
        if to != home:
            yield from sorted(held)
            held, home = set(), to
        if to != day:
            due_us = _moved_us(local, to, zone)
        if due_us <= after_us:
            continue
        if to == day and not days.takes_in(day):
            yield due_us
        else:
            held.add(due_us)
    yield from sorted(held)


def _local(at_us: int, zone: tzinfo) -> datetime:
    return (_EPOCH + timedelta(microseconds=at_us)).astimezone(zone)


def _us(moment: datetime) -> int:
    return (moment.astimezone(UTC) - _EPOCH) // _MICROSECOND


def _midnight_us(day: int, zone: tzinfo) -> int:
    return _us(datetime.combine(date.fromordinal(day), time(), zone))


def _moved_us(local: datetime, day: int, zone: tzinfo) -> int:
    """Return the same time of another day; if the clocks skip it, the first minute after the change, as cron does."""
    moved = datetime.combine(date.fromordinal(day), local.time(), zone)
    if moved.astimezone(UTC).astimezone(zone).time() == moved.time():
        return _us(moved)
    after = moved.astimezone(UTC).replace(second=0, microsecond=0)
    offset = after.astimezone(zone).utcoffset()
    while (after - _MINUTE).astimezone(zone).utcoffset() == offset:
        after -= _MINUTE
    return _us(after)


class LeftOut(NamedTuple):
    """A day on which a schedule without calendars would be due, and by its calendars is not."""

    #: The first time on that day, in microseconds since the epoch.
    at_us: int
    #: The day.
    day: int
    #: The calendars because of which it is not due.
    calendars: tuple[str, ...]
    #: The day to which it is moved; None: it falls out.
    home: int | None

    def __str__(self) -> str:
        """Say it for people.

        >>> print(LeftOut(0, 739975, ("holidays/DE-BY",), None))
        Fri 25 Dec 2026 falls out (holidays/DE-BY)
        >>> print(LeftOut(0, 739975, ("closing",), 739978))
        Fri 25 Dec 2026 is moved to Mon 28 Dec 2026 (closing)
        """
        becomes = "falls out" if self.home is None else f"is moved to {day_words(self.home)}"
        return f"{day_words(self.day)} {becomes} ({', '.join(self.calendars)})"


def day_words(day: int) -> str:
    """Write a day for people.

    >>> day_words(739975)
    'Fri 25 Dec 2026'
    """
    one = date.fromordinal(day)
    return f"{one:%a} {one.day} {one:%b %Y}"


def left_out(times: Times, zone: tzinfo, days: CalendarDays, after_us: int, until_us: int) -> Iterator[LeftOut]:
    """Yield the days with due times later than `after_us`, up to `until_us`, that the calendars leave out."""
    while (due_us := next(times(after_us), None)) is not None and due_us <= until_us:
        day = day_of(due_us, zone)
        if not days.knows(day):
            return
        if not days.allows(day):
            yield LeftOut(due_us, day, days.against(day), days.home(day))
        after_us = _midnight_us(day + 1, zone) - 1
