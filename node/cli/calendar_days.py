"""The days of a calendar as people write them: dates, spans of dates, and iCalendar files."""

from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta
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
    if not begins <= ends < begins + timedelta(days=SPAN_DAYS_MAX):
        raise click.UsageError(f"{what} ends before it begins, or has more than {SPAN_DAYS_MAX} days")
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
        if "RRULE" in event or "RDATE" in event:
            raise click.UsageError(f"{title} recurs, which is not supported: list its days, or export each by itself")
        start = event.get("DTSTART")
        begins = None if start is None else start.dt
        if not isinstance(begins, date) or isinstance(begins, datetime):
            raise click.UsageError(f"{title} is not of whole days: make it an all-day event")
        if (end := event.get("DTEND")) is not None:
            ends = end.dt - timedelta(days=1)  # its end is the day after
        elif (duration := event.get("DURATION")) is not None:
            ends = begins + duration.dt - timedelta(days=1)
        else:
            ends = begins
        if isinstance(ends, datetime):
            raise click.UsageError(f"{title} is not of whole days: make it an all-day event")
        yield from _span(begins, max(begins, ends), title)
