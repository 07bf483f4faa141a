"""Values of Arrow as JSON: numbers as numbers, and types that JSON lacks as text in one stated form.

A time is RFC 3339 with six decimals: with `Z` if it has a time zone, without `Z` if it has none. A decimal is text with
all its digits, binary is base64, and `NaN`, `Infinity` and `-Infinity` are text.
"""

import base64
import math
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

Encoder = Callable[[Any], Any]
"""A function that converts a value that is not null to JSON."""


def json_encoder(kind: "pa.DataType") -> Encoder:
    """Return a function that converts Python values of the Arrow type `kind` to JSON. Nulls in lists and structs stay
    null.
    """
    import pyarrow.types as t

    if t.is_decimal(kind):
        return decimal_text
    if t.is_timestamp(kind):
        return time_text
    if t.is_date(kind):
        return lambda value: value.isoformat()
    if t.is_binary(kind) or t.is_large_binary(kind):
        return lambda value: base64.b64encode(value).decode()
    if t.is_floating(kind):
        return _number
    if t.is_list(kind) or t.is_large_list(kind):
        inner = _or_null(json_encoder(kind.value_type))
        return lambda values: [inner(value) for value in values]
    if t.is_map(kind):
        key, item = json_encoder(kind.key_type), _or_null(json_encoder(kind.item_type))
        return lambda pairs: {str(key(name)): item(value) for name, value in pairs}
    if t.is_struct(kind):
        fields = {field.name: _or_null(json_encoder(field.type)) for field in kind}
        return lambda value: {name: encode(value[name]) for name, encode in fields.items()}
    return lambda value: value


def _or_null(encode: Encoder) -> Encoder:
    return lambda value: None if value is None else encode(value)


def decimal_text(value: Decimal) -> str:
    """Return all digits of a decimal, without an exponent.

    >>> decimal_text(Decimal("0.00000010"))
    '0.00000010'
    """
    return format(value, "f")


def time_text(value: datetime) -> str:
    """Return a time as text. The texts sort in the same order as the times.

    >>> time_text(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)), time_text(datetime(999, 1, 2))
    ('2026-01-02T03:04:05.000000Z', '0999-01-02T00:00:00.000000')
    """
    if value.tzinfo is None:
        return value.isoformat(timespec="microseconds")
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
