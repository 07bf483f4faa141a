"""Parquet files as a table's rows: columns that files lack, or have in other types. Without Spark."""

import datetime as dt
import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")
pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

import pyarrow as pa
from pyarrow import parquet

from spark_tasks.table.parquet_files import (
    ParquetReader,
    ParquetRows,
    TableFileGone,
    TableFileUnfit,
    constant,
    read_tasks,
    rows_of_file,
)
from tasks.access import Access, AccessRefused
from tasks.file_guard import FileGuard

MOMENT = pa.timestamp("us", tz="UTC")


def _file(table: Any, **more: Any) -> io.BytesIO:
    file = io.BytesIO()
    parquet.write_table(table, file, **more)
    file.seek(0)
    return file


def _rows(table: Any, schema: Any, one: ParquetRows | None = None, **more: Any) -> list[dict[str, Any]]:
    batches = list(rows_of_file(_file(table, **more), one or ParquetRows("a", 1), schema, "/t/a"))
    return list(pa.Table.from_batches(batches, schema=schema).to_pylist())


def test_a_file_lacks_partition_columns_and_those_that_were_added_later() -> None:
    schema = pa.schema([("day", pa.date32()), ("id", pa.int64()), ("more", pa.string()), ("place", pa.string())])
    one = ParquetRows("a", 1, {"day": "2026-01-02", "place": None})
    rows = _rows(pa.table({"ID": pa.array([1, 2], pa.int32()), "dropped": [0, 0]}), schema, one)
    assert rows == [{"day": dt.date(2026, 1, 2), "id": n, "more": None, "place": None} for n in (1, 2)]
    only = pa.schema([("day", pa.date32())])
    assert _rows(pa.table({"id": [1, 2, 3]}), only, one) == [{"day": dt.date(2026, 1, 2)}] * 3


def test_old_timestamps_and_names_with_dots_are_read() -> None:
    at = dt.datetime(2026, 1, 1, 12, 0, 0, 5, dt.UTC)
    table = pa.table({"at": pa.array([at], MOMENT), "a.b": [1]})
    schema = pa.schema([("at", MOMENT), ("a.b", pa.int64())])
    assert _rows(table, schema, use_deprecated_int96_timestamps=True) == [{"at": at, "a.b": 1}]


def test_a_value_that_does_not_fit_names_file_and_column() -> None:
    with pytest.raises(TableFileUnfit, match=r"/t/a: the column id has a value that is no int64: .*seven"):
        _rows(pa.table({"id": ["seven"]}), pa.schema([("id", pa.int64())]))
    with pytest.raises(TableFileUnfit, match="/t/a is not a whole Parquet file"):
        list(rows_of_file(io.BytesIO(b"no Parquet"), ParquetRows("a", 1), pa.schema([("id", pa.int64())]), "/t/a"))


def test_the_parts_of_a_large_file_have_each_row_once() -> None:
    table, schema = pa.table({"id": range(1000)}), pa.schema([("id", pa.int64())])
    tasks = read_tasks([ParquetRows("a", 350), ParquetRows("b", 0)], 100)
    assert [len(task) for task in tasks] == [1, 1, 1, 2]
    read = [
        row["id"]
        for task in tasks
        for one in task
        if one.path == "a"
        for row in _rows(table, schema, one, row_group_size=70)
    ]
    assert sorted(read) == list(range(1000))


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("7", pa.int32(), 7),
        ("true", pa.bool_(), True),
        ("1.50", pa.decimal128(5, 2), Decimal("1.50")),
        ("0.5", pa.float64(), 0.5),
        ("2026-01-02 03:04:05.000006", MOMENT, dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC)),
        ("2026-01-02T03:04:05Z", MOMENT, dt.datetime(2026, 1, 2, 3, 4, 5, 0, dt.UTC)),
        ("2026-01-02 03:04:05", pa.timestamp("us"), dt.datetime(2026, 1, 2, 3, 4, 5)),
        ("", pa.string(), None),
        (None, pa.int32(), None),
        (dt.date(2026, 1, 2), pa.date32(), dt.date(2026, 1, 2)),
    ],
)
def test_the_log_says_partition_values_as_text(text: Any, kind: Any, value: Any) -> None:
    assert constant(text, kind).as_py() == value


def test_a_link_out_of_the_allowed_folders_is_not_read(tmp_path: Path) -> None:
    table = tmp_path / "table"
    table.mkdir()
    parquet.write_table(pa.table({"id": [1]}), tmp_path / "secret.parquet")
    (table / "a.parquet").symlink_to(tmp_path / "secret.parquet")
    from pyspark.sql.types import LongType, StructField, StructType

    guard = FileGuard(Access("node-1", (str(table),)), "source")
    columns = StructType([StructField("id", LongType())])
    reader = ParquetReader(str(table), {}, columns, [[ParquetRows("a.parquet", 1)]], guard)
    [partition] = reader.partitions()
    with pytest.raises(AccessRefused, match="allows no such source"):
        list(reader.read(partition))
    gone = ParquetReader(str(table), {}, columns, [[ParquetRows("b.parquet", 1)]], guard)
    with pytest.raises(TableFileGone, match=r"b\.parquet is gone: a vacuum removed it"):
        list(gone.read(gone.partitions()[0]))
