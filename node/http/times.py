"""Microseconds since the epoch to RFC 3339 in UTC, and back."""

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rfc3339(at_us: int) -> str:
    """A time in UTC; the fraction only where there is one.

    >>> rfc3339(1_794_000_000_000_000), rfc3339(1_500_000)
    ('2026-11-06T21:20:00Z', '1970-01-01T00:00:01.500000Z')
    """
    return (_EPOCH + timedelta(microseconds=at_us)).isoformat().replace("+00:00", "Z")


def rfc3339_or_none(at_us: int | None) -> str | None:
    """The same, None for None."""
    return None if at_us is None else rfc3339(at_us)


def micros(at: datetime) -> int:
    """An aware time as microseconds.

    >>> micros(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    1000000
    """
    return (at - _EPOCH) // timedelta(microseconds=1)
