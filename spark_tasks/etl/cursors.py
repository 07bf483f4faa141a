"""The cursors of ETL tasks in the form in which users read and write them."""

import json
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from spark_tasks.contracts.source import Cursor
from spark_tasks.etl.errors import CursorUnfit
from spark_tasks.etl.params import EtlParams
from spark_tasks.sqlite.params import SqliteRows


class ShowArgs(BaseModel):
    """`show` has no arguments."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ResetArgs(BaseModel):
    """The cursor from which the next run begins."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    to: str | None = Field(
        default=None,
        max_length=10_000,
        description="What the cursor is set to: a value of its column, a transaction for `xmin`, a version for "
        "`versions`, a time such as 2026-01-05T09:00:00+00:00 for `files`, or what `rota etl show` prints; null: "
        "the source is read from its beginning",
    )


def cursor_at(params: EtlParams, to: str | None) -> Cursor | None:
    """Parse the cursor in the text `to`. Returns None, the source's beginning, if `to` is None. Raises
    `CursorUnfit`.
    """
    how = params.incremental
    if to is None:
        return None
    if how is None:
        raise CursorUnfit("this task reads its source whole, so that it has no cursor: give it `incremental`")
    if to.lstrip().startswith("{"):
        return _parsed(to)
    if how.xmin:
        if not to.isdecimal():
            raise CursorUnfit(f"{to!r} is no transaction: the cursor of `xmin` is a number")
        return {"xmin": True, "value": int(to)}
    if how.versions:
        if not to.isdecimal():
            raise CursorUnfit(f"{to!r} is no version: the cursor of `versions` is a number")
        return {"versions": True, "value": int(to)}
    if how.files:
        return {"files": True, "value": _since_1970_s(to)}
    return {"cursor": how.cursor, "value": _number(to) if isinstance(params.source, SqliteRows) else to}


def _parsed(text: str) -> Cursor:
    try:
        given = json.loads(text)
    except ValueError as error:
        raise CursorUnfit(f"the cursor is no JSON: {error}") from None
    if not isinstance(given, dict) or "value" not in given:
        raise CursorUnfit("a cursor in JSON is an object with a `value`")
    return given


def _since_1970_s(text: str) -> float:
    """Return the time in `text`, which must have an offset, in seconds since 1970. Raises `CursorUnfit`."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise CursorUnfit(
            f"{text!r} is no time with an offset, such as 2026-01-05T09:00:00+00:00: the cursor of `files` must be one"
        )
    return at.timestamp()


def _number(text: str) -> Any:
    """Return the text as a number if it is one, because SQLite compares values by their types.

    >>> _number("7"), _number("2026-11-21")
    (7, '2026-11-21')
    """
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def lag_s(cursor: Cursor | None, now: datetime) -> float | None:
    """Return how many seconds a cursor is behind `now`; None if the cursor is not a time with an offset.

    >>> lag_s({"cursor": "at", "value": "2026-11-21 10:00:00+00"}, datetime(2026, 11, 21, 10, 1, tzinfo=UTC))
    60.0
    >>> lag_s({"cursor": "id", "value": "17"}, datetime(2026, 11, 21, tzinfo=UTC)) is None
    True
    """
    if cursor is None or not isinstance(value := cursor.get("value"), str):
        return None
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return None
    return None if at.tzinfo is None else round((now - at).total_seconds(), 3)


def lag_text(cursor: Cursor | None, at: datetime) -> str:
    """How far a cursor is behind, as a clause for the log; "" if the lag is not known.

    >>> lag_text({"cursor": "at", "value": "2026-11-21 10:00:00+00"}, datetime(2026, 11, 21, 10, 1, tzinfo=UTC))
    '; the cursor is 60 s behind'
    """
    behind_s = lag_s(cursor, at)
    return "" if behind_s is None else f"; the cursor is {behind_s:.0f} s behind"


def now() -> datetime:
    """Return the present time."""
    return datetime.now(UTC)
