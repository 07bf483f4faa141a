"""Files whose types or keys Spark does not read as they are: their values arrive, or the file alone fails, by name."""

import decimal
import gzip
import json
import uuid
from datetime import UTC, date, datetime
from typing import Any, Final

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import parquet

from spark_tasks.ingest.errors import FilesUnfit
from spark_tasks.ingest.kind import Ingest
from testkit.spark.ingests import House

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.more]

SECOND: Final = 1_577_836_800_000_000_000
"""2020-01-01 in nanoseconds."""


def _put(house: House, name: str, table: pa.Table, **how: Any) -> None:
    parquet.write_table(table, house.folder / "in" / name, **how)


def _rows(house: House) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(house.table).to_pyarrow_table().to_pylist()
    return sorted(rows, key=lambda row: row["n"])


def _numbered(n: int, **columns: pa.Array) -> pa.Table:
    return pa.table({"n": pa.array([n], pa.int64()), **columns})


def test_nanoseconds_are_read_where_they_are_whole_microseconds(house: House) -> None:
    for n, nanos in enumerate((SECOND, SECOND + 1000, SECOND + 1)):
        inner = pa.array([[nanos, None]], pa.list_(pa.timestamp("ns")))
        at = {"at": pa.array([nanos], pa.timestamp("ns")), "utc": pa.array([nanos], pa.timestamp("ns", "UTC"))}
        _put(house, f"{n}.parquet", _numbered(n, **at, inner=inner))
    old = pa.array([-(10**18)], pa.timestamp("ns"))
    _put(house, "3.parquet", _numbered(3, at=old, utc=old, inner=pa.array([None], pa.list_(pa.timestamp("ns")))))
    with pytest.raises(
        FilesUnfit, match=r"1 of 4 files.*2\.parquet: column \w+ has a timestamp of 1577836800000000001 ns"
    ):
        Ingest().run(house.attempt(format="parquet", batch_files=9))
    times = [datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, 0, 0, 0, 1, tzinfo=UTC)]
    found = _rows(house)
    assert [(row["at"], row["utc"], row["inner"]) for row in found[:2]] == [(at, at, [at, None]) for at in times]
    assert found[2]["at"] == datetime(1938, 4, 24, 22, 13, 20, tzinfo=UTC)


def test_timestamps_in_the_old_form_are_not_cut(house: House) -> None:
    far = pa.array([datetime(9999, 12, 31, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    for n, at in enumerate(
        (pa.array([SECOND + 1000], pa.timestamp("ns")), far, pa.array([SECOND + 7], pa.timestamp("ns")))
    ):
        _put(house, f"{n}.parquet", _numbered(n, at=at), use_deprecated_int96_timestamps=True)
    with pytest.raises(FilesUnfit, match=r"1 of 3 .*2\.parquet: its column at has a timestamp that ends in 7 ns"):
        Ingest().run(house.attempt(format="parquet", batch_files=9))
    assert [row["at"] for row in _rows(house)] == [
        datetime(2020, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        datetime(9999, 12, 31, tzinfo=UTC),
    ]


def test_each_file_of_a_type_that_a_table_cannot_have_fails_alone(house: House) -> None:
    _put(house, "good.parquet", _numbered(1))
    for name, values in {
        "decimal": pa.array([decimal.Decimal("1.5")], pa.decimal256(50, 3)),
        "uuid": pa.array([uuid.UUID(int=5).bytes], pa.uuid()),
    }.items():
        _put(house, f"{name}.parquet", _numbered(2, x=values))
    _put(house, "twice.parquet", pa.table([pa.array([1]), pa.array([2])], names=["n", "N"]))
    whole = (house.folder / "in" / "good.parquet").read_bytes()
    (house.folder / "in" / "short.parquet").write_bytes(whole[:-20])
    with pytest.raises(FilesUnfit, match="4 of 5 files") as told:
        Ingest().run(house.attempt(format="parquet", batch_files=20))
    for said in (
        "decimal.parquet: its column x is of the type decimal256(50, 3): a table has decimals of at most 38 digits",
        "short.parquet: not a whole Parquet file",
        "twice.parquet: it has the columns n and N, which are one name",
        "uuid.parquet: its column x is of the type extension<arrow.uuid>",
    ):
        assert said in str(told.value)
    assert house.numbers() == [1]


def test_types_that_a_table_has_arrive_equal(house: House) -> None:
    columns = {
        "u8": pa.array([255], pa.uint8()),
        "u16": pa.array([65535], pa.uint16()),
        "u32": pa.array([2**32 - 1], pa.uint32()),
        "u64": pa.array([2**64 - 1], pa.uint64()),
        "big": pa.array([decimal.Decimal("9" * 38)], pa.decimal128(38, 0)),
        "day": pa.array([date(1, 1, 1)], pa.date32()),
        "raw": pa.array([b"\x00\xff"], pa.binary(2)),
        "text": pa.array(["\u20ac\U0001f600\x00"]).dictionary_encode(),
        "nan": pa.array([float("-inf")], pa.float32()),
        "nested": pa.array([[{"k": [1, None]}]], pa.list_(pa.struct({"k": pa.list_(pa.int8())}))),
        "keyed": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    }
    _put(house, "a.parquet", _numbered(1, **columns))
    Ingest().run(house.attempt(format="parquet"))
    [row] = _rows(house)
    expected = {name: values.to_pylist()[0] for name, values in columns.items()}
    assert row == {"n": 1} | expected | {"u64": decimal.Decimal(2**64 - 1)}


def _json(house: House, **files: str) -> None:
    for name, text in files.items():
        (house.folder / "in" / f"{name}.json").write_text(text)


def test_keys_that_come_twice_fail_their_file_alone(house: House) -> None:
    _json(
        house,
        good='{"n":1,"m":{"a":1}}\n',
        case='{"n":2,"N":3}\n',
        twice='{"n":2,"n":3}\n',
        within='{"n":2,"m":{"a":1,"a":2}}\n',
    )
    for token, columns in enumerate((None, "n BIGINT, m MAP<STRING, INT>"), 1):
        with pytest.raises(FilesUnfit, match="3 of") as told:
            Ingest().run(house.attempt(token=token, format="json", columns=columns, batch_files=9))
        for name in ("case", "twice", "within"):
            assert f"{name}.json has objects with the key" in str(told.value)
        assert house.numbers() == [1]
        house.table = house.folder / "other"
        house.stored = type(house.stored)(house.table)  # type: ignore[call-arg]


def test_a_header_that_names_a_column_twice_but_for_its_case_fails_its_file(house: House) -> None:
    (house.folder / "in" / "a.csv").write_text("a,A\n1,2\n")
    with pytest.raises(FilesUnfit, match=r"a\.csv: the header names a twice"):
        Ingest().run(house.attempt())


def test_a_file_that_is_no_gzip_fails_alone(house: House) -> None:
    (house.folder / "in" / "a.csv.gz").write_bytes(gzip.compress(b"n,text\n1,x\n"))
    (house.folder / "in" / "b.csv.gz").write_text("n,text\n2,x\n")
    with pytest.raises(FilesUnfit, match=r"1 of 2 files.*b\.csv\.gz: "):
        Ingest().run(house.attempt(source=f"{house.folder}/in/*.csv.gz", columns="n INT, text STRING"))
    assert house.numbers() == [1]


def test_json_may_be_read_into_a_map(house: House) -> None:
    records = [{"n": 1, "v": {"a": "x", "b": None}}, {"n": 2, "v": {}}, {"n": 3, "v": None}]
    _json(house, a="".join(json.dumps(one) + "\n" for one in records))
    Ingest().run(house.attempt(format="json", columns="n BIGINT, v MAP<STRING, STRING>"))
    assert [row["v"] for row in _rows(house)] == [[("a", "x"), ("b", None)], [], None]
