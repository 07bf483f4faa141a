"""How values are stored in SQLite, which has integers, floating-point numbers, text and binary, and no other types."""

import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from spark_tasks.contracts.json_values import decimal_text, json_encoder, time_text
from spark_tasks.contracts.sink import SinkUnfit

if TYPE_CHECKING:
    import pyarrow as pa

_EXACT_DIGITS: Final = 15
"""The number of digits of a decimal that a floating-point number keeps."""


def declared(kind: "pa.DataType") -> str:
    """Return the declared type of a new column for values of that Arrow type."""
    import pyarrow.types as t

    if t.is_integer(kind) or t.is_boolean(kind):
        return "INTEGER"
    if t.is_floating(kind):
        return "REAL"
    return "BLOB" if t.is_binary(kind) else "TEXT"


def encoder(kind: "pa.DataType", name: str) -> Callable[[Any], Any]:
    """Return a function that converts Python's values and None to SQLite's. It raises `SinkUnfit` for NaN in the column
    `name`.
    """
    import pyarrow.types as t

    if t.is_integer(kind) or t.is_string(kind) or t.is_binary(kind):
        return lambda value: value
    encode: Callable[[Any], Any]
    if t.is_boolean(kind):
        encode = int
    elif t.is_floating(kind):

        def encode(value: float) -> float:
            if math.isnan(value):
                raise SinkUnfit(
                    f"the column {name} has NaN, for which SQLite has no value: make it null in `transform`"
                )
            return value

    elif t.is_decimal(kind):
        encode = decimal_text
    elif t.is_timestamp(kind):
        encode = time_text
    elif t.is_date(kind):
        encode = json_encoder(kind)
    else:
        inner = json_encoder(kind)

        def encode(value: Any) -> str:
            return json.dumps(inner(value), ensure_ascii=False, separators=(",", ":"))

    return lambda value: None if value is None else encode(value)


def kept_as(declaration: str) -> str:
    """Return the type affinity of a column with that declaration: the type to which SQLite converts values where it
    can.

    >>> kept_as("BIGINT"), kept_as("varchar(3)"), kept_as("DOUBLE"), kept_as(""), kept_as("DECIMAL(10,2)")
    ('INTEGER', 'TEXT', 'REAL', 'BLOB', 'NUMERIC')
    """
    upper = declaration.upper()
    if "INT" in upper:
        return "INTEGER"
    if any(part in upper for part in ("CHAR", "CLOB", "TEXT")):
        return "TEXT"
    if "BLOB" in upper or not upper:
        return "BLOB"
    return "REAL" if any(part in upper for part in ("REAL", "FLOA", "DOUB")) else "NUMERIC"


def check_keeps(kind: "pa.DataType", name: str, declaration: str) -> None:
    """Raise `SinkUnfit` if a column with that declaration would lose digits of values of the Arrow type `kind`."""
    import pyarrow.types as t

    affinity = kept_as(declaration)
    loses = (
        (t.is_int64(kind) and affinity == "REAL")
        or (t.is_floating(kind) and affinity == "TEXT")
        or (t.is_decimal(kind) and kind.precision > _EXACT_DIGITS and affinity not in ("TEXT", "BLOB"))
    )
    if loses:
        raise SinkUnfit(
            f"the column {name} is declared {declaration}, which would lose digits of {kind}: declare it "
            f"{declared(kind)}, or make it of another type in `transform`"
        )
