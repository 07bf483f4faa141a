"""Parses the `Retry-After` header of an HTTP response (RFC 9110, section 10.2.3)."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def asked_wait_s(header: str | None, now: datetime) -> float | None:
    """Return the wait that `Retry-After` asks for, in seconds from `now` (aware); 0 if its date has passed.

    The header is a number of seconds, or a date in any of the three forms of HTTP, which are all in GMT, even if a date
    names no zone. None if there is no header, or if it has neither form. The caller must limit the wait.

    >>> now = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
    >>> asked_wait_s("7", now), asked_wait_s("Mon, 23 Nov 2026 12:00:09 GMT", now), asked_wait_s("soon", now)
    (7.0, 9.0, None)
    """
    if header is None:
        return None
    asked = header.strip()
    if asked.isascii() and asked.isdecimal():
        return float(asked)
    try:
        at = parsedate_to_datetime(asked)
    except (ValueError, OverflowError):
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max((at - now).total_seconds(), 0.0)
