"""All 336,776 flights of a year, by month from files to a Delta table, and on to another one: as by plain SQL."""

import time
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("adbc_driver_postgresql", reason="the extra `spark` is not installed")

from deltalake import DeltaTable, write_deltalake

from examples.demo import flights
from spark_tasks.ingest.kind import Ingest
from spark_tasks.spark.session import spark_session
from testkit.fake_context import FakeContext
from testkit.spark.databases import EtlDatabase

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.more]

COLUMNS: Final = {
    **dict.fromkeys(
        ("year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay"),
        "INT",
    ),
    "carrier": "STRING",
    "flight": "INT",
    "tailnum": "STRING",
    "origin": "STRING",
    "dest": "STRING",
    **dict.fromkeys(("air_time", "distance", "hour", "minute"), "INT"),
    "time_hour": "TIMESTAMP",
}
NAMES: Final = ", ".join(COLUMNS)
KEYS: Final = ["time_hour", "carrier", "flight"]
"""What names a flight."""


def _table(folder: Path) -> Any:
    return DeltaTable(folder).to_pyarrow_table()


def test_files_by_month_become_a_table_and_its_versions_another_one(database: EtlDatabase, tmp_path: Path) -> None:
    flights.load(database.sql)
    files = flights.write_monthly_files(tmp_path / "months")
    (tmp_path / "in").mkdir()
    first, second = tmp_path / "first", tmp_path / "second"
    params = Ingest.Params(
        source=f"{tmp_path}/in/*.csv",
        format="csv",
        columns=", ".join(f"{name} {kind}" for name, kind in COLUMNS.items()),
        null_value="NA",
        table=str(first),
        batch_files=1,
    )
    copy = {
        "source": {"type": "delta", "table": str(first), "shared": True},
        "incremental": {"versions": True, "batch_versions": 1},
        "sink": {"type": "delta", "table": str(second), "mode": "append", "shared": True},
    }
    months = 0
    for token, (some, batches) in enumerate(((files[:5], 1), (files[5:], 7)), 1):
        for file in some:
            file.rename(tmp_path / "in" / file.name)
        began_s = time.monotonic()
        result = Ingest().run(FakeContext(params, tmp_path / f"ingest-{token}", token=token, run_id=f"task~{token}"))
        months += result["batches"]
        ingested_s = time.monotonic() - began_s
        with spark_session("copy", tmp_path / f"spark-{token}") as spark:
            began_s = time.monotonic()
            copied = database.run(spark, copy, token, token)
        assert copied.rows == result["rows"]
        assert copied.batches >= batches, "one for each version, of which some brought no rows"
        print(f"{result['rows']} flights in {ingested_s:.1f} s, copied in {time.monotonic() - began_s:.1f} s")
    assert months == 12
    for table in (first, second):
        database.put("found", _table(table))
        assert database.differ(f"SELECT {NAMES} FROM flights", f"SELECT {NAMES} FROM found") == ""
    assert database.sql("SELECT count(*) FROM found") == str(flights.FLIGHTS)


def test_what_is_changed_in_a_table_is_merged_into_another_one(database: EtlDatabase, tmp_path: Path) -> None:
    flights.load(database.sql)
    first, second = tmp_path / "first", tmp_path / "second"
    database.sql(f"CREATE TABLE told AS SELECT {NAMES} FROM flights")
    rows = database.rows("SELECT * FROM told")
    write_deltalake(first, rows, partition_by=["month"], configuration={"delta.enableChangeDataFeed": "true"})
    params = {
        "source": {"type": "delta", "table": str(first), "shared": True, "tombstone": "gone", "keys": KEYS},
        "incremental": {"versions": True},
        "sink": {"type": "delta", "table": str(second), "mode": "merge", "shared": True}
        | {"keys": KEYS, "tombstone": "gone"},
    }
    with spark_session("merge", tmp_path / "spark") as spark:
        began_s = time.monotonic()
        assert database.run(spark, params).rows == flights.FLIGHTS
        copied_s = time.monotonic() - began_s
        for where, what in (("month = 2 AND carrier = 'HA'", "arr_delay = 0"), ("dest = 'SEA'", "distance = 1")):
            column, _, value = what.partition(" = ")
            DeltaTable(first).update(predicate=where, updates={column: value})
            database.sql(f"UPDATE told SET {what} WHERE {where}")
        for where in ("month = 5 AND day = 7", "dep_time IS NULL AND carrier = 'UA'"):
            DeltaTable(first).delete(where)
            database.sql(f"DELETE FROM told WHERE {where}")
        began_s = time.monotonic()
        later = database.run(spark, params, token=2, run=2)
    print(
        f"{flights.FLIGHTS} flights in {copied_s:.1f} s; {later.rows} changed and {later.deleted} deleted in "
        f"{time.monotonic() - began_s:.1f} s"
    )
    for table in (first, second):
        database.put("found", _table(table))
        assert database.differ(f"SELECT {NAMES} FROM told", f"SELECT {NAMES} FROM found") == ""
