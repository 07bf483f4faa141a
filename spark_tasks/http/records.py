"""Converts JSON values to columns of declared types (pure). Nothing is guessed: a value of another type is an error."""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST: Final = 10**15
"""The greatest number that is read as a time: to convert one with a large exponent would fill the memory."""

_FINER: Final = re.compile(r"[.,][0-9]{6}[0-9]*[1-9]")
"""A fraction of a second that is no whole number of microseconds."""

_NUMBER: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]{1,4})?")


class NotOfType(ValueError):
    """A value does not have the type of its column."""


def parse_json(text: bytes) -> Any:
    """Parse JSON, with fractions as decimals, so that no fraction is rounded. Raises `ValueError`."""
    try:
        return json.loads(text, parse_float=Decimal, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ArithmeticError:
        raise ValueError("it has a number with too large an exponent") from None


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _string(value: Any) -> Any:
    return value if isinstance(value, str) and _is_text(value) else _wrong(value)


def _is_text(value: str) -> bool:
    """Whether a string has no lone surrogate, which JSON can escape but no column can hold."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _boolean(value: Any) -> Any:
    return value if isinstance(value, bool) else _wrong(value)


def _integer(bits: int) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if isinstance(value, int) and not isinstance(value, bool) and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            return value
        return _wrong(value)

    return convert


def _double(value: Any) -> Any:
    """Convert to a double. Refuses an integer that a double cannot hold exactly, and a number other than 0 that would
    become 0.
    """
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return _wrong(value)
    try:
        number = float(value)
    except OverflowError:
        return _wrong(value)
    if not math.isfinite(number) or bool(number) != bool(value):
        return _wrong(value)
    # A program that writes a large double as an integer writes its first 17 digits and then zeros. Accept these, too.
    whole = isinstance(value, Decimal) or int(number) == value or Decimal(repr(number)) == value
    return number if whole else _wrong(value)


def _decimal(precision: int, scale: int) -> Callable[[Any], Any]:
    unit, wide = Decimal(1).scaleb(-scale), Context(prec=precision + 1)

    def convert(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
            return _wrong(value)
        if isinstance(value, str) and not _NUMBER.fullmatch(value):
            return _wrong(value)
        exact = Decimal(value)
        return exact.quantize(unit, context=wide) if _fits(exact, precision, scale) else _wrong(value)

    return convert


def _fits(exact: Decimal, precision: int, scale: int) -> bool:
    """Whether a decimal of that precision and scale can hold all digits of a number."""
    if not exact.is_finite():
        return False
    _, digits, exponent = exact.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    needed = text.rstrip("0")
    exponent += len(text) - len(needed)
    return not needed or (-exponent <= scale and len(needed) + exponent <= precision - scale)


def _date(value: Any) -> Any:
    try:
        return date.fromisoformat(value)
    except (TypeError, ValueError):
        return _wrong(value)


def _timestamp(value: Any) -> Any:
    try:
        if _FINER.search(value):
            return _wrong(value)
        moment = datetime.fromisoformat(value)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return _wrong(value)


def _epoch(unit: str) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            return _wrong(value)
        if not -_LATEST <= value <= _LATEST:
            return _wrong(value)
        microseconds = value * (1_000_000 if unit == "s" else 1000)
        if microseconds != int(microseconds):
            return _wrong(value)
        try:
            return _EPOCH + timedelta(microseconds=int(microseconds))
        except OverflowError:
            return _wrong(value)

    return convert


def _json(value: Any) -> Any:
    text = _json_text(value, ascii_only=False)
    return text if _is_text(text) else _json_text(value, ascii_only=True)


def _json_text(value: Any, *, ascii_only: bool) -> str:
    """Return a parsed value as JSON. Fractions keep their digits, which `json` itself would round."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        inner = (
            f"{json.dumps(key, ensure_ascii=ascii_only)}:{_json_text(one, ascii_only=ascii_only)}"
            for key, one in value.items()
        )
        return "{" + ",".join(inner) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_json_text(one, ascii_only=ascii_only) for one in value) + "]"
    return json.dumps(value, ensure_ascii=ascii_only)


def _wrong(value: Any) -> Any:
    raise NotOfType(json.dumps(value, default=str)[:100])


_CONVERT: Final[Mapping[str, Callable[[Any], Any]]] = {
    "string": _string,
    "boolean": _boolean,
    "int": _integer(32),
    "bigint": _integer(64),
    "double": _double,
    "date": _date,
    "timestamp": _timestamp,
    "epoch_s": _epoch("s"),
    "epoch_ms": _epoch("ms"),
    "json": _json,
}


def converter(kind: str) -> Callable[[Any], Any]:
    """Return a function that converts JSON values to a column of that type, or raises `NotOfType`. Null stays null.

    >>> converter("decimal(5,2)")(Decimal("1.50")), converter("timestamp")("2026-01-01T02:00:00+02:00").isoformat()
    (Decimal('1.50'), '2026-01-01T00:00:00+00:00')
    >>> converter("int")("7")
    Traceback (most recent call last):
    spark_tasks.http.records.NotOfType: "7"
    """
    if kind.startswith("decimal"):
        precision, _, scale = kind.removeprefix("decimal(").rstrip(")").partition(",")
        return _decimal(int(precision), int(scale))
    return _CONVERT[kind]


def arrow_schema(columns: Mapping[str, str]) -> "pa.Schema":
    """Return the Arrow schema of the columns."""
    import pyarrow as pa

    times = pa.timestamp("us", tz="UTC")
    kinds = {
        "string": pa.string(),
        "json": pa.string(),
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "double": pa.float64(),
        "date": pa.date32(),
        "timestamp": times,
        "epoch_s": times,
        "epoch_ms": times,
    }

    def kind_of(kind: str) -> "pa.DataType":
        if kind in kinds:
            return kinds[kind]
        precision, _, scale = kind.removeprefix("decimal(").rstrip(")").partition(",")
        return pa.decimal128(int(precision), int(scale))

    return pa.schema([(name, kind_of(kind)) for name, kind in columns.items()])


class RecordRows:
    """Converts records to rows: each is a tuple of values in the order of `columns`."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        self.columns = columns
        self._converters = [(name, converter(kind)) for name, kind in columns.items()]

    def row(self, record: Any, where: str) -> tuple[Any, ...]:
        """Return the values of a record. Raises `NotOfType`, whose message begins with `where`."""
        if not isinstance(record, dict):
            raise NotOfType(f"{where}: it is no object: {json.dumps(record, default=str)[:100]}")
        values = []
        for name, convert in self._converters:
            value = record.get(name)
            try:
                values.append(None if value is None else convert(value))
            except NotOfType as error:
                raise NotOfType(f"{where}: {name} is no {self.columns[name]}: {error}") from None
        return tuple(values)


def within(body: Any, path: str | None) -> Any:
    """Return the value at a dotted path in a body; None if there is no such value.

    >>> within({"data": {"items": [1]}}, "data.items"), within({}, "a.b"), within([2], None)
    ([1], None, [2])
    """
    for name in path.split(".") if path is not None else ():
        body = body.get(name) if isinstance(body, dict) else None
    return body


def table_of(rows: Sequence[tuple[Any, ...]], schema: "pa.Schema") -> "pa.Table":
    """Return the rows as an Arrow table."""
    import pyarrow as pa

    columns = zip(*rows, strict=True) if rows else ([] for _ in schema)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
