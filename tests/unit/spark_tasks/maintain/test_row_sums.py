"""The checksum of rows: the same for the same rows in any order and any files, another for any other row."""

import datetime
import decimal
import itertools
import math
import random
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

import pyarrow as pa

from spark_tasks.maintain import row_sums
from spark_tasks.maintain.row_sums import RowSum, row_sum

COLUMNS: dict[str, tuple[Any, list[Any]]] = {
    "bool": (pa.bool_(), [True, False, None]),
    "byte": (pa.int8(), [-1, -2, None]),
    "long": (pa.int64(), [-1, -2, 0, 2**61 - 1, None]),
    "float": (pa.float32(), [0.0, -0.0, 1.5, None]),
    "double": (pa.float64(), [0.0, -0.0, math.nan, math.inf, None]),
    "text": (pa.string(), ["", "a", "ä", "a\0", "None", None]),
    "large": (pa.large_string(), ["", "a", None]),
    "bytes": (pa.binary(), [b"", b"\xff", None]),
    "decimal": (pa.decimal128(20, 2), [decimal.Decimal("1.00"), decimal.Decimal("-1.00"), None]),
    "date": (pa.date32(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None]),
    "at": (pa.timestamp("us", "UTC"), [datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC), None]),
    "struct": (pa.struct([("x", pa.int32()), ("y", pa.string())]), [{"x": 1, "y": None}, {"x": None, "y": None}, None]),
    "list": (pa.list_(pa.int32()), [[], [1], [1, 2], [2, 1], [None], None]),
    "lists": (pa.list_(pa.list_(pa.string())), [[], [[]], [["a"], ["b"]], [["a", "b"]], None]),
    "map": (pa.map_(pa.string(), pa.int64()), [[], [("a", 1)], [("a", 1), ("b", 2)], [("b", 1), ("a", 2)], None]),
    "nothing": (pa.null(), [None]),
}


def _batch(rows: list[list[Any]]) -> Any:
    schema = pa.schema([(name, kind) for name, (kind, _) in COLUMNS.items()])
    return pa.record_batch([pa.array([row[at] for row in rows], schema.types[at]) for at in range(len(schema))], schema)


def _rows(seed: int, number: int) -> list[list[Any]]:
    draw = random.Random(seed)
    return [[draw.choice(values) for _, values in COLUMNS.values()] for _ in range(number)]


@pytest.mark.parametrize("seed", range(5))
def test_order_and_files_do_not_matter(seed: int) -> None:
    rows = _rows(seed, 200)
    whole = row_sum([_batch(rows)])
    assert whole.rows == 200
    random.Random(seed).shuffle(rows)
    assert row_sum([_batch(rows[:70]), _batch(rows[70:71]), _batch(rows[71:])]) == whole
    sliced = _batch(rows)
    assert row_sum([sliced.slice(0, 33), sliced.slice(33, 0), sliced.slice(33)]) == whole


@pytest.mark.parametrize("name", COLUMNS)
def test_each_value_counts(name: str) -> None:
    kind, values = COLUMNS[name]
    sums = [row_sum([pa.record_batch({"c": pa.array([value], kind)})]).total for value in values]
    assert all(one != other for one, other in itertools.combinations(sums, 2))


def test_a_value_counts_in_its_column_and_its_row() -> None:
    def total(a: list[int], b: list[int]) -> RowSum:
        return row_sum([pa.record_batch({"a": pa.array(a), "b": pa.array(b)})])

    assert total([1, 2], [3, 4]) != total([1, 2], [4, 3])
    assert total([1], [2]) != total([2], [1])
    assert total([1, 1], [1, 1]) != total([1], [1])
    assert row_sum([]) == RowSum(0, 0)


def test_a_dictionary_counts_as_its_values() -> None:
    plain = pa.array(["a", "b", "a", None])
    coded = pa.record_batch({"c": plain.dictionary_encode()})
    assert row_sum([coded]) == row_sum([pa.record_batch({"c": plain})])


def test_little_is_in_memory_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_sums, "PIECE_BYTES", 1000)
    batch = pa.record_batch({"c": pa.array(["x" * 100] * 50)})
    pieces = []
    whole = row_sum([batch], lambda: pieces.append(1))
    assert len(pieces) > 4
    monkeypatch.undo()
    assert row_sum([batch]) == whole


@pytest.mark.parametrize("size", [2999, 3000, 5001])
def test_a_long_text_is_hashed_in_pieces_to_the_same_sum(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    batch = pa.record_batch({"c": pa.array([random.Random(1).randbytes(size), b"x", None])})
    whole = row_sum([batch])
    monkeypatch.setattr(row_sums, "PIECE_BYTES", 1000)
    row_sums._powers.cache_clear()
    assert row_sum([batch]) == whole
    row_sums._powers.cache_clear()


def test_sums_add_up() -> None:
    rows = pa.record_batch({"n": [1, None], "text": ["a", "bc"], "list": [[1, 2], []]})
    assert row_sum([rows]) + row_sum([rows]) == row_sum([rows, rows])
