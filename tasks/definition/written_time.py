"""Times as people write them in tasks and requests: RFC 3339, with an offset."""

import re
from typing import Annotated, Any, Final

from pydantic import AwareDatetime, BeforeValidator

_WRITTEN: Final = re.compile(r"\d{4}-\d{2}-\d{2}(?!\d)")


def _is_written(value: Any) -> Any:
    """Refuse a number, and a text without dashes: pydantic takes `20260101` for seconds since 1970.

    >>> _is_written(20260101)
    Traceback (most recent call last):
    ValueError: must be a time with an offset, such as 2026-11-21T03:00:00Z
    """
    if isinstance(value, int | float) or (isinstance(value, str) and not _WRITTEN.match(value)):
        raise ValueError("must be a time with an offset, such as 2026-11-21T03:00:00Z")
    return value


WrittenTime = Annotated[AwareDatetime, BeforeValidator(_is_written)]
"""A time in a definition, a body or a query."""
