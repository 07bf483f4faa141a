"""Which types and names of a Parquet file no table can have. Without Spark."""

import struct
from datetime import date
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the extra `spark` is not installed")

import pyarrow as pa
from pyarrow import parquet

from spark_tasks.files.parquet_types import cut_int96, wrong_columns


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (
            pa.decimal256(50, 3),
            "its column x is of the type decimal256(50, 3): a table has decimals of",
        ),
        (pa.time64("us"), "its column x is of the type time64[us]: a table has no times of day"),
        (pa.time32("ms"), "a table has no times of day"),
        (pa.float16(), "its column x is of the type halffloat, which Spark does not read"),
        (pa.duration("ns"), "its column x is of the type duration[ns]: a table has no durations"),
        (pa.uuid(), "which Spark does not read: write it as text"),
        (pa.list_(pa.time64("us")), "its column x.element is of the type time64[us]"),
        (pa.map_(pa.string(), pa.float16()), "its column x.value is of the type halffloat"),
        (pa.struct([("a", pa.int8()), ("A", pa.int8())]), "it has the columns x.a and x.A, which are one name"),
        (pa.struct([("a", pa.struct([("t", pa.time64("us"))]))]), "its column x.a.t is"),
    ],
)
def test_a_type_that_no_table_has_is_named_with_its_column(kind: pa.DataType, said: str) -> None:
    assert said in str(wrong_columns(pa.schema([("n", pa.int64()), ("x", kind)])))


def test_types_that_a_table_has_are_not_wrong() -> None:
    kinds = [
        pa.uint64(),
        pa.decimal256(38, 3),
        pa.timestamp("ns"),
        pa.large_list(pa.binary(3)),
        pa.dictionary(pa.int8(), pa.string()),
        pa.null(),
        pa.date64(),
        pa.string_view(),
    ]
    assert wrong_columns(pa.schema([(f"c{number}", kind) for number, kind in enumerate(kinds)])) is None


def test_names_that_differ_by_case_only_are_one() -> None:
    assert "columns n and N, which are one name" in str(wrong_columns(pa.schema([("n", pa.int8()), ("N", pa.int8())])))
    assert wrong_columns(pa.schema([("n", pa.int8()), ("n", pa.int8())])) is not None


@pytest.mark.parametrize("year", [1, 1969, 2000, 2500, 9999])
def test_the_digits_of_an_int96_that_spark_would_cut_are_told_in_every_century(year: int, tmp_path: Path) -> None:
    path = tmp_path / "one.parquet"
    column = pa.array([123], pa.timestamp("ns"))  # 123 ns after the beginning of 1970, which is Julian day 2440588
    parquet.write_table(
        pa.table({"at": column}),
        path,
        use_deprecated_int96_timestamps=True,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
    )
    written = path.read_bytes()
    day = 2440588 + (date(year, 1, 1) - date(1970, 1, 1)).days
    assert written.count(struct.pack("<qi", 123, 2440588)) == 1
    path.write_bytes(written.replace(struct.pack("<qi", 123, 2440588), struct.pack("<qi", 123, day)))
    told = cut_int96(path, parquet.read_schema(path))
    assert (
        told == "its column at has a timestamp that ends in 123 ns, and a table has 6 digits of a second: write it so"
    )
