"""Rows of a PostgreSQL table that change while they are read, some committed late: none missing and none twice."""

import time
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("adbc_driver_postgresql", reason="the extra `spark` is not installed")

from node.cli.local import wait_for
from spark_tasks.spark.session import spark_session
from testkit.changing.rows import ChangingRows, wrong_versions
from testkit.spark.databases import EtlDatabase

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def _follow(database: EtlDatabase, spark: "SparkSession", params: dict[str, Any], batches: int, pause_s: float) -> None:
    """Run attempts, one for each run, until there were so many batches; all in one Spark session."""
    done, token = 0, 0
    deadline_s = time.monotonic() + 120 + 60 * batches
    while done < batches:
        assert time.monotonic() < deadline_s, f"only {done} batches"
        token += 1
        batches_now = database.run(spark, params, token, token).batches
        assert batches_now <= 1, "a run ends when it has read what was new, though more is new by then"
        done += batches_now
        time.sleep(pause_s)


LAG_S = 3.0


def _changing(database: EtlDatabase, incremental: dict[str, Any], sink: dict[str, Any], batches: int) -> None:
    rows = ChangingRows(database.uri, "src", seed=7, late_s=LAG_S / 3)
    rows.create()
    params = {"source": database.end(table="src"), "incremental": incremental, "sink": sink}
    with spark_session("changing", database.folder / "spark") as spark:
        rows.start()
        try:
            _follow(database, spark, params, batches, pause_s=0.2)
        finally:
            rows.stop()
        if "cursor" in incremental:
            old = f"SELECT coalesce(max(at) <= now() - interval '{LAG_S} s', true) FROM src"
            wait_for("each row is as old as the lag", lambda: database.sql(old) == "t", 60)
        database.run(spark, params, 1_000_000, 1_000_000)
    assert rows.changes > batches
    print(f"{rows.changes} transactions while {batches} batches ran")


WAYS: dict[str, dict[str, Any]] = {"cursor": {"cursor": "at", "lag_s": LAG_S}, "xmin": {"xmin": True}}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("batches", [pytest.param(4, marks=pytest.mark.more), pytest.param(50, marks=pytest.mark.soak)])
def test_nothing_is_missing_and_nothing_twice_of_rows_that_change_while_they_are_read(
    database: EtlDatabase, way: str, batches: int
) -> None:
    _changing(database, WAYS[way], database.end(table="dst", mode="append"), batches)
    assert wrong_versions(dict(database.versions("src")), database.versions("dst")) == []


@pytest.mark.soak
@pytest.mark.parametrize("way", WAYS)
def test_a_copy_of_changing_rows_ends_equal_to_its_source(database: EtlDatabase, way: str) -> None:
    sink = database.end(table="dst", mode="upsert", keys=["id"], tombstone="gone")
    _changing(database, WAYS[way], sink, batches=20)
    assert database.differ("SELECT id, version, at FROM src WHERE NOT gone", "SELECT * FROM dst") == ""
