"""Values of JSON as columns of declared types. Without Spark."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from spark_tasks.http.records import NotOfType, RecordRows, converter, parse_json

UTC = dt.UTC


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", '"a"', "a"),
        ("boolean", "true", True),
        ("int", "-2147483648", -(2**31)),
        ("bigint", "9223372036854775807", 2**63 - 1),
        ("double", "0.1", 0.1),
        ("double", "7", 7.0),
        ("decimal(4,2)", "12.30", Decimal("12.30")),
        ("decimal(4,2)", '"12.300"', Decimal("12.30")),
        ("decimal(4,2)", "1E1", Decimal("10.00")),
        ("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
        ("date", '"2026-01-31"', dt.date(2026, 1, 31)),
        ("timestamp", '"2026-01-31T10:00:00.5Z"', dt.datetime(2026, 1, 31, 10, 0, 0, 500_000, UTC)),
        ("timestamp", '"2026-01-31 10:00:00"', dt.datetime(2026, 1, 31, 10, tzinfo=UTC)),
        ("epoch_s", "1.5", dt.datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)),
        ("epoch_ms", "-1", dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)),
        ("json", r'["\ud800", "ß"]', r'["\ud800","\u00df"]'),
        ("json", '{"a": [1, 0.5, null, "ß"]}', '{"a":[1,0.5,null,"ß"]}'),
        ("json", "[340282366920938463464.125, 1e400]", "[340282366920938463464.125,1E+400]"),
        ("double", "9007199254740992", 2.0**53),
        ("double", "1.7976931348623157e308", 1.7976931348623157e308),
        ("double", "123456789012345680000", 123456789012345680000.0),
        ("timestamp", '"2026-01-31T10:00:00.123456000Z"', dt.datetime(2026, 1, 31, 10, 0, 0, 123_456, UTC)),
    ],
)
def test_a_value_of_its_type_is_taken(kind: str, text: str, value: Any) -> None:
    assert converter(kind)(parse_json(text.encode())) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("string", "1"),
        ("boolean", "1"),
        ("int", '"1"'),
        ("int", "1.0"),
        ("int", "true"),
        ("int", "2147483648"),
        ("double", '"1"'),
        ("decimal(4,2)", "123.0"),
        ("decimal(4,2)", "1.234"),
        ("decimal(4,2)", '"NaN"'),
        ("decimal(4,2)", '"x"'),
        ("decimal(4,2)", "1E999999"),
        ("date", '"31.01.2026"'),
        ("date", "20260131"),
        ("timestamp", '"yesterday"'),
        ("epoch_s", "1e30"),
        ("epoch_s", "1e999999999"),
        ("double", "1e999"),
        ("double", "1e-999"),
        ("double", "9007199254740993"),
        ("timestamp", '"2026-01-31T10:00:00.1234567Z"'),
        ("epoch_s", "1.1234567"),
        ("epoch_ms", "0.0001"),
        ("string", r'"\ud800"'),
        ("decimal(4,2)", '"1_0"'),
        ("epoch_s", '"5"'),
    ],
)
def test_a_value_of_another_type_is_refused(kind: str, text: str) -> None:
    with pytest.raises(NotOfType):
        converter(kind)(parse_json(text.encode()))


def test_a_row_has_the_named_fields_and_null_for_those_that_are_missing() -> None:
    rows = RecordRows({"id": "int", "name": "string"})
    assert rows.row({"id": 1, "more": 2}, "page 1, record 1") == (1, None)
    with pytest.raises(NotOfType, match='page 1, record 2: id is no int: "x"'):
        rows.row({"id": "x"}, "page 1, record 2")
