"""`rota etl reset`: a batch without rows sets the cursor, in the sinks that keep it in a file or a folder. No Spark."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

from spark_tasks.contracts.sink import CursorSink, SinkOvertaken, SinkUnfit
from spark_tasks.delta.sink import DeltaSink
from spark_tasks.etl.cursors import ResetArgs, ShowArgs
from spark_tasks.etl.errors import CursorUnfit
from spark_tasks.etl.kind import Etl
from spark_tasks.etl.params import EtlParams
from spark_tasks.etl.parts import sink_of
from tasks.kind import Fenced
from testkit.fake_context import FakeContext
from testkit.spark.tables import SCHEMA

pytestmark = pytest.mark.integration


class Bench:
    """A source of ten rows, and a sink of one type that no batch has reached yet."""

    def __init__(self, folder: Path, sink: str) -> None:
        self.folder = folder
        self.attempts = 0
        out = str(folder / "out")
        self.sink: dict[str, Any] = {
            "sqlite": {"type": "sqlite", "path": out, "table": "dst", "mode": "append"},
            "delta": {"type": "delta", "table": out, "mode": "append"},
            "parquet": {"type": "parquet", "folder": out},
        }[sink]
        with closing(sqlite3.connect(folder / "app.db")) as database, database:
            database.execute("CREATE TABLE src (n INTEGER PRIMARY KEY)")
            database.executemany("INSERT INTO src VALUES (?)", ((n,) for n in range(1, 11)))

    def attempt(self, token: int, whole: bool = False) -> FakeContext[EtlParams]:
        self.attempts += 1
        source = {"type": "sqlite", "path": str(self.folder / "app.db"), "table": "src"}
        incremental = None if whole else {"cursor": "n", "lag_s": 0}
        params = {"source": source, "incremental": incremental, "sink": self.sink}
        scratch = self.folder / f"scratch-{self.attempts}"
        scratch.mkdir()
        return FakeContext(EtlParams.model_validate(params), scratch, run_id=f"task~{token}", token=token)

    def shown(self) -> tuple[int, int | None, Any, Any]:
        """The last batch, its token, its cursor, and above what the next batch would read; as nobody in particular."""
        found = Etl().show(self.attempt(99), ShowArgs())
        return found["batch"], found["token"], found["cursor"], found["next"] and found["next"]["above"]


@pytest.fixture(params=["sqlite", "delta", "parquet"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    made = Bench(tmp_path, request.param)
    if request.param == "delta":
        sink = sink_of(made.attempt(1))
        assert isinstance(sink, DeltaSink)
        sink.table.opened(SCHEMA)
    return made


def test_a_reset_is_a_batch_of_its_own_under_its_token(bench: Bench) -> None:
    assert bench.shown() == (0, None, None, None)
    done = Etl().reset(bench.attempt(3), ResetArgs(to="7"))
    assert (done["batch"], done["token"], done["cursor"]) == (1, 3, {"cursor": "n", "value": 7})
    assert bench.shown() == (1, 3, {"cursor": "n", "value": 7}, 7)
    Etl().reset(bench.attempt(4), ResetArgs(to="10"))
    assert bench.shown() == (2, 4, {"cursor": "n", "value": 10}, None), "nothing is new"
    Etl().reset(bench.attempt(5), ResetArgs())
    assert bench.shown() == (3, 5, None, None)


def test_a_task_that_reads_its_source_whole_is_shown_and_reset_without_a_cursor(bench: Bench) -> None:
    assert Etl().reset(bench.attempt(3, whole=True), ResetArgs())["cursor"] is None
    found = Etl().show(bench.attempt(4, whole=True), ShowArgs())
    assert (found["batch"], found["cursor"], found["next"]) == (1, None, {"whole": True})
    with pytest.raises(CursorUnfit, match="reads its source whole, so that it has no cursor"):
        Etl().reset(bench.attempt(5, whole=True), ResetArgs(to="7"))


def test_one_that_was_overtaken_sets_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    Etl().reset(bench.attempt(3), ResetArgs(to="7"))

    def fenced(value: Any) -> None:
        raise Fenced

    late = bench.attempt(2)
    late.before_checkpoint = fenced
    with pytest.raises(Fenced):
        Etl().reset(late, ResetArgs(to="2"))
    old, new = bench.attempt(4), sink_of(bench.attempt(5))
    assert isinstance(new, CursorSink)
    move = type(new).move

    def overtaken(self: Any, *given: Any) -> None:
        assert new.claim(5, instead_of=4)
        move(self, *given)

    monkeypatch.setattr(type(new), "move", overtaken)
    with pytest.raises(SinkOvertaken, match="token 5, not 4, holds"):
        Etl().reset(old, ResetArgs(to="2"))
    assert bench.shown() == (1, 3, {"cursor": "n", "value": 7}, 7)


def test_a_delta_table_that_is_not_there_yet_has_no_cursor_to_set(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "delta")
    with pytest.raises(SinkUnfit, match="is not there yet, and its log keeps the cursor: let the task run once"):
        Etl().reset(bench.attempt(1), ResetArgs(to="7"))
    assert bench.shown() == (0, None, None, None)
