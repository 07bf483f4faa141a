"""The days of a calendar as people write them: dates, spans of dates, and iCalendar files."""

import re
from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

import click

from node.cli.text import file_text

SPAN_DAYS_MAX: Final = 2000
"""The most days of one span, and of one event."""


def calendar_in_file(file: str, name: str, given: Any) -> tuple[str, ...]:
    """Return the days of a calendar in a file of tasks, in order, as RFC 3339 has them.

    `given` is a list of dates and spans, or `{ics: FILE}`, relative to the file. Raises `click.UsageError`.
    """
    # Imported here, because the models take as long to import as everything else that a command needs.
    from tasks.definition.calendars import CALENDAR_PATTERN, HOLIDAYS

    if name.startswith(HOLIDAYS):
        raise click.UsageError(
            f"{HOLIDAYS} is kept for public holidays, which need no calendar: give {name} another name"
        )
    if re.fullmatch(CALENDAR_PATTERN, name) is None:
        raise click.UsageError(f"{name[:140]!r} is not the name of a calendar")
    if isinstance(given, list):
        days = set(days_in(given))
    elif isinstance(given, dict) and given.keys() == {"ics"} and isinstance(given["ics"], str):
        ics = str(given["ics"] if file == "-" else Path(file).parent / given["ics"])
        days = set(days_of_events(file_text(ics, ics), ics))
    else:
        raise click.UsageError(f"the calendar {name} is a list of dates, as [2026-12-24], or {{ics: FILE}}")
    return tuple(day.isoformat() for day in sorted(days))


def days_in(texts: Iterable[Any]) -> Iterator[date]:
    """Yield the days of dates and spans of dates. Raises `click.UsageError` for what is neither.

    >>> [str(day) for day in days_in(["2026-12-24", "2026-12-30..2027-01-01"])]
    ['2026-12-24', '2026-12-30', '2026-12-31', '2027-01-01']
    """
    for text in texts:
        first, dots, last = str(text).partition("..")
        try:
            begins = date.fromisoformat(first)
            ends = date.fromisoformat(last) if dots else begins
        except ValueError:
            raise click.UsageError(
                f"{text!r} is no date, as 2026-12-24, nor a span, as 2026-12-24..2027-01-01"
            ) from None
        yield from _span(begins, ends, f"the span {text}")


def _span(begins: date, ends: date, what: str) -> Iterator[date]:
    # Imported here, as above.
    from tasks.definition.calendars import FIRST_DAY, LAST_DAY

    if not FIRST_DAY <= begins <= ends <= LAST_DAY or (ends - begins).days >= SPAN_DAYS_MAX:
        raise click.UsageError(
            f"{what} ends before it begins, has more than {SPAN_DAYS_MAX} days, or is not from 1970 to 9998"
        )
    yield from (begins + timedelta(days=number) for number in range((ends - begins).days + 1))


def days_of_events(text: str, source: str) -> Iterator[date]:
    """Yield the days of the events of an iCalendar file; `source` names it.

    Raises `click.UsageError` if it is none, and for an event that recurs or has times of day, since it is not said on
    which days that is.
    """
    import icalendar  # lazily: other commands do not need it

    try:
        events = icalendar.Calendar.from_ical(text).walk("VEVENT")
    except ValueError as error:
        raise click.UsageError(f"{source} is no iCalendar file: {error}") from None
    for event in events:
        title = f"the event {str(event.get('SUMMARY', event.get('UID', '?')))[:100]!r} of {source}"
        if event.get("STATUS") == "CANCELLED":
            continue
        if "RRULE" in event or "RDATE" in event:
            raise click.UsageError(f"{title} recurs, which is not supported: list its days, or export each by itself")
        try:
            begins, ends = _first_and_last(event)
        except (ValueError, AttributeError, TypeError, OverflowError):
            # A property that is there twice is a list, and one with a value of another type has no `dt`.
            raise click.UsageError(f"{title} is not of whole days: make it an all-day event") from None
        yield from _span(begins, ends, title)
    if not events:
        raise click.UsageError(f"{source} has no events")


def _first_and_last(event: Any) -> tuple[date, date]:
    """Return the first and the last day of an event. Raises `ValueError` if it is not of whole days, and others."""
    begins = event.get("DTSTART").dt
    if (end := event.get("DTEND")) is not None:
        ends = end.dt
    elif (duration := event.get("DURATION")) is not None:
        if duration.dt % timedelta(days=1):
            raise ValueError("it has a part of a day")
        ends = begins + duration.dt
    else:
        ends = begins + timedelta(days=1)
    if type(begins) is not date or type(ends) is not date:
        raise ValueError("it has a time of day")
    # Its end is the day after, or by some programs the day itself.
    return begins, begins if ends == begins else ends - timedelta(days=1)
