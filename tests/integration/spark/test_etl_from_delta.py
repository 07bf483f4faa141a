"""ETL from Delta tables to PostgreSQL with real Spark: by versions, equal to plain SQL, each row once."""

import datetime as dt
import json
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("adbc_driver_postgresql", reason="the extra `spark` is not installed")

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from examples.demo import flights
from examples.demo.delays import DELAYS
from spark_tasks.contracts.source import SourceReplaced, SourceUnfit
from spark_tasks.etl.errors import BatchUnfit
from spark_tasks.etl.kind import Etl
from spark_tasks.maintain.kind import Maintain
from spark_tasks.maintain.params import MaintainParams
from spark_tasks.postgres.session import session
from spark_tasks.spark.session import spark_session
from tasks.access import Access, AccessRefused
from testkit.changing.rows import wrong_versions
from testkit.changing.table import ChangingTable
from testkit.fake_context import FakeContext
from testkit.servers.object_store import object_store
from testkit.spark.databases import EtlDatabase

pytestmark = [pytest.mark.integration, pytest.mark.spark]

FEED = {"delta.enableChangeDataFeed": "true"}
VERSIONS = {"versions": True}


def _source(folder: Path, **more: Any) -> dict[str, Any]:
    return {"type": "delta", "table": str(folder), "shared": True} | more


def _days(first: int, last: int) -> pa.Table:
    ids = list(range(first, last))
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": [f"Größe {n}" for n in ids],
            "price": pa.array([Decimal(n) / 100 for n in ids], pa.decimal128(10, 2)),
            "at": pa.array([dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(minutes=n) for n in ids]),
            "day": pa.array([dt.date(2026, 1, 1 + n % 3) if n % 7 else None for n in ids], pa.date32()),
            "place": [f"a/b %{n % 2}" for n in ids],
        }
    )


def _rows(folder: Path) -> pa.Table:
    return DeltaTable(folder).to_pyarrow_table()


def _maintain(scratch: Path, table: Path, **params: Any) -> None:
    """Rewrite the files of the table by the kind for that."""
    given = MaintainParams(table=str(table), shared=True, min_files=2, **params)
    done = Maintain().run(FakeContext(given, scratch, task="tidy", token=7))
    assert done["compared_rows"] == done["rows"] > 0


@pytest.mark.more
def test_what_a_change_feed_says_makes_the_copy_equal_to_its_source(database: EtlDatabase, tmp_path: Path) -> None:
    """Inserts, updates, deletions, a merge, an overwrite and a compaction, in a partitioned table."""
    table = tmp_path / "a table"
    write_deltalake(table, _days(0, 50), partition_by=["day", "place"], configuration=FEED)
    params = {
        "source": _source(table, tombstone="gone", keys=["id"]),
        "incremental": VERSIONS | {"batch_versions": 3},
        "sink": database.end(table="dst", mode="upsert", keys=["id"], tombstone="gone"),
    }
    with spark_session("delta", tmp_path / "spark") as spark:
        first = database.run(spark, params)
        assert (first.rows, first.deleted, first.batches) == (50, 0, 1)
        write_deltalake(table, _days(50, 60), mode="append")
        DeltaTable(table).update(predicate="id % 10 = 3", updates={"name": "'new'"})
        DeltaTable(table).update(predicate="id = 13", updates={"id": "1300"})
        DeltaTable(table).delete("id % 10 = 4")
        DeltaTable(table).delete("day = DATE '2026-01-02' AND place = 'a/b %1'")
        DeltaTable(table).optimize.compact()
        _maintain(tmp_path, table, cluster_by=["id"])
        merge = DeltaTable(table).merge(_days(58, 65), "s.id = t.id", source_alias="s", target_alias="t")
        merge.when_matched_delete("s.id = 59").when_matched_update_all().when_not_matched_insert_all().execute()
        DeltaTable(table).update(predicate="id = 62", updates={"id": "4"})
        later = database.run(spark, params, token=2, run=2)
        assert later.batches == 4
        database.put("expected", _rows(table))
        assert database.differ("SELECT * FROM expected", "SELECT * FROM dst") == ""
        assert later.deleted > 0
        nothing = database.run(spark, params, token=3, run=3)
        assert nothing.batches == 0


@pytest.mark.soak
def test_appended_rows_come_once_and_what_a_compaction_moves_does_not(database: EtlDatabase, tmp_path: Path) -> None:
    table = tmp_path / "table"
    for number in range(4):
        write_deltalake(table, _days(10 * number, 10 * number + 10), mode="append")
    params = {
        "source": _source(table),
        "incremental": VERSIONS,
        "sink": database.end(table="dst", mode="append"),
    }
    with spark_session("delta", tmp_path / "spark") as spark:
        assert database.run(spark, params).rows == 40
        DeltaTable(table).optimize.compact()
        _maintain(tmp_path, table, cluster_by=["id"])
        assert database.run(spark, params, token=2, run=2).rows == 0
        write_deltalake(table, _days(40, 45).append_column("more", [["x"] * 5]), mode="append", schema_mode="merge")
        database.sql("ALTER TABLE dst ADD COLUMN more text")
        assert database.run(spark, params, token=3, run=3).rows == 5
        database.put("expected", _rows(table))
        assert database.differ("SELECT * FROM expected", "SELECT * FROM dst") == ""
        DeltaTable(table).delete("id < 3")
        write_deltalake(table, _days(45, 50), mode="append", schema_mode="merge")
        with pytest.raises(SourceUnfit, match="version 8 updated or deleted rows: give `tombstone`"):
            database.run(spark, params, token=4, run=4)
        params["source"]["on_rewrite"] = "skip"
        assert database.run(spark, params, token=5, run=5).rows == 5
        assert database.sql("SELECT count(*) FROM dst") == "50"


@pytest.mark.soak
def test_totals_of_a_delta_table_equal_plain_sql_row_by_row(database: EtlDatabase, tmp_path: Path) -> None:
    """336,776 flights joined with planes and weather, each in a Delta table."""
    flights.load(database.sql)
    for name in ("flights", "planes", "weather"):
        with session(database.uri) as opened, opened.connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {name}")
            write_deltalake(tmp_path / name, cursor.fetch_arrow_table())
    params = {
        "source": _source(tmp_path / "flights"),
        "lookups": {name: _source(tmp_path / name) for name in ("planes", "weather")},
        "transform": {"sql": DELAYS.format(flights="source")},
        "sink": database.end(table="delays", mode="replace"),
    }
    began_s = time.monotonic()
    result = Etl().run(database.attempt(params))
    print(f"{result['rows']} rows of 336776 flights in {time.monotonic() - began_s:.1f} s")
    assert database.differ(DELAYS.format(flights="flights"), "SELECT * FROM delays") == ""


@pytest.mark.soak
def test_a_table_that_cannot_be_read_on_is_named_with_what_to_do(database: EtlDatabase, tmp_path: Path) -> None:
    table = tmp_path / "table"
    params = {
        "source": _source(table),
        "incremental": VERSIONS,
        "sink": database.end(table="dst", mode="append"),
    }
    token = iter(range(1, 100))

    def run(**more: Any) -> Any:
        number = next(token)
        return Etl().run(database.attempt(params | more, token=number, run=number))

    with pytest.raises(SourceUnfit, match="there is no Delta table here"):
        run()
    write_deltalake(table, _days(0, 5))
    assert run()["rows"] == 5
    for number in range(5, 8):
        write_deltalake(table, _days(number, number + 1), mode="append")
    [third] = [Path(one) for one in DeltaTable(table).file_uris() if "part" in one and _holds(Path(one), 7)]
    aside = third.rename(tmp_path / "aside")
    with pytest.raises(BatchUnfit, match=r"SourceUnfit: .*\.parquet is gone: a vacuum removed it"):
        run()
    aside.rename(third)
    entry = table / "_delta_log" / f"{2:020d}.json"
    DeltaTable(table).create_checkpoint()
    entry.rename(tmp_path / "entry")
    with pytest.raises(SourceUnfit, match="the log has no entry of version 2 any more"):
        run()
    (tmp_path / "entry").rename(entry)
    assert run()["rows"] == 3
    with pytest.raises(SourceReplaced, match="and the task now says otherwise"):
        run(source=database.end(table="dst"), incremental={"cursor": "id", "lag_s": 0})
    table.rename(tmp_path / "old")
    write_deltalake(table, _days(0, 1))
    with pytest.raises(SourceReplaced, match="it was replaced, or restored to an earlier state"):
        run()
    locked = database.attempt(params, token=next(token))
    locked.access = Access("node-1", ("/nowhere",), source_hosts=("*",), destination_hosts=("*",))
    with pytest.raises(AccessRefused, match="allows no such source"):
        Etl().run(locked)


def _holds(file: Path, key: int) -> bool:
    from pyarrow import parquet

    return key in parquet.read_table(file).column("id").to_pylist()


@pytest.mark.soak
def test_a_restored_copy_with_other_versions_of_the_same_numbers_is_noticed(
    database: EtlDatabase, tmp_path: Path
) -> None:
    table = tmp_path / "table"
    write_deltalake(table, _days(0, 5))
    before = {path.name: path.read_bytes() for path in (table / "_delta_log").iterdir()}
    write_deltalake(table, _days(5, 6), mode="append")
    params = {
        "source": _source(table),
        "incremental": VERSIONS,
        "sink": database.end(table="dst", mode="append"),
    }
    assert Etl().run(database.attempt(params))["rows"] == 6
    for path in (table / "_delta_log").iterdir():
        path.unlink()
    for name, content in before.items():
        (table / "_delta_log" / name).write_bytes(content)
    for number in (6, 7):
        write_deltalake(table, _days(number, number + 1), mode="append")
    with pytest.raises(SourceReplaced, match="version 1 is not the one that the sink's last batch reaches"):
        Etl().run(database.attempt(params, token=2, run=2))


@pytest.mark.soak
def test_files_outside_of_the_table_are_not_read(database: EtlDatabase, tmp_path: Path) -> None:
    table = tmp_path / "table"
    write_deltalake(table, _days(0, 5))
    params = {
        "source": _source(table),
        "incremental": VERSIONS,
        "sink": database.end(table="dst", mode="append"),
    }
    assert Etl().run(database.attempt(params))["rows"] == 5
    about = {"path": "file:///etc/hosts", "size": 1, "partitionValues": {}, "modificationTime": 0, "dataChange": True}
    entry = table / "_delta_log" / f"{1:020d}.json"
    entry.write_text(json.dumps({"add": about}) + "\n")
    with pytest.raises(SourceUnfit, match="file:///etc/hosts is not in the table's own folder"):
        Etl().run(database.attempt(params, token=2, run=2))
    write_deltalake(tmp_path / "other", _days(5, 6))
    [other] = [Path(one) for one in DeltaTable(tmp_path / "other").file_uris()]
    (table / "link.parquet").symlink_to(other)
    entry.write_text(json.dumps({"add": about | {"path": "link.parquet"}}) + "\n")
    outside = database.attempt(params, token=3, run=3)
    outside.access = Access("node-1", (str(table),), source_hosts=("*",), destination_hosts=("*",))
    with pytest.raises(Exception, match=r"AccessRefused: .*allows no such source"):
        Etl().run(outside)


@pytest.mark.soak
def test_a_table_in_an_object_store_is_read_by_versions(database: EtlDatabase, tmp_path: Path) -> None:
    with object_store() as store:
        url, options = (
            store.url("tables/days"),
            {
                "AWS_ACCESS_KEY_ID": "k",
                "AWS_SECRET_ACCESS_KEY": "s",
                "AWS_ENDPOINT_URL": store.endpoint,
                "AWS_ALLOW_HTTP": "true",
                "AWS_REGION": "us-east-1",
            },
        )
        write_deltalake(url, _days(0, 50), partition_by=["place"], storage_options=options, configuration=FEED)
        database.secrets |= store.secrets
        source = {"type": "delta", "table": url, "options": store.references, "tombstone": "gone", "keys": ["id"]}
        params = {
            "source": source,
            "incremental": VERSIONS,
            "sink": database.end(table="dst", mode="upsert", keys=["id"], tombstone="gone"),
        }
        with spark_session("delta", tmp_path / "spark") as spark:
            assert database.run(spark, params).rows == 50
            DeltaTable(url, storage_options=options).delete("id < 10")
            write_deltalake(url, _days(50, 55), mode="append", storage_options=options)
            later = database.run(spark, params, token=2, run=2)
        assert (later.rows, later.deleted) == (5, 10)
        database.put("expected", DeltaTable(url, storage_options=options).to_pyarrow_table())
        assert database.differ("SELECT * FROM expected", "SELECT * FROM dst") == ""
        refused = database.attempt(params, token=3, run=3)
        refused.access = Access("node-1", destination_hosts=("*",))
        with pytest.raises(AccessRefused, match="ROTA_SOURCE_HOSTS"):
            Etl().run(refused)


def _follow(database: EtlDatabase, params: dict[str, Any], table: ChangingTable, batches: int) -> None:
    table.create()
    done, token, deadline_s = 0, 1, time.monotonic() + 30 * batches
    with spark_session("changing", database.folder / "spark") as spark:
        database.run(spark, params, token=1)
        table.start()
        try:
            while done < batches:
                assert time.monotonic() < deadline_s, f"only {done} batches"
                token += 1
                done += database.run(spark, params, token, token).batches
        finally:
            table.stop()
        database.run(spark, params, 1_000_000, 1_000_000)
    assert table.changes > batches
    print(f"{table.changes} changes while {done} batches ran")


BATCHES = [pytest.param(4, marks=pytest.mark.more), pytest.param(50, marks=pytest.mark.soak)]


@pytest.mark.parametrize("batches", BATCHES)
def test_each_change_of_a_changing_table_comes_once(database: EtlDatabase, tmp_path: Path, batches: int) -> None:
    """Without keys each change in the feed is a row: each version of each row is there once."""
    table = ChangingTable(tmp_path / "table", seed=3)
    params = {
        "source": _source(table.folder, tombstone="gone"),
        "incremental": VERSIONS,
        "transform": {"sql": "SELECT id, version FROM source WHERE NOT gone"},
        "sink": database.end(table="dst", mode="append"),
    }
    _follow(database, params, table, batches)
    read = database.versions("dst")
    assert wrong_versions(table.ever, read) == []
    assert len(read) == sum(table.ever.values())


@pytest.mark.parametrize("batches", BATCHES)
def test_a_copy_of_a_changing_table_ends_equal_to_it(database: EtlDatabase, tmp_path: Path, batches: int) -> None:
    table = ChangingTable(tmp_path / "table", seed=5)
    params = {
        "source": _source(table.folder, tombstone="gone", keys=["id"]),
        "incremental": VERSIONS,
        "sink": database.end(table="dst", mode="upsert", keys=["id"], tombstone="gone"),
    }
    _follow(database, params, table, batches)
    database.put("expected", _rows(table.folder))
    assert database.differ("SELECT id, version FROM expected", "SELECT id, version FROM dst") == ""


@pytest.mark.soak
def test_rows_that_are_appended_to_a_changing_table_come_once(database: EtlDatabase, tmp_path: Path) -> None:
    table = ChangingTable(tmp_path / "table", seed=7, appends_only=True)
    params = {
        "source": _source(table.folder),
        "incremental": VERSIONS,
        "sink": database.end(table="dst", mode="append"),
    }
    _follow(database, params, table, 30)
    database.put("expected", _rows(table.folder))
    assert database.differ("SELECT id, version FROM expected", "SELECT id, version FROM dst") == ""


@pytest.mark.soak
@pytest.mark.parametrize(
    ("features", "settings", "why"),
    [
        (["deletionVectors"], {}, "it has deletion vectors, which this source does not read: set `delta.enableDel"),
        (["columnMapping"], {"delta.columnMapping.mode": "name"}, "it maps columns to other names in its files"),
    ],
)
def test_tables_whose_files_do_not_say_their_rows_are_refused(
    database: EtlDatabase, tmp_path: Path, features: list[str], settings: dict[str, str], why: str
) -> None:
    table = tmp_path / "table"
    write_deltalake(table, _days(0, 5))
    said = [json.loads(line) for line in (table / "_delta_log" / f"{0:020d}.json").read_text().splitlines()]
    [about] = [one["metaData"] for one in said if "metaData" in one]
    schema = json.loads(about["schemaString"])
    for number, column in enumerate(schema["fields"], 1):
        column["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"c{number}"}
    about |= {"schemaString": json.dumps(schema)}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    actions = [{"protocol": protocol}, {"metaData": about | {"configuration": settings}}]
    (table / "_delta_log" / f"{1:020d}.json").write_text("".join(json.dumps(one) + "\n" for one in actions))
    params = {"source": _source(table), "sink": database.end(table="dst", mode="append")}
    with pytest.raises(SourceUnfit, match=why):
        Etl().run(database.attempt(params))
