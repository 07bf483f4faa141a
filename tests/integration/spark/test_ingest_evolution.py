"""Files with other columns than the table's, with real Spark: what the task's rule makes of them."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pyarrow import parquet

from spark_tasks.ingest.errors import FilesUnfit
from spark_tasks.ingest.kind import Ingest
from spark_tasks.ingest.widening import rewritten
from spark_tasks.table.delta import TableUnfit
from testkit.spark.ingests import Crash, House

pytestmark = [pytest.mark.integration, pytest.mark.spark]

COLUMNS: dict[str, Any] = {"columns": "n INT, text STRING"}
ADD: dict[str, Any] = {"schema_evolution": "add"}
WIDEN: dict[str, Any] = {"schema_evolution": "widen"}


def _put(house: House, name: str, text: str) -> None:
    (house.folder / "in" / name).write_text(text)


def _types(house: House) -> dict[str, str]:
    return {field.name: field.type.type for field in DeltaTable(house.table).schema().fields}


def _rows(house: House) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(house.table).to_pyarrow_table().sort_by("n").to_pylist()
    return rows


@pytest.mark.more
def test_new_columns_of_csv_files_are_added_and_others_are_null(house: House) -> None:
    _put(house, "a.csv", "n,text\n1,a\n")
    Ingest().run(house.attempt(**COLUMNS))
    _put(house, "b.csv", "n,more,text\n2,1.5,b\n")
    _put(house, "c.csv", "text,n\nc,3\n")
    _put(house, "d.csv", "")
    with pytest.raises(FilesUnfit, match=r"2 of 4 files"):
        Ingest().run(house.attempt(token=2))
    _put(house, "e.csv", "n,more,text,N\n5,1.5,b,6\n")
    with pytest.raises(FilesUnfit, match=r"e\.csv: the header names n twice"):
        Ingest().run(house.attempt(token=3, batch_files=9, **ADD))
    assert _types(house) == {"n": "integer", "text": "string", "more": "double"}
    assert _rows(house) == [
        {"n": 1, "text": "a", "more": None},
        {"n": 2, "text": "b", "more": 1.5},
        {"n": 3, "text": "c", "more": None},
    ]


@pytest.mark.more
def test_a_value_that_needs_a_wider_column_is_malformed_until_columns_may_be_widened(house: House) -> None:
    house.put_csv(0)
    Ingest().run(house.attempt(**COLUMNS))
    _put(house, "b.csv", "n,text,more\n3000000000,big,x\n")
    with pytest.raises(FilesUnfit, match=r"b\.csv, line 2: column n: '3000000000' is not int"):
        Ingest().run(house.attempt(token=2, **ADD))
    before = set(DeltaTable(house.table).file_uris())
    result = Ingest().run(house.attempt(token=3, **WIDEN))
    assert (result["rows"], result["batches"]) == (11, 2)
    assert _types(house) == {"n": "long", "text": "string", "more": "string"}
    assert house.numbers() == [*range(10), 3_000_000_000]
    assert not before & set(DeltaTable(house.table).file_uris()), "no file has the narrower column"
    _put(house, "c.csv", "n,text\n-1,c\n")
    assert Ingest().run(house.attempt(token=4, **WIDEN))["rows"] == 12
    assert house.numbers() == [-1, *range(10), 3_000_000_000]


@pytest.mark.more
def test_parquet_columns_are_widened_by_rule_and_others_refused_by_name(house: House) -> None:
    def put(name: str, **columns: Any) -> None:
        parquet.write_table(pa.table(columns), house.folder / "in" / f"{name}.parquet")

    day = date(2013, 1, 1)
    put("a", n=pa.array([1], pa.int32()), x=pa.array([1.5], pa.float32()), on=[day], d=pa.array([7], pa.int64()))
    Ingest().run(house.attempt(format="parquet"))
    at = pa.array([datetime(2013, 1, 2, 3, tzinfo=UTC)], pa.timestamp("us", "UTC"))
    long, double = pa.array([2**40], pa.int64()), pa.array([2.5])
    money = pa.array([Decimal("0.25")], pa.decimal128(30, 2))
    put("b", n=long, x=double, on=at, d=money)
    put("c", n=["text"], x=double, on=at, d=money)
    put("d", n=pa.array([4.5]), x=double, on=at, d=money)
    with pytest.raises(FilesUnfit, match="2 of 4 files") as told:
        Ingest().run(house.attempt(token=2, format="parquet", **WIDEN))
    assert "c.parquet has the column n as string, which is bigint in the table" in str(told.value)
    assert "d.parquet has the column n as double, which is bigint in the table" in str(told.value)
    assert _rows(house) == [
        {"n": 1, "x": 1.5, "on": datetime(2013, 1, 1, tzinfo=UTC), "d": Decimal("7.00")},
        {"n": 2**40, "x": 2.5, "on": datetime(2013, 1, 2, 3, tzinfo=UTC), "d": Decimal("0.25")},
    ]


@pytest.mark.more
def test_new_fields_of_json_files_are_added_and_those_within_columns_refused(house: House) -> None:
    house.put_json(0)
    Ingest().run(house.attempt(format="json"))
    house.put_json(1, more={"deep": [1]})
    _put(house, "02.json", json.dumps({"n": 20, "inner": {"x": 1, "y": 2}}) + "\n")
    with pytest.raises(FilesUnfit, match=r"1 of 3 files.*02\.json has fields that the table does not have: inner\.y"):
        Ingest().run(house.attempt(token=2, format="json", **ADD))
    rows = _rows(house)
    assert (rows[0]["more"], rows[10]["more"]) == (None, {"deep": [1]})


@pytest.mark.more
def test_fields_without_a_column_are_rescued_as_json(house: House) -> None:
    _put(house, "a.csv", "n,text\n1,a\n")
    Ingest().run(house.attempt(**COLUMNS))
    _put(house, "b.csv", "n,more,text,most\n2,x,b,\n3,,c,\nbad,y,d,z\n")
    params: dict[str, Any] = {"rescue": True, "malformed": "quarantine"}
    assert Ingest().run(house.attempt(token=2, **params))["quarantined"] == 1
    assert [(row["n"], row["text"], row["_rescued"]) for row in _rows(house)] == [
        (1, "a", None),
        (2, "b", '{"more":"x"}'),
        (3, "c", None),
    ]
    [kept] = DeltaTable(f"{house.table}_quarantine").to_pyarrow_table().to_pylist()
    assert (kept["line"], kept["reason"]) == (4, "column n: 'bad' is not int")
    _put(house, "c.json", '{"n":4,"deep":{"a":[1,2]},"text":"d"}\n{"n":5,"flag":true}\n')
    later = house.attempt(token=3, format="json", rescue=True)
    later.run_id = "flights~2"
    assert Ingest().run(later)["rows"] == 2
    assert [(row["n"], row["text"], json.loads(row["_rescued"])) for row in _rows(house)[3:]] == [
        (4, "d", {"deep": {"a": [1, 2]}}),
        (5, None, {"flag": True}),
    ]


def _wider(house: House) -> None:
    house.put_csv(0)
    Ingest().run(house.attempt(**COLUMNS))
    _put(house, "b.csv", "n,text\n3000000000,big\n")


@pytest.mark.parametrize("intent", [2, None])
@pytest.mark.more
def test_a_crash_while_columns_are_widened_loses_and_doubles_nothing(house: House, intent: int | None) -> None:
    _wider(house)
    lost = house.attempt(token=2, **WIDEN)

    def die(value: Any) -> None:
        if value["intent"] == intent and (intent == 2 or value["batch"] == 2):
            raise Crash

    lost.before_checkpoint = die
    with pytest.raises(Crash):
        Ingest().run(lost)
    heir = house.attempt(token=3, **WIDEN)
    heir.checkpoint = lost.saved[-1]
    assert Ingest().run(heir)["rows"] == 11
    assert house.numbers() == [*range(10), 3_000_000_000]


@pytest.mark.more
def test_rows_of_another_program_are_not_lost_while_columns_are_widened(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    _wider(house)

    def beside_another(*args: Any) -> Any:
        done = rewritten(*args)
        write_deltalake(str(house.table), pa.table({"n": pa.array([77], pa.int32()), "text": ["o"]}), mode="append")
        return done

    with monkeypatch.context() as patch:
        patch.setattr("spark_tasks.ingest.converting.rewritten", beside_another)
        with pytest.raises(TableUnfit, match="written by another program while its columns were widened"):
            Ingest().run(house.attempt(token=2, **WIDEN))
    assert house.numbers() == [*range(10), 77]
    assert Ingest().run(house.attempt(token=3, **WIDEN))["rows"] == 11
    assert house.numbers() == [*range(10), 77, 3_000_000_000]
