"""The public holidays of a region, by the package `holidays`, which is imported when they are asked for first."""

from datetime import date
from typing import Final

from tasks.definition.calendars import HOLIDAYS

YEARS_MAX: Final = 5
"""Of how many years the holidays are worked out at most."""


class UnknownRegion(ValueError):
    """The package knows no such region. The message says what it knows."""


def region_of(name: str) -> str | None:
    """Return the region whose public holidays a calendar holds, by its name; None: it is no such calendar.

    >>> region_of("holidays/DE-BY"), region_of("closing")
    ('DE-BY', None)
    """
    return name.removeprefix(HOLIDAYS) if name.startswith(HOLIDAYS) else None


def public_holidays(region: str, first: int, last: int) -> tuple[int, ...]:
    """Return the public holidays of a region from the day `first` to `last`, in order (days as `date.toordinal`).

    Raises `UnknownRegion`. The first call for a country imports its rules, which takes some hundredths of a second.

    >>> days = public_holidays("DE-BY", date(2026, 12, 20).toordinal(), date(2027, 1, 31).toordinal())
    >>> [str(date.fromordinal(day)) for day in days]
    ['2026-12-25', '2026-12-26', '2027-01-01', '2027-01-06']
    >>> public_holidays("VA-X", 0, 1)
    Traceback (most recent call last):
    tasks.definition.public_holidays.UnknownRegion: VA-X: VA has no parts
    """
    import holidays  # lazily: most processes need no holidays

    country, _, part = region.partition("-")
    known = holidays.list_supported_countries()
    if country not in known:
        raise UnknownRegion(f"{region}: {country!r} is not a country's code of two letters, such as DE or US")
    if part and part not in known[country]:
        parts = ", ".join(sorted(one for one in known[country] if one.isupper()))
        raise UnknownRegion(f"{region}: {country} has no " + (f"part {part}, but {parts}" if parts else "parts"))
    years = range(date.fromordinal(max(first, 1)).year, date.fromordinal(max(last, 1)).year + 1)[-YEARS_MAX:]
    found = holidays.country_holidays(country, subdiv=part or None, years=years)
    return tuple(sorted(day.toordinal() for day in found if first <= day.toordinal() <= last))
