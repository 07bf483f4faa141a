"""Ingests into a Delta table in an object store with real Spark: every row exactly once, also after faults."""

import csv
import json
import subprocess
import sys
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("moto.server", reason="moto[server] is not installed")
pytest.importorskip("s3fs", reason="the extra `s3` is not installed")
pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import dataset, parquet

from spark_tasks.ingest import widening
from spark_tasks.ingest.errors import FilesUnfit
from spark_tasks.ingest.kind import Ingest
from spark_tasks.storage.errors import StoreAway
from spark_tasks.table import object_writer
from spark_tasks.table.delta import Overtaken, TableUnfit
from spark_tasks.table.ledger import Mark, Page
from spark_tasks.table.part import PartsFolder
from spark_tasks.table.quarantine import Quarantine
from spark_tasks.table.writing import Write
from tasks.access import Access, AccessRefused
from tasks.kind import Fenced
from tasks.places.place import NoBucket
from testkit.servers.object_store import BUCKET, SECRET
from testkit.spark.ingests import ROWS_A_FILE, Crash, Lake
from testkit.spark.tables import object_table

pytestmark = [pytest.mark.integration, pytest.mark.spark]

ROOT = Path(__file__).parents[3]


@pytest.mark.more
def test_what_comes_is_what_a_local_table_holds_with_the_same_statistics(lake: Lake) -> None:
    for number, amount in enumerate((None, None, "NaN")):
        lake.put_csv(number, amount)
    result = Ingest().run(lake.attempt())
    assert {name: result[name] for name in ("rows", "files", "batches", "quarantined", "version", "table")} == {
        "rows": 30,
        "files": 3,
        "batches": 2,
        "quarantined": 0,
        "version": 2,
        "table": lake.store.url("table"),
    }
    local = lake.folder / "local"
    Ingest().run(lake.attempt(table=str(local), options={}))
    assert _rows(lake.delta()) == _rows(DeltaTable(local))
    with (lake.folder / "in" / "00.csv").open(newline="") as file:
        assert [row["n"] for row in csv.DictReader(file)] == [str(n) for n in lake.numbers()[:ROWS_A_FILE]]
    logs = f"{BUCKET}/table/_delta_log"
    in_store = _statistics(lake.store.files.cat_file(path) for path in lake.store.files.find(logs))
    assert in_store == _statistics(path.read_bytes() for path in (local / "_delta_log").glob("*.json"))
    bounded = [frozenset(stats["minValues"]) for stats in in_store]
    all_but_nan = frozenset({"n", "text", "at"})
    assert sorted(bounded, key=len) == [all_but_nan] + [all_but_nan | {"amount"}] * (len(bounded) - 1)
    fragments = lake.delta().to_pyarrow_dataset().get_fragments(filter=dataset.field("n") >= 20)
    assert len(list(fragments)) == 1, "the others' statistics say that they hold no such row"
    paths = [uri.removeprefix("s3://") for uri in lake.delta().file_uris()]
    plain = [parquet.read_table(lake.store.files.open(path)).column("n").to_pylist() for path in paths]
    assert sorted(n for part in plain for n in part) == list(range(30))
    assert lake.leftovers() == set()


def _rows(table: DeltaTable) -> str:
    """All rows in order, as text: NaN equals nothing."""
    return repr(table.to_pyarrow_table().sort_by("n").to_pylist())


def _statistics(entries: Iterable[bytes]) -> list[dict[str, Any]]:
    """The statistics of each file that a table's log names."""
    lines = [json.loads(line) for entry in entries for line in entry.splitlines()]
    return sorted((json.loads(line["add"]["stats"]) for line in lines if "add" in line), key=str)


@pytest.mark.more
def test_later_files_come_later_and_no_secret_is_anywhere(lake: Lake) -> None:
    lake.put_csv(0)
    first = lake.attempt()
    Ingest().run(first)
    again = lake.attempt(token=2)
    again.run_id = "flights~2"
    assert Ingest().run(again)["rows"] == 0
    assert again.saved == [], "there was nothing to do, and no session was started"
    lake.put_csv(1)
    later = lake.attempt(token=3)
    later.run_id = "flights~3"
    assert Ingest().run(later)["rows"] == ROWS_A_FILE
    assert lake.numbers() == list(range(20))
    assert SECRET not in repr([first.saved, later.saved])
    for name in lake.store.names("table"):
        assert SECRET.encode() not in lake.store.files.cat_file(f"{BUCKET}/table/{name}")


@pytest.mark.more
@pytest.mark.parametrize(
    "kill_at",
    ["planned 2", "written 2", "intent 2", "done 2"],
)
def test_after_kill_9_the_next_attempt_goes_on_where_the_log_stands(lake: Lake, kill_at: str) -> None:
    for number in range(5):
        lake.put_csv(number)
    told = {
        "params": lake.params(),
        "task": "flights",
        "run_id": "flights~1",
        "token": 1,
        "secrets": lake.store.secrets,
        "kill_at": kill_at,
    }
    command = [sys.executable, "-m", "testkit.spark.ingest_process", str(lake.folder), json.dumps(told)]
    lost = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=ROOT)
    assert lost.returncode == -9, lost.stderr
    assert lake.numbers() == list(range(40 if kill_at == "done 2" else 20))
    heir = lake.attempt(token=2)
    result = Ingest().run(heir)
    assert (result["rows"], result["files"], result["batches"]) == (50, 5, 3)
    assert lake.numbers() == list(range(50))
    assert lake.leftovers() == set()


@pytest.mark.more
def test_a_bad_row_is_named_or_kept_beside_the_table(lake: Lake) -> None:
    lake.put_csv(0)
    bad = lake.folder / "in" / "01.csv"
    bad.write_text("n,text,at,amount\n10,fine,,1\nnot a number,x,,1\n")
    with pytest.raises(FilesUnfit, match=r"1 of 2 files were not ingested.*01\.csv, line 3: .*not a number") as told:
        Ingest().run(lake.attempt(token=1))
    assert len(str(told.value).splitlines()) == 1
    assert lake.numbers() == list(range(10))
    result = Ingest().run(lake.attempt(token=2, malformed="quarantine"))
    assert (result["rows"], result["quarantined"]) == (11, 1)
    assert result["quarantine"] == lake.store.url("table_quarantine")
    [row] = lake.delta("table_quarantine").to_pyarrow_table().to_pylist()
    assert (row["file"], row["line"], row["text"]) == (str(bad), 3, "not a number,x,,1")
    assert row["reason"] == "column n: 'not a number' is not int"
    assert lake.numbers() == list(range(11))
    assert lake.leftovers() == set(), "what the first try of the good file left is swept"


@pytest.mark.more
def test_malformed_rows_are_in_the_quarantine_once_also_after_a_failover(lake: Lake) -> None:
    (lake.folder / "in" / "01.csv").write_text("n,text,at,amount\n10,fine,,1\nnot a number,x,,1\n")
    lost = lake.attempt(token=1, malformed="quarantine")
    table, put = object_table(lake.store, task="flights"), Quarantine.put

    def end_before(self: Quarantine, page: Page) -> None:
        raise Crash

    def end_after(self: Quarantine, page: Page) -> None:
        put(self, page)
        raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Quarantine, "put", end_before)
        with pytest.raises(Crash):
            Ingest().run(lost)
    assert table.last() == Mark(1, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Quarantine, "put", end_after)
        with pytest.raises(Crash):
            Ingest().run(lake.attempt(token=2, malformed="quarantine"))
    for token in (3, 4):
        result = Ingest().run(lake.attempt(token=token, malformed="quarantine"))
        assert (result["rows"], result["quarantined"]) == (1, 1)
    assert lake.delta("table_quarantine").to_pyarrow_table().num_rows == 1


@pytest.fixture(params=["driver", "executors"])
def each_writer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who uploads what the session on this machine writes; on a cluster executors do."""
    if request.param == "executors":
        from pyspark.sql import SparkSession

        def by_executors(table: PartsFolder, scratch: Path) -> Write:
            spark = SparkSession.getActiveSession()
            assert spark is not None
            return object_writer.distributed_writer(spark, table, scratch)

        monkeypatch.setattr("spark_tasks.table.writing.upload_writer", by_executors)


@pytest.mark.more
@pytest.mark.usefixtures("each_writer")
def test_a_table_may_be_partitioned_and_later_batches_go_to_its_partitions(lake: Lake) -> None:
    params: dict[str, Any] = {"columns": "n INT, day DATE, place STRING, flag BOOLEAN"}
    odd, new_year, later = "a b/c:ü%=", date(2013, 1, 1), date(2013, 1, 2)
    _put(lake, "a", f"1,2013-01-01,{odd},true", "2,2013-01-01,,", "3,2013-01-02,x,false")
    by = ["day", "place", "flag"]
    assert Ingest().run(lake.attempt(partition_by=by, **params))["rows"] == 3
    _put(lake, "b", "4,2013-01-02,x,false", f"5,,{odd},true", "6,2013-01-02,x,false")
    assert Ingest().run(lake.attempt(token=2, **params))["rows"] == 6
    found = lake.delta()
    assert found.metadata().partition_columns == by
    partitions = {1: (new_year, odd, True), 2: (new_year, None, None), 3: (later, "x", False), 5: (None, odd, True)}
    rows = {row.pop("n"): tuple(row.values()) for row in found.to_pyarrow_table().to_pylist()}
    assert rows == partitions | {4: partitions[3], 6: partitions[3]}
    files = pa.table(found.get_add_actions(flatten=True)).to_pylist()
    assert sorted((file["min.n"], file["max.n"], file["num_records"]) for file in files) == [
        *((n, n, 1) for n in (1, 2, 3)),
        (4, 6, 2),
        (5, 5, 1),
    ]
    assert {file["min.n"]: tuple(file[f"partition.{name}"] for name in by) for file in files} == partitions | {
        4: partitions[3]
    }
    for uri in found.file_uris():
        with lake.store.files.open(uri) as file:
            assert parquet.read_schema(file).names == ["n"]
    _put(lake, "c", "7,2013-01-02,x,false")
    with pytest.raises(TableUnfit, match="is partitioned by day, place, flag"):
        Ingest().run(lake.attempt(token=3, partition_by=["day"], **params))
    assert lake.numbers() == [1, 2, 3, 4, 5, 6]
    assert lake.leftovers() == set()


def _put(lake: Lake, name: str, *rows: str) -> None:
    lines = ["n,day,place,flag", *rows]
    (lake.folder / "in" / f"{name}.csv").write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.more
@pytest.mark.usefixtures("each_writer")
def test_of_two_attempts_that_widen_a_table_one_does(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old one has written the table again when the new one does the whole work."""
    monkeypatch.setattr(widening, "PORTION_BYTES", 1)
    lake.put_csv(0)
    lake.put_csv(1)
    Ingest().run(lake.attempt(batch_files=1))
    narrow = set(lake.delta().file_uris())
    wide = "n,text,at,amount,more\n3000000000,big,2026-01-05T09:00:00Z,1,x\n"
    (lake.folder / "in" / "02.csv").write_text(wide)
    old, new = (lake.attempt(token, schema_evolution="widen") for token in (2, 3))

    def fence(value: Any) -> None:
        raise Fenced

    def overtake(value: Any) -> None:
        if value["intent"] == 3:
            assert len([name for name in lake.store.names("table") if "/00000003-2.widened/part-" in name]) == 2
            assert Ingest().run(new)["rows"] == 21
            old.before_checkpoint = fence

    old.before_checkpoint = overtake
    with pytest.raises(Fenced) as refused:
        Ingest().run(old)
    assert isinstance(refused.value.__context__, Overtaken)
    found = lake.delta()
    assert {each.name: each.type.type for each in found.schema().fields if each.name in "n more"} == {
        "n": "long",
        "more": "string",
    }
    assert not narrow & set(found.file_uris()), "no file has the narrower column"
    assert all("/00000003-3" in uri for uri in found.file_uris())
    assert lake.leftovers() == set(), "what the old one wrote is swept"
    rows = found.to_pyarrow_table().sort_by("n").to_pylist()
    assert [(row["n"], row["text"], row["more"]) for row in rows] == [
        *((n, f"row {n}" if n % ROWS_A_FILE else None, None) for n in range(20)),
        (3_000_000_000, "big", "x"),
    ]
    stats = [found.get_add_actions(flatten=True).column(name) for name in ("num_records", "max.n")]
    assert sorted(zip(*(column.to_pylist() for column in stats), strict=True)) == [
        (1, 3_000_000_000),
        (10, 9),
        (10, 19),
    ]


@pytest.mark.more
def test_a_store_that_goes_away_is_one_sentence_and_the_next_attempt_goes_on(lake: Lake) -> None:
    for number in range(4):
        lake.put_csv(number)
    context = lake.attempt()

    def away(value: Any) -> None:
        if value["batch"] == 1:
            lake.store.stop()

    context.before_checkpoint = away
    with pytest.raises(StoreAway, match="does not answer") as told:
        Ingest().run(context)
    assert len(str(told.value).splitlines()) == 1
    assert SECRET not in str(told.value)


def test_no_bucket_and_a_store_that_the_node_does_not_allow_are_said_before_anything_else(lake: Lake) -> None:
    lake.put_csv(0)
    with pytest.raises(NoBucket, match="the bucket 'absent' does not exist"):
        Ingest().run(lake.attempt(table="s3://absent/flights"))
    refused = lake.attempt()
    refused.access = Access("node-1", source_roots=("/",), destination_hosts=("s3://lake",))
    with pytest.raises(AccessRefused, match=r"127\.0\.0\.1:.*ROTA_DESTINATION_HOSTS"):
        Ingest().run(refused)
    assert lake.store.names("table") == []
