"""Converts microseconds since the epoch to RFC 3339 in UTC, and datetimes to microseconds."""

from datetime import UTC, datetime, timedelta

from node.state.shape import LATEST_US

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST_US = (datetime(1, 1, 1, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


def rfc3339(at_us: int) -> str:
    """Format a time in UTC, with a fraction only if it has one. Outside of the years 1 to 9999: the nearest in them.

    A definition may name the first or last day of those years in another time zone, and must not break lists that
    contain it.

    >>> rfc3339(1_794_000_000_000_000), rfc3339(1_500_000)
    ('2026-11-06T21:20:00Z', '1970-01-01T00:00:01.500000Z')
    >>> rfc3339(LATEST_US + 1), rfc3339(-LATEST_US)
    ('9999-12-31T23:59:59.999999Z', '0001-01-01T00:00:00Z')
    """
    within_us = max(_EARLIEST_US, min(at_us, LATEST_US))
    return (EPOCH + timedelta(microseconds=within_us)).isoformat().replace("+00:00", "Z")


def rfc3339_or_none(at_us: int | None) -> str | None:
    """Format a time as `rfc3339` does; None stays None."""
    return None if at_us is None else rfc3339(at_us)


def micros(at: datetime) -> int:
    """Convert an aware datetime to microseconds since the epoch.

    >>> micros(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    1000000
    """
    return (at - EPOCH) // timedelta(microseconds=1)
