"""What a client may ask of an ETL beside its work: a preview, and its cursor, with real Spark."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("adbc_driver_postgresql", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

from deltalake import DeltaTable
from pyarrow import dataset

from spark_tasks.etl.cursors import ResetArgs, ShowArgs
from spark_tasks.etl.errors import CursorUnfit
from spark_tasks.etl.kind import SHOWN, Etl
from spark_tasks.etl.transform import TransformUnfit
from spark_tasks.postgres.session import QueryUnfit
from spark_tasks.spark.sample import PreviewArgs
from tasks.kind import Fenced
from testkit.spark.databases import PASSWORD, EtlDatabase
from testkit.spark.shelf import Shelf

pytestmark = [pytest.mark.integration, pytest.mark.spark]


@pytest.mark.more
def test_a_preview_shows_what_would_be_written_and_writes_nothing(database: EtlDatabase) -> None:
    database.sql("CREATE TABLE src AS SELECT n AS id, n * 10 AS v FROM generate_series(1, 100) n")
    params = {
        "source": database.end(table="src"),
        "incremental": {"cursor": "id", "lag_s": 0},
        "transform": {"sql": "SELECT id, v * 2 AS twice FROM source WHERE id > 3 ORDER BY id"},
        "sink": database.end(table="dst", mode="append"),
    }
    context = database.attempt(params)
    shown = Etl().preview(context, PreviewArgs(rows=2))
    assert shown["columns"] == [{"name": "id", "type": "int"}, {"name": "twice", "type": "int"}]
    assert (shown["rows"], shown["more"]) == ([[4, 80], [5, 100]], True)
    assert "Sort" in shown["plan"]
    assert PASSWORD not in json.dumps(shown)
    assert context.saved == []
    assert database.sql("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'rota_%' OR tablename = 'dst'") == "0"
    with pytest.raises(TransformUnfit, match="nope"):
        Etl().preview(database.attempt(params | {"transform": {"sql": "SELECT nope FROM source"}}), PreviewArgs())


@pytest.mark.soak
def test_the_cursor_is_shown_and_set_in_the_sink_by_a_batch_of_its_own(database: EtlDatabase) -> None:
    database.sql("CREATE TABLE src AS SELECT n AS id FROM generate_series(1, 10) n")
    params = {
        "source": database.end(table="src"),
        "incremental": {"cursor": "id", "lag_s": 0},
        "sink": database.end(table="dst", mode="append"),
    }
    assert Etl().run(database.attempt(params))["rows"] == 10
    shown = Etl().show(database.attempt(params, token=2, run=2), ShowArgs())
    assert set(shown) == set(SHOWN)
    assert (shown["batch"], shown["cursor"], shown["next"]) == (1, {"cursor": "id", "value": "10"}, None)
    with pytest.raises(QueryUnfit, match="invalid input syntax"):
        Etl().reset(database.attempt(params, token=3, run=3), ResetArgs(to="x"))

    def fenced(value: Any) -> None:
        raise Fenced

    late = database.attempt(params, token=4, run=4)
    late.before_checkpoint = fenced
    with pytest.raises(Fenced):
        Etl().reset(late, ResetArgs(to="2"))
    done = Etl().reset(database.attempt(params, token=5, run=5), ResetArgs(to="7"))
    assert (done["batch"], done["token"], done["cursor"]) == (2, 5, {"cursor": "id", "value": "7"})

    def reset(value: Any) -> None:
        """Another attempt resets the cursor once this one has planned its batch."""
        if value["plan"] is not None and not again.saved[1:]:
            Etl().reset(database.attempt(params, token=7, run=7), ResetArgs(to="8"))

    again = database.attempt(params, token=6, run=6)
    again.before_checkpoint = reset
    assert Etl().run(again)["rows"] == 2, "it was overtaken, and went on from the new cursor"
    assert database.sql("SELECT string_agg(id::text, ',' ORDER BY id) FROM dst") == "1,2,3,4,5,6,7,8,9,9,10,10"
    assert database.staged() == "0"
    whole = {key: value for key, value in params.items() if key != "incremental"}
    with pytest.raises(CursorUnfit, match="reads its source whole"):
        Etl().reset(database.attempt(whole, token=8, run=8), ResetArgs(to="7"))


@pytest.mark.more
@pytest.mark.parametrize("sink", ["sqlite", "delta", "parquet"])
def test_rows_above_a_cursor_that_was_set_are_read_again(shelf: Shelf, sink: str) -> None:
    shelf.numbers(10)
    out = str(shelf.folder / "out" / "dst")
    given: dict[str, Any] = {
        "sqlite": {"type": "sqlite", "path": out, "table": "dst", "mode": "append", "shared": True},
        "delta": {"type": "delta", "table": out, "mode": "append", "shared": True},
        "parquet": {"type": "parquet", "folder": out, "shared": True},
    }[sink]
    params = shelf.params("SELECT id FROM source") | {"sink": given, "incremental": {"cursor": "id", "lag_s": 0}}
    assert Etl().run(shelf.attempt(params))["rows"] == 10
    assert Etl().reset(shelf.attempt(params, token=2, run=2), ResetArgs(to="7"))["batch"] == 2
    again = Etl().run(shelf.attempt(params, token=3, run=3))
    assert (again["rows"], again["cursor"]) == (3, {"cursor": "id", "value": 10})
    if sink == "sqlite":
        found = [row for (row,) in shelf.sql("SELECT id FROM dst", file=Path(out))]
    else:
        rows = DeltaTable(out).to_pyarrow_table() if sink == "delta" else dataset.dataset(out).to_table()
        found = rows.column("id").to_pylist()
    assert sorted(found) == sorted([*range(1, 11), 8, 9, 10])
