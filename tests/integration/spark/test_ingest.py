"""Ingests into a Delta table with real Spark: every row exactly once, also after faults."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

from deltalake import DeltaTable
from pydantic import ValidationError

from spark_tasks.files.faults import SchemaDrift
from spark_tasks.files.listing import SourceChanged
from spark_tasks.files.staging import staged
from spark_tasks.ingest.errors import FilesUnfit, IngestStopped, TableReplaced
from spark_tasks.ingest.kind import Ingest
from spark_tasks.ingest.params import IngestParams
from spark_tasks.table.delta import Overtaken, TableUnfit
from spark_tasks.table.ledger import Ledger, Mark
from tasks.kind import Fenced
from testkit.fake_context import FakeContext
from testkit.spark.ingests import Crash, House
from testkit.spark.tables import commit, local_table

pytestmark = [pytest.mark.integration, pytest.mark.spark]

NUMBERS_AND_TEXT = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in (("n", "integer"), ("text", "string"))
        ],
    }
)


def test_csv_files_come_in_batches_and_later_ones_come_later(house: House) -> None:
    for number in range(3):
        house.put_csv(number)
    first = house.attempt()
    result = Ingest().run(first)
    assert {name: result[name] for name in ("rows", "files", "batches", "quarantined", "version")} == {
        "rows": 30,
        "files": 3,
        "batches": 2,
        "quarantined": 0,
        "version": 2,
    }
    assert house.numbers() == list(range(30))
    table = DeltaTable(house.table).to_pyarrow_table().sort_by("n").to_pylist()
    assert table[0] == {"n": 0, "text": None}
    assert table[1] == {"n": 1, "text": 'a "1", quoted'}
    # Each batch is planned before it is read, written before it is committed, and confirmed when it is visible.
    steps = [(value["plan"] and value["plan"]["batch"], value["intent"], value["batch"]) for value in first.saved]
    assert steps == [(1, None, 0), (1, 1, 0), (None, None, 1), (2, None, 1), (2, 2, 1), (None, None, 2)]
    between = [told for told in first.shown if told[2] == "files"]
    assert between == [(0, 3, "files"), (2, 3, "files"), (3, 3, "files")]

    house.put_csv(3)
    later = house.attempt(token=2)
    later.run_id = "flights~2"
    result = Ingest().run(later)
    assert (result["rows"], result["files"], result["batches"], result["version"]) == (10, 1, 1, 4)
    assert house.numbers() == list(range(40))

    nothing = house.attempt(token=3)
    nothing.run_id = "flights~3"
    assert Ingest().run(nothing)["rows"] == 0
    assert nothing.saved == []


@pytest.mark.more
def test_json_files_keep_their_nested_fields_and_a_new_field_is_an_error(house: House) -> None:
    house.put_json(0)
    house.put_json(1)
    assert Ingest().run(house.attempt(format="json"))["rows"] == 20
    assert DeltaTable(house.table).to_pyarrow_table().sort_by("n").to_pylist()[7] == {"n": 7, "inner": {"x": 7}}
    house.put_json(2)
    house.put_json(3, surprise=1)
    with pytest.raises(FilesUnfit, match=r"03\.json has fields that the table does not have: surprise"):
        Ingest().run(house.attempt(token=2, format="json"))
    assert house.numbers() == list(range(30))


def _crash_before_reading(context: FakeContext[IngestParams], patch: pytest.MonkeyPatch) -> None:
    def die(batch: Any, folder: Path, pins: Any) -> Any:
        if folder.name == Mark(2, context.token).name:
            assert context.saved[-1]["plan"]["batch"] == 2
            raise Crash
        return staged(batch, folder, pins)

    patch.setattr("spark_tasks.ingest.converting.staged", die)


def _crash_before_commit(context: FakeContext[IngestParams], patch: pytest.MonkeyPatch) -> None:
    def die(value: Any) -> None:
        if value["intent"] == 2:
            raise Crash

    context.before_checkpoint = die


def _crash_after_commit(context: FakeContext[IngestParams], patch: pytest.MonkeyPatch) -> None:
    def die(value: Any) -> None:
        if value["batch"] == 2:
            raise Crash

    context.before_checkpoint = die


def _crash_after_parquet(context: FakeContext[IngestParams], patch: pytest.MonkeyPatch) -> None:
    write = Ledger.write

    def die(self: Ledger, page: Any) -> None:
        if page.mark == Mark(2, context.token):
            raise Crash
        write(self, page)

    patch.setattr(Ledger, "write", die)


Crasher = Callable[[FakeContext[IngestParams], pytest.MonkeyPatch], None]


@pytest.mark.parametrize(
    "crash",
    [
        pytest.param(_crash_before_reading, marks=pytest.mark.more),
        pytest.param(_crash_after_parquet, marks=pytest.mark.more),
        _crash_before_commit,
        pytest.param(_crash_after_commit, marks=pytest.mark.more),
    ],
)
def test_after_a_crash_the_next_attempt_goes_on_where_the_log_stands(
    house: House,
    crash: Callable[[FakeContext[IngestParams], pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for number in range(5):
        house.put_csv(number)
    lost = house.attempt(token=1)
    crash(lost, monkeypatch)
    with pytest.raises(Crash):
        Ingest().run(lost)
    heir = house.attempt(token=2)
    heir.checkpoint = lost.saved[-1]
    result = Ingest().run(heir)
    assert (result["rows"], result["files"], result["batches"]) == (50, 5, 3)
    listed = result["latest_batches"]
    assert [batch["batch"] for batch in listed] == [1, 2, 3]
    assert sum(batch["rows"] for batch in listed) == 50
    assert sum(batch["files"] for batch in listed) == 5
    assert house.numbers() == list(range(50))
    written = {path.name for path in (house.table / "flights").iterdir()}
    pages = {path.stem for path in (house.table / "_rota" / "flights").iterdir()}
    assert written == pages == {page.mark.name for page in local_table(house.table, "flights").ledger.pages(Mark(3, 2))}


def test_an_attempt_that_was_taken_over_commits_nothing(house: House) -> None:
    for number in range(4):
        house.put_csv(number)
    old = house.attempt(token=1)

    def fence(value: Any) -> None:
        if value["intent"] == 2:
            raise Fenced

    old.before_checkpoint = fence
    with pytest.raises(Fenced):
        Ingest().run(old)
    assert house.numbers() == list(range(20))


def test_of_two_attempts_that_race_for_a_batch_one_puts_it_in(anywhere: House) -> None:
    """The old one is past its last question to the cluster when the new one does the whole work."""
    for number in range(4):
        anywhere.put_csv(number)
    old, new = anywhere.attempt(token=1), anywhere.attempt(token=2)

    def fence(value: Any) -> None:
        raise Fenced

    def overtake(value: Any) -> None:
        if value["intent"] == 2:
            assert Ingest().run(new)["rows"] == 40
            old.before_checkpoint = fence

    old.before_checkpoint = overtake
    with pytest.raises(Fenced) as refused:
        Ingest().run(old)
    assert isinstance(refused.value.__context__, Overtaken)
    assert anywhere.numbers() == list(range(40))
    assert anywhere.stored.table("flights").last() == Mark(2, 2)
    assert anywhere.leftovers() == set(), "the new one swept after the old one had written"


@pytest.mark.more
def test_the_attempt_whose_token_is_good_goes_on_where_an_old_one_came_in_between(house: House) -> None:
    """There was no table yet in which it could have said that it is at work."""
    for number in range(4):
        house.put_csv(number)
    new = house.attempt(token=2)
    table = local_table(house.table, "flights")

    def late(value: Any) -> None:
        if value["intent"] == 1 and table.last() is None:
            mine, theirs = (house.table / table.parquet_folder(Mark(1, token)) for token in (2, 1))
            shutil.copytree(mine, theirs)
            [page] = table.ledger.pages(Mark(1, 2))
            table.ledger.write(replace(page, mark=Mark(1, 1)))
            commit(table, Mark(1, 1), NUMBERS_AND_TEXT)

    new.before_checkpoint = late
    result = Ingest().run(new)
    assert (result["rows"], result["files"], result["batches"]) == (40, 4, 2)
    assert house.numbers() == list(range(40))
    assert [page.mark for page in table.ledger.pages(table.last())] == [Mark(2, 2), Mark(1, 1)]
    assert table.holder() == 2


@pytest.mark.more
def test_a_new_cluster_counts_its_tokens_anew_and_goes_on_with_the_table(house: House) -> None:
    house.put_csv(0)
    Ingest().run(house.attempt(token=9))
    house.put_csv(1)
    assert Ingest().run(house.attempt(token=3))["rows"] == 20
    assert house.numbers() == list(range(20))
    assert local_table(house.table, "flights").holder() == 3


@pytest.mark.more
def test_an_attempt_that_is_asked_to_stop_stops_between_two_batches(house: House) -> None:
    for number in range(4):
        house.put_csv(number)
    context = house.attempt()

    def stop(value: Any) -> None:
        context.cancelled = value["batch"] == 1 and value["intent"] is None

    context.before_checkpoint = stop
    with pytest.raises(IngestStopped, match="2 of 4 files"):
        Ingest().run(context)
    assert house.numbers() == list(range(20))


def test_a_bad_file_fails_itself_and_not_the_good_ones_of_its_batch(house: House) -> None:
    for number in (0, 2, 4, 6):
        house.put_csv(number)
    (house.folder / "in" / "01.csv").write_text("text,n\nx,11\n")
    (house.folder / "in" / "03.csv").write_text("n,text\nnone,x\n")
    with pytest.raises(FilesUnfit, match="2 of 6 files") as told:
        Ingest().run(house.attempt(token=1, batch_files=4, columns="n INT, text STRING"))
    assert "01.csv: the header is (text, n)" in str(told.value)
    assert "03.csv" in str(told.value)
    assert house.numbers() == [number * 10 + row for number in (0, 2, 4, 6) for row in range(10)]


@pytest.mark.more
def test_a_header_that_is_not_the_table_s_is_an_error_that_names_the_file(house: House) -> None:
    house.put_csv(0)
    Ingest().run(house.attempt(token=1))
    (house.folder / "in" / "01.csv").write_text("text,n\nx,11\n")
    with pytest.raises(FilesUnfit, match=r"01\.csv: the header is \(text, n\), the columns are \(n, text\)"):
        Ingest().run(house.attempt(token=2))
    with pytest.raises(SchemaDrift, match="the table's columns are"):
        Ingest().run(house.attempt(token=3, columns="n BIGINT, text STRING, more INT"))
    assert house.numbers() == list(range(10))


@pytest.mark.more
def test_columns_may_be_named_and_files_may_lack_a_header(house: House) -> None:
    (house.folder / "in" / "h[1].csv").write_text("7;2013-01-01 05:00:00;NA\n8;NA;2.5\n")
    params: dict[str, Any] = {
        "header": False,
        "delimiter": ";",
        "null_value": "NA",
        "columns": "n INT, at TIMESTAMP, x DOUBLE",
    }
    Ingest().run(house.attempt(**params))
    rows = DeltaTable(house.table).to_pyarrow_table().sort_by("n").to_pylist()
    assert [(row["n"], row["at"] and row["at"].isoformat(), row["x"]) for row in rows] == [
        (7, "2013-01-01T05:00:00+00:00", None),
        (8, None, 2.5),
    ]


@pytest.mark.more
def test_a_file_that_changed_and_a_table_that_was_replaced_are_errors(house: House) -> None:
    house.put_csv(0)
    done = house.attempt()
    Ingest().run(done)
    elsewhere = house.attempt(token=2, table=str(house.folder / "other"))
    elsewhere.checkpoint = done.saved[-1]
    with pytest.raises(TableReplaced, match="has committed batch 1"):
        Ingest().run(elsewhere)
    (house.folder / "in" / "00.csv").write_text("n,text\n1,x\n")
    with pytest.raises(SourceChanged, match=r"00\.csv: the size has changed"):
        Ingest().run(house.attempt(token=2))
    assert Ingest().run(house.attempt(token=2, changed="ignore"))["rows"] == 10


@pytest.mark.more
def test_files_of_a_remote_source_are_on_this_disk_for_their_batch_only(house: House) -> None:
    for number in range(4):
        house.put_csv(number)
    memory = fsspec.filesystem("memory")
    memory.put(str(house.folder / "in"), "/remote", recursive=True)
    context = house.attempt(source="memory://remote/*.csv")
    left: list[int] = []
    context.before_checkpoint = lambda value: left.append(len(list(context.scratch.glob("fetched/*/*"))))
    try:
        assert Ingest().run(context)["rows"] == 40
    finally:
        memory.rm("/remote", recursive=True)
    assert house.numbers() == list(range(40))
    assert left == [0, 0, 0, 0, 0, 0]


@pytest.mark.more
def test_a_file_that_is_not_complete_waits_for_a_later_run(house: House) -> None:
    house.put_csv(0)
    house.put_csv(1)
    (house.folder / "in" / "00.csv.done").touch()
    ready = {"marker": "{name}.done"}
    result = Ingest().run(house.attempt(ready=ready))
    assert (result["files"], result["waiting"]) == (1, 1)
    assert house.numbers() == list(range(10))
    (house.folder / "in" / "01.csv.done").touch()
    result = Ingest().run(house.attempt(token=2, ready=ready))
    assert (result["files"], result["waiting"]) == (2, 0)
    assert house.numbers() == list(range(20))


@pytest.mark.more
def test_a_table_may_be_partitioned(house: House) -> None:
    (house.folder / "in" / "a.csv").write_text("n,day,place\n1,2013-01-01,a b/c:ü%=\n2,2013-01-01,\n3,2013-01-02,x\n")
    params: dict[str, Any] = {"columns": "n INT, day DATE, place STRING"}
    with pytest.raises(ValidationError, match="`partition_by` names month"):
        Ingest().run(house.attempt(partition_by=["month"], **params))
    assert Ingest().run(house.attempt(partition_by=["day", "place"], **params))["rows"] == 3
    (house.folder / "in" / "b.csv").write_text("n,day,place\n4,2013-01-02,x\n")
    assert Ingest().run(house.attempt(token=2))["rows"] == 4
    table = DeltaTable(house.table)
    assert table.metadata().partition_columns == ["day", "place"]
    rows = table.to_pyarrow_table().sort_by("n").to_pylist()
    assert [(row["n"], row["day"].day, row["place"]) for row in rows] == [
        (1, 1, "a b/c:ü%="),
        (2, 1, None),
        (3, 2, "x"),
        (4, 2, "x"),
    ]
    assert sum("/place=x/" in file for file in table.file_uris()) == 2
    (house.folder / "in" / "c.csv").write_text("n,day,place\n5,2013-01-02,x\n")
    with pytest.raises(TableUnfit, match="is partitioned by day, place"):
        Ingest().run(house.attempt(token=3, partition_by=["day"]))
