"""A task whose params are changed between two runs, and one whose cursor is set, with real Spark and PostgreSQL."""

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("adbc_driver_postgresql", reason="the extra `spark` is not installed")

from spark_tasks.contracts.source import SourceReplaced, SourceUnfit
from spark_tasks.etl.cursors import ResetArgs, ShowArgs
from spark_tasks.etl.kind import Etl
from testkit.spark.databases import EtlDatabase
from testkit.spark.shelf import Shelf

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.more]

BY_ID = {"cursor": "id", "lag_s": 0}


def test_no_row_is_left_out_or_appended_twice_after_the_task_was_changed(database: EtlDatabase) -> None:
    database.sql(
        "CREATE TABLE one AS SELECT n AS id FROM generate_series(1, 5) n; "
        "CREATE TABLE two AS SELECT n AS id FROM generate_series(3, 9) n"
    )
    sink = database.end(table="dst", mode="append")
    params: dict[str, Any] = {"source": database.end(table="one"), "incremental": BY_ID, "sink": sink}
    assert Etl().run(database.attempt(params))["cursor"] == {"cursor": "id", "value": "5"}

    other = params | {"source": database.end(table="two")}
    with pytest.raises(SourceReplaced, match=r"read from table one in .* up to '5', and the task now reads table two"):
        Etl().run(database.attempt(other, token=2, run=2))
    shown = Etl().show(database.attempt(other, token=2, run=2), ShowArgs())
    assert shown["cursor"] == {"cursor": "id", "value": "5"}
    assert "read from table one" in shown["next"]["refused"]
    with pytest.raises(SourceReplaced, match="without `incremental` all of them would be appended"):
        Etl().run(database.attempt(params | {"incremental": None}, token=3, run=3))
    with pytest.raises(SourceReplaced, match=r"by the cursor id.* set a cursor of the new way by `rota etl reset`"):
        Etl().run(database.attempt(params | {"incremental": {"xmin": True}}, token=4, run=4))
    assert database.sql("SELECT count(*) FROM dst") == "5"

    assert Etl().reset(database.attempt(other, token=5, run=5), ResetArgs(to="5"))["batch"] == 2
    assert Etl().run(database.attempt(other, token=6, run=6))["rows"] == 4
    assert database.sql("SELECT string_agg(id::text, ',' ORDER BY id) FROM dst") == "1,2,3,4,5,6,7,8,9"


def test_incremental_after_a_run_that_read_all_says_where_to_begin(database: EtlDatabase) -> None:
    database.sql("CREATE TABLE src AS SELECT n AS id FROM generate_series(1, 5) n")
    whole: dict[str, Any] = {"source": database.end(table="src"), "sink": database.end(table="dst", mode="append")}
    assert Etl().run(database.attempt(whole))["cursor"] is None
    by_id = whole | {"incremental": BY_ID}
    with pytest.raises(SourceReplaced, match="after the last value in the sink by `rota etl reset sales --to VALUE`"):
        Etl().run(database.attempt(by_id, token=2, run=2))
    Etl().reset(database.attempt(by_id, token=3, run=3), ResetArgs(to="4"))
    assert Etl().run(database.attempt(by_id, token=4, run=4))["rows"] == 1


def test_all_rows_are_appended_to_a_sink_that_was_emptied_and_reset(database: EtlDatabase) -> None:
    database.sql("CREATE TABLE src AS SELECT n AS id FROM generate_series(1, 5) n")
    whole: dict[str, Any] = {"source": database.end(table="src"), "sink": database.end(table="dst", mode="append")}
    Etl().run(database.attempt(whole | {"incremental": BY_ID}))
    database.sql("DELETE FROM dst")
    with pytest.raises(SourceReplaced, match="or empty the sink and say so by `rota etl reset sales`"):
        Etl().run(database.attempt(whole, token=2, run=2))
    Etl().reset(database.attempt(whole, token=3, run=3), ResetArgs())
    assert Etl().run(database.attempt(whole, token=4, run=4))["rows"] == 5
    assert database.sql("SELECT count(*) FROM dst") == "5"


def test_a_text_is_no_cursor_of_numbers_in_sqlite(shelf: Shelf) -> None:
    """To SQLite it is greater than each number, so that nothing would be new again."""
    shelf.numbers(3)
    sink = {"type": "sqlite", "path": str(shelf.folder / "dst.db"), "table": "dst", "mode": "append", "shared": True}
    params = shelf.params("SELECT id FROM source") | {"sink": sink, "incremental": BY_ID}
    Etl().run(shelf.attempt(params))
    with pytest.raises(SourceUnfit, match=r"'2026-01-05' is text, and the column id of .* has numbers"):
        Etl().reset(shelf.attempt(params, token=2, run=2), ResetArgs(to="2026-01-05"))
