"""Ingests of each format, compressed and damaged, with real Spark."""

import gzip
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import zstandard

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import parquet

from spark_tasks.ingest.errors import FilesUnfit
from spark_tasks.ingest.kind import Ingest
from testkit.spark.ingests import House

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.more]


def _rows(house: House) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(house.table).to_pyarrow_table().sort_by("n").to_pylist()
    return rows


def _put(house: House, name: str, content: bytes) -> Path:
    path = house.folder / "in" / name
    path.write_bytes(content)
    return path


def test_csv_and_json_may_be_compressed(house: House) -> None:
    _put(house, "a.csv.gz", gzip.compress(b"n,text\n1,gzip\n"))
    _put(house, "b.csv.zst", zstandard.compress(b"n,text\n2,zstd\n"))
    _put(house, "c.csv", b"n,text\n3,plain\n")
    result = Ingest().run(house.attempt(source=f"{house.folder}/in/*.csv*", batch_files=3))
    assert (result["rows"], result["batches"]) == (3, 1)
    assert [row["text"] for row in _rows(house)] == ["gzip", "zstd", "plain"]
    _put(house, "d.json.gz", gzip.compress(b'{"n":4,"text":"gzip"}\n'))
    _put(house, "e.json.zst", zstandard.compress(b'{"n":5,"text":"zstd"}\n'))
    later = house.attempt(token=2, source=f"{house.folder}/in/*.json.*", format="json")
    later.run_id = "flights~2"
    assert Ingest().run(later)["rows"] == 2
    assert house.numbers() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_a_compressed_file_that_is_cut_short_goes_in_as_a_whole_or_not_at_all(house: House, suffix: str) -> None:
    text = b"n,text\n" + b"".join(b"%d,%d\n" % (n, hash(str(n))) for n in range(10, 20_000))
    whole = gzip.compress(text) if suffix == "gz" else zstandard.compress(text)
    house.put_csv(0)
    _put(house, f"cut.csv.{suffix}", whole[: len(whole) // 2])
    source = f"{house.folder}/in/*.csv*"
    with pytest.raises(FilesUnfit, match=rf"1 of 2 files.*cut\.csv\.{suffix}: "):
        Ingest().run(house.attempt(source=source, columns="n INT, text STRING"))
    assert house.numbers() == list(range(10))
    _put(house, f"cut.csv.{suffix}", whole)
    assert Ingest().run(house.attempt(token=2, source=source))["rows"] == 20_000
    assert house.numbers() == list(range(20_000))


def _parquet(house: House, name: str, **columns: Any) -> None:
    parquet.write_table(pa.table(columns), house.folder / "in" / name)


def test_parquet_files_keep_their_types(house: House) -> None:
    at = datetime(2013, 1, 1, 5, tzinfo=UTC)
    _parquet(house, "a.parquet", n=pa.array([1], pa.int64()), at=pa.array([at], pa.timestamp("us", "UTC")), x=[[1.5]])
    _parquet(
        house,
        "b.parquet",
        x=[[2.5]],
        n=pa.array([2], pa.int32()),
        at=pa.array([at.replace(tzinfo=None)], pa.timestamp("us")),
    )
    result = Ingest().run(house.attempt(format="parquet"))
    assert (result["rows"], result["batches"]) == (2, 1)
    assert _rows(house) == [{"n": 1, "at": at, "x": [1.5]}, {"n": 2, "at": at, "x": [2.5]}]


def test_parquet_with_another_schema_is_refused_by_file_and_column(house: House) -> None:
    _parquet(house, "a.parquet", n=pa.array([1], pa.int32()), text=["a"])
    Ingest().run(house.attempt(format="parquet"))
    _parquet(house, "b.parquet", n=pa.array([2], pa.int64()), text=["b"])
    _parquet(house, "c.parquet", n=pa.array([3], pa.int32()))
    _parquet(house, "d.parquet", n=pa.array([4], pa.int32()), text=["d"], more=[1])
    _parquet(house, "e.parquet", n=pa.array([5], pa.int32()), text=["e"])
    _put(house, "f.parquet", b"PAR1 no more than a beginning")
    with pytest.raises(FilesUnfit, match="4 of 6 files") as told:
        Ingest().run(house.attempt(token=2, format="parquet", batch_files=10))
    for said in (
        "b.parquet has the column n as bigint, which is int in the table",
        "c.parquet lacks the column text",
        "d.parquet has the column more, which the table does not have",
        "f.parquet: not a whole Parquet file",
    ):
        assert said in str(told.value)
    assert house.numbers() == [1, 5]


AVRO = {
    "type": "record",
    "name": "flight",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "on", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "paid", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {
            "name": "legs",
            "type": {
                "type": "array",
                "items": {"type": "record", "name": "leg", "fields": [{"name": "km", "type": "int"}]},
            },
        },
        {"name": "kind", "type": {"type": "enum", "name": "kind", "symbols": ["A", "B"]}},
        {"name": "extra", "type": {"type": "map", "values": "double"}},
    ],
}


def _avro(house: House, name: str, numbers: range, codec: str = "deflate") -> Path:
    import fastavro

    rows = [
        {
            "n": n,
            "text": None if n == 0 else str(n),
            "on": date(2013, 1, 1),
            "at": datetime(2013, 1, 1, 5, 0, 0, n % 1000, tzinfo=UTC),
            "paid": Decimal("10.25"),
            "id": "00000000-0000-4000-8000-000000000001",
            "legs": [{"km": n}],
            "kind": "B",
            "extra": {"x": 0.5},
        }
        for n in numbers
    ]
    path = house.folder / "in" / name
    with path.open("wb") as out:
        fastavro.writer(out, fastavro.parse_schema(AVRO), rows, codec=codec)
    return path


def test_avro_files_keep_their_types(house: House) -> None:
    pytest.importorskip("fastavro")
    _avro(house, "a.avro", range(10_000))
    _avro(house, "b.avro", range(10_000, 10_010), codec="null")
    result = Ingest().run(house.attempt(format="avro"))
    assert (result["rows"], result["batches"]) == (10_010, 1)
    rows = _rows(house)
    assert [row["n"] for row in rows] == list(range(10_010))
    assert rows[0]["text"] is None
    assert rows[7] == {
        "n": 7,
        "text": "7",
        "on": date(2013, 1, 1),
        "at": datetime(2013, 1, 1, 5, 0, 0, 7, tzinfo=UTC),
        "paid": Decimal("10.25"),
        "id": "00000000-0000-4000-8000-000000000001",
        "legs": [{"km": 7}],
        "kind": "B",
        "extra": [("x", 0.5)],
    }


def test_a_damaged_avro_file_fails_alone(house: House) -> None:
    pytest.importorskip("fastavro")
    _avro(house, "a.avro", range(10))
    cut = _avro(house, "b.avro", range(10, 20_000))
    cut.write_bytes(cut.read_bytes()[:-1000])
    _put(house, "c.avro", b"Obj\x01 no more than a beginning")
    with pytest.raises(FilesUnfit, match="2 of 3 files") as told:
        Ingest().run(house.attempt(format="avro", batch_files=3))
    assert "b.avro: " in str(told.value)
    assert "c.avro: not a whole Avro file" in str(told.value)
    assert "Traceback" not in str(told.value)
    assert house.numbers() == list(range(10))


@pytest.mark.parametrize(
    "kind",
    [
        {"type": "udt", "pyClass": "left_by_a_file.X", "serializedClass": "eA==", "sqlType": "long"},
        {"type": "udt", "class": "java.util.Timer", "sqlType": "long"},
        {"type": "array", "containsNull": True, "elementType": {"type": "udt", "pyClass": "left_by_a_file.X"}},
    ],
)
def test_a_file_that_names_a_class_for_its_type_is_left_out(
    house: House, kind: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "left_by_a_file.py").write_text(f"open({str(tmp_path / 'loaded')!r}, 'w')\n")
    monkeypatch.syspath_prepend(tmp_path)
    columns = {"type": "struct", "fields": [{"name": "n", "nullable": True, "metadata": {}, "type": kind}]}
    said = {"org.apache.spark.sql.parquet.row.metadata": json.dumps(columns)}
    values = pa.array([[1]]) if kind["type"] == "array" else pa.array([1])
    parquet.write_table(pa.table({"n": values}).replace_schema_metadata(said), house.folder / "in" / "a.parquet")
    with pytest.raises(FilesUnfit, match=r"a\.parquet: its columns have a type of kind 'udt'"):
        Ingest().run(house.attempt(source=f"{house.folder}/in/*.parquet", format="parquet"))
    assert not (tmp_path / "loaded").exists()


def test_a_column_of_a_tbl_may_have_any_name(house: House) -> None:
    _put(house, "a.tbl", b"1|x|\n")
    columns = "`n` INT, `a``INT,b.c` STRING"
    Ingest().run(house.attempt(source=f"{house.folder}/in/*.tbl", format="tbl", columns=columns.replace(",b", "-b")))
    assert _rows(house) == [{"n": 1, "a`INT-b.c": "x"}]
