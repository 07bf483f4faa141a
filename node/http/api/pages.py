"""Pages of lists: cursors, which are opaque to clients, and a function that cuts a list to a page."""

import base64
import json
from collections.abc import Sequence
from typing import TypeVar

from node.history.file import RunPosition
from node.http.door.problems import Problem, invalid_field

T = TypeVar("T")


def cursor_of(*key: str | int) -> str:
    """Return the cursor of the last item of a page.

    >>> key_of(cursor_of("a", 1), str, int)
    ['a', 1]
    """
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


def key_of(cursor: str, *types: type) -> list[str | int]:
    """Return the key in a cursor, with parts of these types. Raises `Problem` invalid if the cursor has no such key."""
    try:
        key = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if not isinstance(key, list) or [type(part) for part in key] != list(types):
            raise _bad()
        for part in key:
            str(part).encode()  # JSON may hold half of a surrogate pair, which is not valid text
    except (ValueError, RecursionError):
        raise _bad() from None
    return key


def name_after(cursor: str | None) -> str | None:
    """Return the name after which a page begins. Raises `Problem`."""
    return None if cursor is None else str(key_of(cursor, str)[0])


def run_before(cursor: str | None) -> RunPosition | None:
    """Return the position of the run before which a page begins. Raises `Problem`."""
    if cursor is None:
        return None
    at_us, run_id = key_of(cursor, int, str)
    if not -(2**63) <= int(at_us) < 2**63:
        raise _bad()
    return RunPosition(int(at_us), str(run_id))


def cut(items: Sequence[T], limit: int) -> tuple[Sequence[T], bool]:
    """Return the first `limit` items, and whether there are more."""
    return items[:limit], len(items) > limit


def _bad() -> Problem:
    return invalid_field("after", "is not a cursor of this list: send `next` of the page before", "the query")
