"""A Parquet file's statistics, in Delta's form, with which readers skip a file that cannot contain the values they look
for.

They come from the file's own footer, so that no row is read again. A bound that cannot be given exactly is widened, or
left out. Then readers skip fewer files, but never one that they need.
"""

import json
import math
from collections.abc import Collection, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import FileMetaData

COLUMNS_MAX: Final = 32
"""The number of columns, from the first, that have statistics, as in other Delta writers."""

TEXT_MAX: Final = 32
"""The number of characters to which a text in a bound is truncated."""

_LAST_CHARACTER: Final = "\U0010ffff"
_NONE: Final = object()

FieldPath = tuple[str, ...]
"""The names of a field and of the structs that it is in, outermost first."""


def statistics(footer: "FileMetaData", with_nan: Collection[FieldPath] = ()) -> str:
    """Return Delta's statistics of the file with that footer, as JSON.

    `with_nan` are the columns that contain NaN, which a footer does not show. They have no bounds, because for Spark
    NaN is greater than all numbers.
    """
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for index, path in list(enumerate(_leaves(footer.schema.to_arrow_schema())))[:COLUMNS_MAX]:
        if path is None:
            continue
        found = [group.column(index).statistics for group in groups]
        if not found or any(one is None for one in found):
            continue
        if all(one.has_null_count for one in found):
            _put(nulls, path, sum(one.null_count for one in found))
        if path in with_nan:
            continue
        low, high = bounds([one for one in found if one.num_values > 0])
        if low is not _NONE:
            _put(lowest, path, low)
        if high is not _NONE:
            _put(highest, path, high)
    return json.dumps({"numRecords": footer.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls})


def _leaves(schema: "pa.Schema") -> Iterator[FieldPath | None]:
    """Yield the path of each of Parquet's columns, in their order; None for a column within a list or a map."""
    for name in schema.names:
        yield from _leaves_of(schema.field(name).type, (name,))


def _leaves_of(kind: "pa.DataType", path: FieldPath | None) -> Iterator[FieldPath | None]:
    from pyarrow import types

    if types.is_struct(kind):
        for field in kind:
            yield from _leaves_of(field.type, None if path is None else (*path, field.name))
    elif types.is_map(kind):
        yield from _leaves_of(kind.key_type, None)
        yield from _leaves_of(kind.item_type, None)
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        yield from _leaves_of(kind.value_type, None)
    else:
        yield path


def _put(values: dict[str, Any], path: FieldPath, value: Any) -> None:
    for name in path[:-1]:
        values = values.setdefault(name, {})
    values[path[-1]] = value


def bounds(found: list[Any]) -> tuple[Any, Any]:
    """Return the least and the greatest value of a column in all row groups; `_NONE` for a value that is unknown."""
    if not found or not all(one.has_min_max for one in found):
        return _NONE, _NONE
    try:
        lows, highs = [one.min for one in found], [one.max for one in found]
        if any(value != value for value in (*lows, *highs)):  # noqa: PLR0124  NaN, as Spark's own writer notes it
            return _NONE, _NONE
        return at_most(min(lows)), above(max(highs))
    except (OverflowError, ValueError, TypeError, NotImplementedError):
        return _NONE, _NONE  # a date outside Python's range, or a type without an order here


def at_most(value: Any) -> Any:
    """Return a JSON value that is not greater than `value`; `_NONE` if JSON has no such value.

    >>> at_most("x" * 40) == "x" * 32, at_most(datetime(2026, 1, 1, 9, 0, 0, 123456, UTC))
    (True, '2026-01-01T09:00:00.123Z')
    """
    match value:
        case str():
            return value[:TEXT_MAX]
        case datetime():
            return _iso(value - timedelta(microseconds=value.microsecond % 1000))
        case _:
            return _exact(value)


def above(value: Any) -> Any:
    """Return a JSON value that is not less than `value`; `_NONE` if JSON has no such value.

    >>> above("x" * 40) > "x" * 40, above(datetime(2026, 1, 1, 9, 0, 0, 123456, UTC))
    (True, '2026-01-01T09:00:00.124Z')
    """
    match value:
        case str():
            if len(value) <= TEXT_MAX:
                return value
            return value[:TEXT_MAX] + _LAST_CHARACTER if value[TEXT_MAX] != _LAST_CHARACTER else _NONE
        case datetime():
            return _iso(value + timedelta(microseconds=-value.microsecond % 1000))
        case _:
            return _exact(value)


def _exact(value: Any) -> Any:
    match value:
        case bool():
            return _NONE
        case int():
            return value
        case float():
            return value if math.isfinite(value) else _NONE
        case Decimal():
            # Some readers read numbers in JSON as floats.
            return float(value) if Decimal(repr(float(value))) == value else _NONE
        case date():
            return value.isoformat()
    return _NONE


def _iso(value: datetime) -> str:
    zoned = value.tzinfo is not None
    text = (value.astimezone(UTC) if zoned else value).replace(tzinfo=None).isoformat(timespec="milliseconds")
    return f"{text}Z" if zoned else text
