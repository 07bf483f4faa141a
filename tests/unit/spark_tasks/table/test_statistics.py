"""A file's statistics for the table's log: exact, or wider than the file, never narrower."""

import io
import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from hypothesis import given  # noqa: E402  after the check that they are there
from hypothesis import strategies as st  # noqa: E402
from pyarrow import parquet  # noqa: E402

from spark_tasks.table.parquet_writer import write_parquet  # noqa: E402
from spark_tasks.table.part import Part  # noqa: E402
from spark_tasks.table.statistics import COLUMNS_MAX, above, at_most, bounds, statistics  # noqa: E402


def _written(*groups: Any) -> Part:
    return write_parquet(io.BytesIO(), "part", groups[0], iter(groups[1:]))


def _stats(*groups: Any) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(_written(*groups).stats)
    return value


def test_bounds_and_nulls_of_all_row_groups() -> None:
    one = pa.table({"n": pa.array([5, None]), "text": ["b", "a"], "void": pa.array([None, None], pa.int64())})
    two = pa.table({"n": pa.array([-7, 2]), "text": ["z", None], "void": pa.array([None, None], pa.int64())})
    part = _written(one, two)
    assert part.rows == 4
    assert json.loads(part.stats) == {
        "numRecords": 4,
        "minValues": {"n": -7, "text": "a"},
        "maxValues": {"n": 5, "text": "z"},
        "nullCount": {"n": 1, "text": 1, "void": 4},
    }


def test_each_type_has_delta_s_form_or_none() -> None:
    at = datetime(2026, 1, 5, 9, 0, 0, 123456)
    stats = _stats(
        pa.table(
            {
                "at": pa.array([at.replace(tzinfo=UTC)], pa.timestamp("us", "UTC")),
                "local": pa.array([at], pa.timestamp("us")),
                "day": pa.array([date(2026, 1, 5)]),
                "price": pa.array([Decimal("10.25")], pa.decimal128(9, 2)),
                "great": pa.array([Decimal("12345678901234567890.01")], pa.decimal128(22, 2)),
                "yes": pa.array([True]),
                "raw": pa.array([b"x"]),
                "inner": pa.array([{"x": 1, "tags": ["a"]}]),
                "tags": pa.array([["a", "b"]]),
                "last": pa.array([1.5]),
            }
        )
    )
    assert stats["minValues"] == {
        "at": "2026-01-05T09:00:00.123Z",
        "local": "2026-01-05T09:00:00.123",
        "day": "2026-01-05",
        "price": 10.25,
        "inner": {"x": 1},
        "last": 1.5,
    }
    assert stats["maxValues"]["at"] == "2026-01-05T09:00:00.124Z"
    assert stats["nullCount"].keys() == {"at", "local", "day", "price", "great", "yes", "raw", "inner", "last"}


def test_a_column_that_holds_nan_has_no_bounds_as_nan_is_greater_than_all_for_spark() -> None:
    stats = _stats(
        pa.table({"x": [1.0, float("nan")], "inner": [{"y": float("nan")}, {"y": 2.0}]}),
        pa.table({"x": [3.0, 4.0], "inner": [{"y": 1.0}, {"y": 2.0}]}),
    )
    assert (stats["minValues"], stats["maxValues"]) == ({}, {})
    assert stats["nullCount"] == {"x": 0, "inner": {"y": 0}}


@dataclass
class _Bounds:
    """A row group's column as a footer tells of it."""

    min: float
    max: float
    has_min_max: bool = True


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_nan_as_a_bound_of_one_row_group_is_one_of_the_file(order: tuple[int, int]) -> None:
    """Spark's writer has it as the greatest value; among Python's numbers it is neither."""
    groups = [_Bounds(1.0, float("nan")), _Bounds(0.0, 5.0)]
    assert [isinstance(bound, float) for bound in bounds([groups[at] for at in order])] == [False, False]
    assert bounds([groups[1], _Bounds(-1.0, 2.0)]) == (-1.0, 5.0)


def test_decimals_that_parquet_keeps_as_integers_have_their_own_bounds_or_none() -> None:
    """Spark writes them so; some versions of pyarrow do not read the bounds of such a column."""
    file = io.BytesIO()
    parquet.write_table(pa.table({"x": pa.array([Decimal("10.25")] * 2)}), file, store_decimal_as_integer=True)
    footer = parquet.read_metadata(file)
    assert footer.schema.column(0).physical_type == "INT32"
    stats = json.loads(statistics(footer))
    assert stats["minValues"] in ({"x": 10.25}, {})
    assert stats["maxValues"] == stats["minValues"]


def test_names_with_dots_are_no_structs_and_columns_beyond_the_first_have_no_statistics() -> None:
    stats = _stats(pa.table({"a.b": [1], "a": [{"b": 2}]} | {f"c{number}": [number] for number in range(40)}))
    assert stats["minValues"]["a.b"] == 1
    assert stats["minValues"]["a"] == {"b": 2}
    assert len(stats["minValues"]) == COLUMNS_MAX


@given(st.text(min_size=1, max_size=80))
def test_bounds_of_a_text_hold_in_the_order_of_its_bytes(text: str) -> None:
    assert at_most(text).encode() <= text.encode()
    if isinstance(high := above(text), str):
        assert high.encode() >= text.encode()


@given(st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)))
def test_bounds_of_a_time_hold(at: datetime) -> None:
    assert datetime.fromisoformat(at_most(at)) <= at <= datetime.fromisoformat(above(at))
