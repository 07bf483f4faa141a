"""Values of text at the edges of their types, with real Spark: each arrives as it is written, or its row does not."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

from deltalake import DeltaTable

from spark_tasks.ingest.errors import FilesUnfit
from spark_tasks.ingest.kind import Ingest
from testkit.spark.ingests import House

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.more]

BAD: Final = object()
"""What becomes of a text that is no value of the type: its row is malformed."""

NAN: Final = float("nan")
INFINITY: Final = float("inf")


def _utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type,misc]


TEXTS: Final[dict[str, dict[str, Any]]] = {
    "DATE": {
        "2020-01-05": date(2020, 1, 5),
        "2020-1-5": date(2020, 1, 5),
        " 2020-01-05 ": date(2020, 1, 5),
        "0001-01-01": date(1, 1, 1),
        "9999-12-31": date(9999, 12, 31),
        "2020-01-05T00:00:00": date(2020, 1, 5),
        "2020": BAD,
        "2020-02": BAD,
        "2020-02-30": BAD,
        "2020-01-05T10:00:00": BAD,
        "20200105": BAD,
        "18000": BAD,
        "now": BAD,
        "today": BAD,
        "epoch": BAD,
        "infinity": BAD,
        "10:00": BAD,
    },
    "TIMESTAMP": {
        "2020-01-05": _utc(2020, 1, 5),
        "2020-01-05 10:00:00": _utc(2020, 1, 5, 10),
        "2020-01-05T10:00:00Z": _utc(2020, 1, 5, 10),
        "2020-01-05T10:00": _utc(2020, 1, 5, 10),
        "2020-01-05T10:00:00.123456": _utc(2020, 1, 5, 10, 0, 0, 123456),
        "2020-01-05T10:00:00.123456000Z": _utc(2020, 1, 5, 10, 0, 0, 123456),
        "2020-01-05T10:00:00+02:00": _utc(2020, 1, 5, 8),
        "2020-01-05T10:00:00-0330": _utc(2020, 1, 5, 13, 30),
        "2020-01-05 10:00:00 UTC": _utc(2020, 1, 5, 10),
        "0001-01-01T00:00:00Z": _utc(1, 1, 1),
        "9999-12-31T23:59:59.999999Z": _utc(9999, 12, 31, 23, 59, 59, 999999),
        "10:00": BAD,
        "T10:00:00": BAD,
        "10:00:00.1234567Z": BAD,
        "2020": BAD,
        "2020-02": BAD,
        "2020-01-05T10:00:00.1234567": BAD,
        "2020-01-05T10:00:00 EST": BAD,
        "2020-01-05T10:00EST": BAD,
        "2020-1-5 1:0:0+1:0 ": BAD,
        "2020-10-25T02:30:00 Europe/Paris": BAD,
        "2020-01-05T24:00:00": BAD,
        "2020-01-05T23:59:60": BAD,
        "1577836800": BAD,
        "now": BAD,
    },
    "DECIMAL(3, 2)": {
        "1.20": Decimal("1.20"),
        "-9.99": Decimal("-9.99"),
        "1.2000000": Decimal("1.20"),
        "12e-1": Decimal("1.20"),
        "1e0": Decimal("1.00"),
        ".5": Decimal("0.50"),
        "1.005": BAD,
        "1e-9": BAD,
        "0.001": BAD,
        "10": BAD,
        "9.999": BAD,
        "1d": BAD,
        "NaN": BAD,
    },
    "DECIMAL(38, 10)": {
        "1234567890123456789012345678.0123456789": Decimal("1234567890123456789012345678.0123456789"),
        "0.12345678901": BAD,
        "12345678901234567890123456789": BAD,
    },
    "DOUBLE": {
        "1.5": 1.5,
        "0.1": 0.1,
        "-0.0": -0.0,
        "0": 0.0,
        "1e5": 1e5,
        " 1.5 ": 1.5,
        "1.7976931348623157e308": 1.7976931348623157e308,
        "5e-324": 5e-324,
        "9007199254740992": 9007199254740992.0,
        "123456789012345680000": 1.2345678901234568e20,
        "NaN": NAN,
        "Infinity": INFINITY,
        "-inf": -INFINITY,
        "9007199254740993": BAD,
        "12345678901234567890123": BAD,
        "1e999": BAD,
        "1e-999": BAD,
        "1d": BAD,
        "1f": BAD,
        "0x1p3": BAD,
        "0x10": BAD,
        "1,5": BAD,
    },
    "FLOAT": {"0.5": 0.5, "16777216": 16777216.0, "16777217": BAD, "1e39": BAD, "1e-60": BAD},
    "INT": {
        "2147483647": 2147483647,
        "-2147483648": -2147483648,
        "+5": 5,
        "007": 7,
        "2147483648": BAD,
        "1.5": BAD,
        "1.0": BAD,
        "1e3": BAD,
        "0x10": BAD,
        "1_000": BAD,
        "1,000": BAD,
        " 1 ": BAD,
    },
    "BIGINT": {"9223372036854775807": 2**63 - 1, "9223372036854775808": BAD, "1L": BAD},
    "TINYINT": {"127": 127, "128": BAD},
    "BOOLEAN": {"true": True, "FALSE": False, "1": BAD, "y": BAD, "yes": BAD, "on": BAD, "t": BAD},
    "STRING": {" a ": " a ", "\u20ac": "\u20ac", "NaN": "NaN", "007": "007", "\U0001f600": "\U0001f600"},
}

NUMBERS: Final[dict[str, dict[str, Any]]] = {
    "DOUBLE": {"1.50": 1.5, "1": 1.0, "1e999": BAD, "9007199254740993": BAD, "true": BAD, "[1]": BAD, '""': BAD},
    "DECIMAL(3, 2)": {"1.20": Decimal("1.20"), "1.005": BAD, "12345": BAD, "true": BAD, '{"a":1}': BAD},
    "INT": {"1": 1, "1.0": BAD, "1e2": BAD, '"7"': BAD, "12345678901": BAD},
    "STRING": {
        "1.10": "1.10",
        "12345678901234567890123456789": "12345678901234567890123456789",
        "0.12345678901234567890": "0.12345678901234567890",
        '{"b": 1.10}': '{"b": 1.10}',
        "true": "true",
    },
    "TIMESTAMP": {"1577836800": BAD, "1577836800000": BAD},
    "DATE": {"18000": BAD},
    "MAP<STRING, DECIMAL(3, 2)>": {
        '{"a":1.2}': [("a", Decimal("1.20"))],
        '{"a":1.005}': BAD,
        '{"a":null}': [("a", None)],
    },
    "MAP<STRING, TIMESTAMP>": {'{"a":"2020-01-05T10:00:00Z"}': [("a", _utc(2020, 1, 5, 10))], '{"a":"10:00"}': BAD},
    "ARRAY<DATE>": {'["2020-01-05",null]': [date(2020, 1, 5), None], '["2020-01-05","2020"]': BAD},
    "STRUCT<at: TIMESTAMP, n: INT>": {
        '{"at":"2020-01-05","n":1}': {"at": _utc(2020, 1, 5), "n": 1},
        '{"at":"10:00","n":1}': BAD,
    },
}
"""Values of JSON that are no text, and what they become."""


def _ingested(house: House, kind: str, expected: list[Any], **params: Any) -> None:
    """The values that came in, and the rows that did not, are as expected, in order and without a change."""
    result = Ingest().run(house.attempt(columns=f"n BIGINT, v {kind}", malformed="quarantine", **params))
    good = {n: value for n, value in enumerate(expected) if value is not BAD}
    rows = DeltaTable(house.table).to_pyarrow_table().sort_by("n").to_pylist() if good else []
    found = {row["n"]: row["v"] for row in rows}
    assert found.keys() == good.keys()
    shown = {
        n: repr(value).replace("zoneinfo.ZoneInfo(key='UTC')", "datetime.timezone.utc") for n, value in found.items()
    }
    assert shown == {n: repr(value) for n, value in good.items()}
    assert (result["rows"], result["quarantined"]) == (len(good), len(expected) - len(good))
    bad = DeltaTable(f"{house.table}_quarantine").to_pyarrow_table().to_pylist() if len(good) < len(expected) else []
    lines = {n + (2 if params["format"] == "csv" else 1) for n, value in enumerate(expected) if value is BAD}
    assert {row["line"] for row in bad} == lines, bad
    assert all("column v: " in row["reason"] for row in bad), [row["reason"] for row in bad]


@pytest.mark.parametrize("kind", TEXTS)
def test_a_field_of_csv_is_exactly_a_value_or_malformed(house: House, kind: str) -> None:
    lines = [f"{n}|{text}" for n, text in enumerate(TEXTS[kind])]
    (house.folder / "in" / "a.csv").write_text("\n".join(["n|v", *lines, ""]))
    _ingested(house, kind, list(TEXTS[kind].values()), format="csv", delimiter="|")


@pytest.mark.parametrize("kind", ["TIMESTAMP", "DECIMAL(3, 2)", "DOUBLE"])
def test_a_field_of_tbl_is_exactly_a_value_or_malformed(house: House, kind: str) -> None:
    (house.folder / "in" / "a.tbl").write_text("".join(f"{n}|{text}|\n" for n, text in enumerate(TEXTS[kind])))
    _ingested(house, kind, list(TEXTS[kind].values()), format="tbl")


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP", "DECIMAL(3, 2)", "DECIMAL(38, 10)", "DOUBLE", "FLOAT", "STRING"])
def test_a_text_in_json_is_exactly_a_value_or_malformed(house: House, kind: str) -> None:
    lines = [json.dumps({"n": n, "v": text}) for n, text in enumerate(TEXTS[kind])]
    (house.folder / "in" / "a.json").write_text("\n".join([*lines, ""]))
    _ingested(house, kind, list(TEXTS[kind].values()), format="json")


@pytest.mark.parametrize("kind", NUMBERS)
def test_a_value_of_json_is_exactly_a_value_or_malformed(house: House, kind: str) -> None:
    lines = [f'{{"n":{n},"v":{text}}}' for n, text in enumerate(NUMBERS[kind])]
    (house.folder / "in" / "a.json").write_text("\n".join([*lines, ""]))
    _ingested(house, kind, list(NUMBERS[kind].values()), format="json")


PATTERN: Final = "dd/MM/yyyy HH:mm"
BY_PATTERN: Final = {
    '"05/01/2020 10:00"': _utc(2020, 1, 5, 10),
    '"10:00"': BAD,
    '"2020-01-05T10:00:00"': BAD,
    '"31/02/2020 10:00"': BAD,
    "1577836800": BAD,
}


@pytest.mark.parametrize("format_", ["csv", "json"])
def test_a_time_is_as_its_pattern_says_or_malformed(house: House, format_: str) -> None:
    texts = [text if format_ == "json" else text.strip('"') for text in BY_PATTERN]
    lines = [f'{{"n":{n},"v":{text}}}' if format_ == "json" else f"{n},{text}" for n, text in enumerate(texts)]
    header = ["n,v"] if format_ == "csv" else []
    (house.folder / "in" / f"a.{format_}").write_text("\n".join([*header, *lines, ""]))
    _ingested(house, "TIMESTAMP", list(BY_PATTERN.values()), format=format_, timestamp_format=PATTERN)


def test_a_value_that_is_not_of_its_type_fails_its_file_with_its_line(house: House) -> None:
    house.put_csv(0)
    (house.folder / "in" / "01.csv").write_text("n,text\n10,x\n")
    (house.folder / "in" / "02.csv").write_text("n,text\n11,2020-01-05\n12,10:00\n")
    for path in ("00.csv", "01.csv"):
        (house.folder / "in" / path).unlink()
    (house.folder / "in" / "03.csv").write_text("n,text\n13,2020-01-06\n")
    with pytest.raises(
        FilesUnfit, match=r"1 of 2 files.*02\.csv, line 3: column text: '10:00' is not timestamp, written"
    ):
        Ingest().run(house.attempt(columns="n INT, text TIMESTAMP"))
    assert house.numbers() == [13]


COLUMNS: Final = (
    "a BOOLEAN, b BYTE, c TINYINT, d SHORT, e SMALLINT, f INT, g INTEGER, h LONG, i BIGINT, j REAL, k FLOAT, l DOUBLE",
    "a DATE, b TIMESTAMP, c TIMESTAMP_NTZ, d TIMESTAMP_LTZ, e STRING, f BINARY, g DECIMAL, h DEC(3), i NUMERIC(38, 38)",
    "a ARRAY<INT>, b MAP<STRING, ARRAY<DECIMAL(3, 2)>>, c STRUCT<x: INT, `y z` STRUCT<q DATE NOT NULL COMMENT 'q'>>",
    "`a``b` INT NOT NULL, `c d`: STRING COMMENT 'it''s', date DATE, timestamp TIMESTAMP, _x1 int, select INT, `1a` int",
    "a INT -- of one\n, b /* and */ INT",
)


def test_columns_that_are_read_without_spark_are_as_spark_reads_them(tmp_path: Path) -> None:
    """A `PUT` refuses by a grammar of its own: what that accepts, Spark has to accept, and in the same way."""
    from pyspark.sql.types import StructType

    from spark_tasks.spark.session import spark_session
    from spark_tasks.sql.column_types import read_columns

    with spark_session("types", tmp_path, {"RUN_SPARK_MASTER": "local[1]"}):
        for text in COLUMNS:
            columns = StructType.fromDDL(text)
            assert isinstance(columns, StructType)
            found = [(field.name, field.dataType.simpleString()) for field in columns.fields]
            assert [tuple(column) for column in read_columns(text)] == found
