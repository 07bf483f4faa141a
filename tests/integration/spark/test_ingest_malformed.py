"""Rows that do not fit their columns, with real Spark: they fail their file, or are in the quarantine, once."""

import gzip
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

from deltalake import DeltaTable

from spark_tasks.ingest.errors import CountsDiffer, FilesUnfit
from spark_tasks.ingest.kind import RESULT, Ingest
from spark_tasks.ingest.params import IngestParams
from spark_tasks.ingest.writing import BatchWriter, Counts
from spark_tasks.table.part import Part
from spark_tasks.table.quarantine import Quarantine
from testkit.fake_context import FakeContext
from testkit.spark.ingests import Crash, House

pytestmark = [pytest.mark.integration, pytest.mark.spark]

DIRTY = "n,text\n20,fine\nnot a number,x\n21\n22,fine\n"


def _put(house: House, name: str, text: str) -> Path:
    path = house.folder / "in" / name
    path.write_text(text)
    return path


def _quarantined(house: House) -> list[dict[str, Any]]:
    table = DeltaTable(f"{house.table}_quarantine").to_pyarrow_table()
    return sorted(table.to_pylist(), key=lambda row: (row["file"], row["line"]))


@pytest.mark.more
def test_a_malformed_row_fails_its_file_or_is_in_the_quarantine(house: House) -> None:
    house.put_csv(0)
    house.put_csv(1)
    bad = _put(house, "02.csv", DIRTY)
    with pytest.raises(FilesUnfit, match=r"1 of 3 files were not ingested.*02\.csv, line (3|4): (column n|1 fields)"):
        Ingest().run(house.attempt(token=1, columns="n INT, text STRING"))
    assert house.numbers() == list(range(20))
    result = Ingest().run(house.attempt(token=2, malformed="quarantine"))
    assert (result["rows"], result["quarantined"]) == (22, 2), "of this run, by both attempts"
    assert result.keys() == RESULT.keys() - {"expect"}
    assert result["quarantine"] == f"{house.table}_quarantine"
    assert house.numbers() == [*range(20), 20, 22]
    about = {"file": str(bad), "batch": 2, "run": "flights~1"}
    assert _quarantined(house) == [
        about | {"line": 3, "text": "not a number,x", "reason": "column n: 'not a number' is not int"},
        about | {"line": 4, "text": "21", "reason": "1 fields where there are 2 columns"},
    ]
    assert not list(house.table.rglob("*.malformed.jsonl")), "they are in one place"


@pytest.mark.more
def test_json_lines_and_compressed_files_are_searched_for_their_lines(house: House) -> None:
    _put(house, "a.json", '{"n":1}\nrubbish\n{"n":"x"}\n{"n":2}\n')
    (house.folder / "in" / "b.json.gz").write_bytes(gzip.compress(b'{"n":3}\n\n[]\n7\n'))
    result = Ingest().run(
        house.attempt(
            format="json", source=f"{house.folder}/in/*.json*", columns="n INT", malformed="quarantine", batch_files=9
        )
    )
    rows = _quarantined(house)
    assert result["quarantined"] == len(rows)
    assert [(Path(row["file"]).name, row["line"]) for row in rows][:2] == [("a.json", 2), ("a.json", 3)]
    assert rows[0]["reason"].startswith("not JSON")
    assert rows[1]["reason"] == "column n: 'x' is not int"
    assert (Path(rows[-1]["file"]).name, rows[-1]["line"], rows[-1]["text"]) == ("b.json.gz", 4, "7")


TBL: dict[str, Any] = {"format": "tbl", "columns": "n INT, text STRING"}


@pytest.mark.more
def test_tbl_files_end_each_field_with_the_delimiter(house: House) -> None:
    _put(house, "a.tbl", '1|say "hi"|\n2||\n3|a,b|\n')
    assert Ingest().run(house.attempt(**TBL))["rows"] == 3
    rows = DeltaTable(house.table).to_pyarrow_table().sort_by("n").to_pylist()
    assert [row["text"] for row in rows] == ['say "hi"', None, "a,b"]
    bad = _put(house, "b.tbl", "4|ok|\n5|no end\n6|too|many|\nx|y|\n")
    with pytest.raises(FilesUnfit, match=r"b\.tbl, line 2: it does not end with '\|'"):
        Ingest().run(house.attempt(token=2, **TBL))
    result = Ingest().run(house.attempt(token=3, malformed="quarantine", **TBL))
    assert (result["rows"], result["quarantined"]) == (4, 3)
    assert house.numbers() == [1, 2, 3, 4]
    assert [(row["file"], row["line"], row["reason"]) for row in _quarantined(house)] == [
        (str(bad), 2, "it does not end with '|'"),
        (str(bad), 3, "3 fields where there are 2 columns"),
        (str(bad), 4, "column n: 'x' is not int"),
    ]


def _crash_before_the_commit(context: FakeContext[IngestParams], patch: pytest.MonkeyPatch) -> None:
    def die(value: Any) -> None:
        if value["intent"] == 1:
            raise Crash

    context.before_checkpoint = die


def _crash_before_the_quarantine(context: FakeContext[IngestParams], patch: pytest.MonkeyPatch) -> None:
    def die(self: Quarantine, page: Any) -> None:
        raise Crash

    patch.setattr(Quarantine, "put", die)


def _crash_before_the_file_is_removed(context: FakeContext[IngestParams], patch: pytest.MonkeyPatch) -> None:
    def die(self: Quarantine) -> None:
        if (Path(self.place.path) / "_delta_log" / f"{1:020d}.json").exists():
            raise Crash

    patch.setattr(Quarantine, "sync_log", die)


@pytest.mark.parametrize(
    "crash",
    [
        pytest.param(_crash_before_the_commit, marks=pytest.mark.more),
        _crash_before_the_quarantine,
        pytest.param(_crash_before_the_file_is_removed, marks=pytest.mark.more),
    ],
)
def test_a_malformed_row_is_in_the_quarantine_once_after_a_crash(house: House, crash: Any) -> None:
    house.put_csv(0)
    _put(house, "02.csv", DIRTY)
    params: dict[str, Any] = {"columns": "n INT, text STRING", "malformed": "quarantine"}
    lost = house.attempt(token=1, **params)
    with pytest.MonkeyPatch.context() as patch:
        crash(lost, patch)
        with pytest.raises(Crash):
            Ingest().run(lost)
    heir = house.attempt(token=2, **params)
    heir.checkpoint = lost.saved[-1] if lost.saved else None
    result = Ingest().run(heir)
    assert (result["rows"], result["quarantined"]) == (12, 2)
    assert house.numbers() == [*range(10), 20, 22]
    assert [row["line"] for row in _quarantined(house)] == [3, 4]
    assert not list(house.table.rglob("*.malformed.jsonl"))


@pytest.mark.more
def test_rows_that_do_not_add_up_are_not_committed(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.put_csv(0)
    write = BatchWriter.write

    def one_more(self: BatchWriter, *args: Any, **kwargs: Any) -> tuple[tuple[Part, ...], Counts]:
        parts, counts = write(self, *args, **kwargs)
        return parts, Counts(counts.read + 1, counts.quarantined)

    monkeypatch.setattr(BatchWriter, "write", one_more)
    with pytest.raises(CountsDiffer, match="11 rows, of which 10 were written, 0 kept as malformed and 0 dropped"):
        Ingest().run(house.attempt())
    assert not (house.table / "_delta_log").exists()
