"""Rows of an SQLite file that change while they are read: what is promised, and what is not."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("adbc_driver_postgresql", reason="the extra `spark` is not installed")

from spark_tasks.spark.session import spark_session
from testkit.changing.rows import wrong_versions
from testkit.changing.sqlite import ChangingSqlite
from testkit.spark.databases import EtlDatabase

pytestmark = [pytest.mark.integration, pytest.mark.spark]

BATCHES = [pytest.param(4, marks=pytest.mark.more), pytest.param(50, marks=pytest.mark.soak)]
BATCH_S = 30.0
"""How long a batch may take on a busy machine, in seconds."""


@pytest.mark.parametrize("journal", ["wal", "delete"])
@pytest.mark.parametrize("batches", BATCHES)
def test_nothing_is_missing_and_nothing_twice_of_rows_that_change_while_they_are_read(
    database: EtlDatabase, tmp_path: Path, journal: str, batches: int
) -> None:
    rows = ChangingSqlite(tmp_path / "app.db", seed=11, journal=journal)
    rows.create()
    params = {
        "source": {"type": "sqlite", "path": str(rows.path), "table": "src", "shared": True},
        "incremental": {"cursor": "changed", "lag_s": 0, "batch_rows": 100},
        "sink": database.end(table="dst", mode="append"),
    }
    done, token, deadline_s = 0, 0, time.monotonic() + 60 + BATCH_S * batches
    with spark_session("changing", tmp_path / "spark") as spark:
        rows.start()
        try:
            while done < batches:
                assert time.monotonic() < deadline_s, f"only {done} batches"
                token += 1
                done += database.run(spark, params, token, token).batches
        finally:
            rows.stop()
        database.run(spark, params, 1_000_000, 1_000_000)
    assert wrong_versions(rows.versions(), database.versions("dst")) == []
    assert rows.changes > batches
    print(f"{rows.changes} transactions while {done} batches ran")


@pytest.mark.soak
def test_rows_whose_cursor_is_not_above_those_that_were_committed_are_missed(
    database: EtlDatabase, tmp_path: Path
) -> None:
    """What is not promised: a cursor of the time before the transaction, or of a second that is not over."""
    path = tmp_path / "app.db"

    def put(*rows: tuple[int, str]) -> None:
        with closing(sqlite3.connect(path)) as opened, opened:
            opened.execute("CREATE TABLE IF NOT EXISTS src (id INTEGER, at TEXT)")
            opened.executemany("INSERT INTO src VALUES (?, ?)", rows)

    params = {
        "source": {"type": "sqlite", "path": str(path), "table": "src", "shared": True},
        "incremental": {"cursor": "at", "lag_s": 0},
        "sink": database.end(table="dst", mode="append"),
    }
    with spark_session("late", tmp_path / "spark") as spark:
        put((1, "2026-01-01 10:00:00"), (2, "2026-01-01 10:00:05"))
        assert database.run(spark, params).rows == 2
        put((3, "2026-01-01 10:00:04"), (4, "2026-01-01 10:00:05"), (5, "2026-01-01 10:00:06"))
        assert database.run(spark, params, token=2, run=2).rows == 1
    assert database.sql("SELECT string_agg(id::text, ',' ORDER BY id) FROM dst") == "1,2,5"
