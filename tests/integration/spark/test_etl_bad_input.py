"""What sources and sinks of an `etl` meet that is not as the task says: each has a stated outcome."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("adbc_driver_postgresql", reason="the extra `spark` is not installed")
pytest.importorskip("moto.server", reason="moto[server] is not installed")
pytest.importorskip("s3fs", reason="the extra `s3` is not installed")

import shutil

from deltalake import DeltaTable, write_deltalake
from pyarrow import dataset, table

from spark_tasks.contracts.source import SourceUnfit
from spark_tasks.etl.errors import BatchFailed
from spark_tasks.etl.kind import Etl
from spark_tasks.files.listing import NoSourceFiles
from spark_tasks.http.client import ApiAway
from spark_tasks.postgres.session import QueryFailed, QueryUnfit, ServerRefused
from spark_tasks.postgres.sink import PostgresSink
from spark_tasks.spark.session import spark_session
from tasks.kind import Unretryable
from tasks.places.place import NoBucket
from testkit.faults import small_disk
from testkit.servers.api_server import Request, Response, api_server, as_json
from testkit.servers.object_store import ObjectStore, object_store
from testkit.spark.cluster_work import started
from testkit.spark.databases import EtlDatabase
from testkit.spark.etl_sinks import at_step
from testkit.spark.ingests import House
from testkit.spark.tables import InFolder

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.more]


def _rows(database: EtlDatabase, columns: str = "id, v") -> str:
    return database.sql(f"SELECT {columns} FROM dst ORDER BY 1")


def test_a_column_whose_type_changed_at_the_source_is_refused_by_the_sink_and_nothing_of_the_batch_is_in(
    database: EtlDatabase, tmp_path: Path
) -> None:
    database.sql("CREATE TABLE src (id int, v int); INSERT INTO src VALUES (1, 10)")
    params = {
        "source": database.end(table="src"),
        "incremental": {"cursor": "id", "lag_s": 0},
        "sink": database.end(table="dst", mode="append"),
    }
    with spark_session("types", tmp_path / "spark") as spark:
        assert database.run(spark, params).rows == 1
        database.sql("ALTER TABLE src ALTER v TYPE text; INSERT INTO src VALUES (2, '20'), (3, 'seven')")
        with pytest.raises(
            QueryUnfit, match=r'"dst", column v, which is integer(, value seven)?: invalid input .* "seven"'
        ):
            database.run(spark, params, token=2, run=2)
        assert _rows(database) == "1|10"
        database.sql("UPDATE src SET v = '30' WHERE id = 3")
        assert database.run(spark, params, token=3, run=3).rows == 2
        database.sql("ALTER TABLE src DROP v; INSERT INTO src VALUES (4)")
        assert database.run(spark, params, token=4, run=4).rows == 1
    assert _rows(database) == "1|10\n2|20\n3|30\n4|"


def test_a_table_that_was_rewritten_at_the_source_comes_whole_again_by_xmin(
    database: EtlDatabase, tmp_path: Path
) -> None:
    """As sources.md says: an `ALTER TABLE` that writes each row anew gives each a new xmin. VACUUM FULL does not."""
    database.sql("CREATE TABLE src (id int, v int); INSERT INTO src VALUES (1, 10), (2, 20)")
    params = {
        "source": database.end(table="src"),
        "incremental": {"xmin": True},
        "sink": database.end(table="dst", mode="append"),
    }
    with spark_session("types", tmp_path / "spark") as spark:
        assert database.run(spark, params).rows == 2
        database.sql("VACUUM FULL src")
        assert database.run(spark, params, token=2, run=2).rows == 0
        database.sql("ALTER TABLE src ALTER v TYPE bigint")
        assert database.run(spark, params, token=3, run=3).rows == 2


def test_a_delta_table_that_was_overwritten_with_another_type_fails_the_run(
    database: EtlDatabase, tmp_path: Path
) -> None:
    folder = tmp_path / "table"
    write_deltalake(folder, table({"id": [1], "v": [10]}))
    params = {
        "source": {"type": "delta", "table": str(folder), "shared": True},
        "incremental": {"versions": True},
        "sink": database.end(table="dst", mode="append"),
    }
    with spark_session("types", tmp_path / "spark") as spark:
        assert database.run(spark, params).rows == 1
        write_deltalake(folder, table({"id": [1], "v": ["ten"]}), mode="overwrite", schema_mode="overwrite")
        with pytest.raises(SourceUnfit, match="version 1 updated or deleted rows"):
            database.run(spark, params, token=2, run=2)
    assert _rows(database) == "1|10"


def test_a_unique_key_that_a_row_violates_is_named_and_nothing_of_the_batch_is_in(
    database: EtlDatabase, tmp_path: Path
) -> None:
    database.sql(
        "CREATE TABLE src AS SELECT n AS id, 'v' || n AS v FROM generate_series(1, 100) n;"
        "CREATE TABLE dst (id int, v text UNIQUE); INSERT INTO dst VALUES (0, 'v77')"
    )
    params = {"source": database.end(table="src"), "sink": database.end(table="dst", mode="append")}
    with spark_session("unique", tmp_path / "spark") as spark:
        with pytest.raises(QueryUnfit, match=r'"dst": duplicate key value .*: Key \(v\)=\(v77\) already exists'):
            database.run(spark, params)
        assert _rows(database) == "0|v77"
        database.sql("DELETE FROM dst")
        assert database.run(spark, params, token=2).rows == 100
    assert database.staged() == "0"


NO_DISKS = pytest.mark.skipif(small_disk.why_not() is not None, reason=str(small_disk.why_not()))


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder whose disk has 64 MiB."""
    disk = small_disk.SmallDisk(tmp_path / "disk")
    try:
        yield disk.folder
    finally:
        disk.close()


@NO_DISKS
def test_a_database_without_room_fails_the_attempt_and_the_next_goes_on(database: EtlDatabase, tmp_path: Path) -> None:
    disk = small_disk.SmallDisk(database.server.folder / "disk")
    try:
        shutil.chown(disk.folder, "nobody")
        database.sql(f"CREATE TABLESPACE small LOCATION '{disk.folder}'")
        database.sql(
            "CREATE TABLE src AS SELECT n AS id, (SELECT string_agg(md5(n || '/' || k), '') "
            "FROM generate_series(1, 100) k) AS v FROM generate_series(1, 30000) n;"
            "CREATE TABLE dst (id int, v text) TABLESPACE small"
        )
        params = {"source": database.end(table="src"), "sink": database.end(table="dst", mode="append")}
        with spark_session("room", tmp_path / "spark") as spark:
            with pytest.raises(QueryFailed, match=r"No space left on device.*53100") as told:
                database.run(spark, params)
            assert not isinstance(told.value, Unretryable)
            assert database.sql("SELECT count(*) FROM dst") == "0"
            database.sql(
                "DROP TABLE dst; CREATE TABLE dst (id int, v text) TABLESPACE small; DELETE FROM src WHERE id > 1000"
            )
            assert database.run(spark, params, token=2).rows == 1000
        assert database.differ("SELECT * FROM src", "SELECT * FROM dst") == ""
        assert database.staged() == "0"
    finally:
        database.sql("DROP TABLE IF EXISTS dst")
        database.sql("DROP TABLESPACE IF EXISTS small")
        disk.close()


def _large(path: Path, rows: int) -> None:
    """An SQLite file with rows that no compression makes small."""
    with closing(sqlite3.connect(path)) as opened, opened:
        opened.execute("CREATE TABLE src (id INTEGER, v BLOB)")
        opened.executemany("INSERT INTO src VALUES (?, randomblob(50000))", ((n,) for n in range(rows)))


@NO_DISKS
@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_folder_without_room_fails_the_attempt_and_the_next_goes_on(
    full_disk: Path, tmp_path: Path, kind: str
) -> None:
    _large(tmp_path / "app.db", 2000)
    at = str(full_disk / "t")
    named = {"table": at, "mode": "append"} if kind == "delta" else {"folder": at}
    params = {
        "source": {"type": "sqlite", "path": str(tmp_path / "app.db"), "table": "src", "shared": True},
        "incremental": {"cursor": "id", "lag_s": 0, "batch_rows": 500},
        "sink": {"type": kind, "shared": True} | named,
    }
    # In a process of its own: a file that it has not closed takes room until it ends.
    full = started(tmp_path, "spark_tasks.etl.kind:Etl", params, {}, 1, {})
    assert full.ended() != 0
    assert re.search("spark_tasks.etl.errors.BatchFailed: batch 3: .*(No space left|disk is full)", full.said())
    with closing(sqlite3.connect(tmp_path / "app.db")) as opened, opened:
        opened.execute("DELETE FROM src WHERE id >= 1000")
        opened.execute("INSERT INTO src VALUES (2000, NULL)")
    later = started(tmp_path, "spark_tasks.etl.kind:Etl", params, {}, 2, {})
    assert later.ended() == 0, later.said()[-3000:]
    shown = DeltaTable(at).to_pyarrow_table() if kind == "delta" else dataset.dataset(at, format="parquet").to_table()
    ids = shown.column("id").to_pylist()
    assert sorted(ids) == [*range(1000), 2000]


@NO_DISKS
def test_an_ingest_into_a_folder_without_room_fails_and_the_next_goes_on(house: House, full_disk: Path) -> None:
    house.put_csv(0)
    with (house.folder / "in" / "01.csv").open("w") as out:
        out.write("n,text\n")
        with Path("/dev/urandom").open("rb") as source:
            out.writelines(f"{n},{source.read(25_000).hex()}\n" for n in range(10, 2000))
    params = house.params(table=str(full_disk / "t"), batch_files=1, columns="n INT, text STRING")
    # In a process of its own: Spark leaves the file open that it could not write, which takes room until it ends.
    full = started(house.folder, "spark_tasks.ingest.kind:Ingest", params, {}, 1, {})
    assert full.ended() != 0
    assert re.search("spark_tasks.ingest.errors.IngestFailed: batch 2: .*(No space left|disk is full)", full.said())
    house.stored = InFolder(full_disk / "t")
    assert house.numbers() == list(range(10))
    house.put_csv(1)
    later = started(house.folder, "spark_tasks.ingest.kind:Ingest", params, {}, 2, {})
    assert later.ended() == 0, later.said()[-3000:]
    assert house.numbers() == list(range(20))


@pytest.mark.parametrize("end", ["source", "sink"])
def test_a_password_that_expires_midway_fails_the_attempt_and_the_next_has_the_new_one(
    database: EtlDatabase, tmp_path: Path, end: str
) -> None:
    role = f"role_{database.database}"[-60:]
    database.sql(
        "CREATE TABLE src AS SELECT n AS id FROM generate_series(1, 100) n;"
        f"CREATE ROLE {role} SUPERUSER LOGIN PASSWORD 'first'"
    )
    params: dict[str, Any] = {
        "source": database.end(table="src"),
        "incremental": {"cursor": "id", "lag_s": 0, "batch_rows": 40},
        "sink": database.end(table="dst", mode="append"),
    }
    params[end] |= {"url": params[end]["url"].replace("rota@", f"{role}@"), "password": {"secret": "role"}}
    database.secrets["role"] = "first"

    def expire() -> None:
        database.sql(f"ALTER ROLE {role} VALID UNTIL 'yesterday'")

    with spark_session("expired", tmp_path / "spark") as spark:
        with (
            at_step((PostgresSink, "commit", "after"), expire),
            pytest.raises((ServerRefused, BatchFailed), match="password authentication failed") as told,
        ):
            database.run(spark, params)
        assert not isinstance(told.value, Unretryable)
        assert "first" not in str(told.value)
        assert database.sql("SELECT count(*) FROM dst") == "40"
        database.sql(f"ALTER ROLE {role} PASSWORD 'second' VALID UNTIL 'infinity'")
        database.secrets["role"] = "second"
        assert database.run(spark, params, token=2).rows == 60
    assert database.differ("SELECT * FROM src", "SELECT * FROM dst") == ""


def test_a_token_that_expires_between_two_pages_fails_the_attempt_and_the_next_has_the_new_one(
    database: EtlDatabase, tmp_path: Path
) -> None:
    good = {"first": 1, "second": 9}

    def answer(request: Request) -> Response:
        page = int(request.target.rpartition("=")[2])
        if page > good.get(request.headers["Authorization"].removeprefix("Bearer "), 0):
            return as_json({"error": "token expired"}, status=401)
        return as_json([{"id": page}] if page <= 3 else [])

    database.secrets["token"] = "first"
    with api_server(answer) as url:
        source = {"type": "http", "url": f"{url}/rows", "columns": {"id": "bigint"}, "pages": {"parameter": "page"}}
        params = {
            "source": source | {"bearer": {"secret": "token"}},
            "sink": database.end(table="dst", mode="replace"),
        }
        with pytest.raises(ApiAway, match=r"refuses this task's credentials \(401\)") as told:
            Etl().run(database.attempt(params))
        assert not isinstance(told.value, Unretryable)
        assert "first" not in str(told.value)
        database.secrets["token"] = "second"
        with spark_session("expired", tmp_path / "spark") as spark:
            assert database.run(spark, params, token=2).rows == 3


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as running:
        yield running


@pytest.mark.parametrize("kind", ["delta", "parquet", "webhook"])
def test_a_bucket_that_is_not_there_is_named_before_spark_is_started(
    database: EtlDatabase, store: ObjectStore, kind: str
) -> None:
    options = {"options": store.references}
    sink = {
        "delta": {"table": "s3://absent/t", "mode": "append"} | options,
        "parquet": {"folder": "s3://absent/t"} | options,
        "webhook": {"url": "http://127.0.0.1:1/in", "ledger": "s3://absent/t"} | options,
    }[kind]
    database.sql("CREATE TABLE src AS SELECT 1 AS id")
    params = {
        "source": database.end(table="src"),
        "incremental": {"cursor": "id", "lag_s": 0},
        "sink": sink | {"type": kind},
    }
    database.secrets |= store.secrets
    context = database.attempt(params)
    with pytest.raises(NoBucket, match="the bucket 'absent' does not exist"):
        Etl().run(context)
    assert not (context.scratch / "log4j2.properties").exists()


@pytest.mark.parametrize("kind", ["delta", "files"])
def test_a_source_whose_bucket_is_not_there_is_named_before_spark_is_started(
    database: EtlDatabase, store: ObjectStore, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    for name, value in {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.endpoint)
    sources: dict[str, dict[str, Any]] = {
        "delta": {"table": "s3://absent/t", "options": store.references},
        "files": {"files": "s3://absent/t/*.csv", "format": "csv", "columns": "id INT"},
    }
    database.secrets |= store.secrets
    context = database.attempt(
        {"source": sources[kind] | {"type": kind}, "sink": database.end(table="dst", mode="replace")}
    )
    with pytest.raises((NoBucket, NoSourceFiles), match=r"the bucket 'absent' .*does not exist"):
        Etl().run(context)
    assert not (context.scratch / "log4j2.properties").exists()


def test_a_column_is_named_whose_values_the_target_does_not_take(database: EtlDatabase) -> None:
    database.sql(
        "CREATE TABLE src AS SELECT 1 AS id, 2.5 AS price, 'text' AS note; CREATE TABLE days (id int, price date); "
        "CREATE TABLE numbers (id int, note int)"
    )
    wrong = [
        (
            "days",
            "id, price",
            r'"days", column price, which is date(: cannot cast type numeric to date|, value 2.5: invalid input)',
        ),
        (
            "numbers",
            "id, note",
            r'"numbers", column note, which is integer(, value text)?: invalid input syntax .* "text"',
        ),
    ]
    for number, (target, columns, why) in enumerate(wrong, 1):
        params = {
            "source": database.end(query=f"SELECT {columns} FROM src"),
            "sink": database.end(table=target, mode="append"),
        }
        with pytest.raises(QueryUnfit, match=why):
            Etl().run(database.attempt(params, token=number, run=number))
