"""What a dump's manifest says of the tables, compared with a restored database and with one that has changed."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from examples.demo.postgres import Server, postgres_server
from node.cli.local import wait_for
from tasks.backup.fingerprint import LARGE_OBJECTS, Fingerprint, differing_tables, table_facts
from tasks.backup.kind import Backup
from tasks.backup.manifest import TableFacts, newest_backup
from tasks.backup.params import BackupParams
from tasks.backup.restore import restore_backup
from tasks.backup.sources.postgres_database import Database, PsqlSession
from tasks.backup.sources.postgres_tools import PostgresFailed
from testkit.fake_context import FakeContext

pytestmark = pytest.mark.integration

PASSWORD = "fingerprint"

CONTENT = r"""
CREATE SCHEMA "Größe";
CREATE TABLE "Größe"."it's a ""nice"" table" (id int PRIMARY KEY, "the \ text" text, at timestamptz,
number float8, raw bytea);
INSERT INTO "Größe"."it's a ""nice"" table" SELECT n, md5(n::text), to_timestamp(n), n / 7.0,
decode(md5(n::text), 'hex')
FROM generate_series(1, 5000) n;
CREATE TABLE parted (id int, part int) PARTITION BY LIST (part);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES IN (1);
CREATE TABLE parted_2 PARTITION OF parted FOR VALUES IN (2);
INSERT INTO parted SELECT n, 1 + n % 2 FROM generate_series(1, 101) n;
CREATE TABLE parent (a int);
CREATE TABLE child (c int) INHERITS (parent);
ALTER TABLE parent ADD COLUMN late int;
INSERT INTO parent VALUES (1, 2);
INSERT INTO child VALUES (1, 2, 3), (4, 5, 6);
CREATE TABLE nothing ();
INSERT INTO nothing DEFAULT VALUES;
CREATE UNLOGGED TABLE unlogged (n int);
CREATE TABLE empty (n int);
CREATE MATERIALIZED VIEW old AS SELECT count(*) FROM parent;
SELECT lo_from_bytea(0, convert_to(repeat('large', 300000), 'UTF8')), lo_from_bytea(0, '');
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server(PASSWORD) as running:
        running.sql("postgres", "CREATE DATABASE full_of")
        running.sql("full_of", CONTENT)
        yield running


def _facts(
    server: Server, database: str, scratch: Path, fingerprint: Fingerprint = "content"
) -> tuple[TableFacts, ...]:
    found = Database(server.url(database), scratch, PASSWORD)
    with found.session(found.tools()) as session:
        return table_facts(session.ask, fingerprint)


def _backup(server: Server, tmp_path: Path, database: str, fingerprint: str) -> str:
    source = {"type": "postgres", "url": server.url(database), "password": {"secret": "pg"}, "fingerprint": fingerprint}
    params = BackupParams.model_validate({"source": source, "destination": str(tmp_path / "to")})
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    return str(Backup().run(FakeContext(params, scratch, task="facts", secrets={"pg": PASSWORD}))["url"])


def test_a_restored_database_has_the_facts_of_the_dump(server: Server, tmp_path: Path) -> None:
    url = _backup(server, tmp_path, "full_of", "content")
    (entry,) = newest_backup(url).files
    dumped = entry.tables or ()
    assert {(table.schema_name, table.name): table.rows for table in dumped} == {
        ("Größe", 'it\'s a "nice" table'): 5000,
        ("public", "child"): 2,
        ("public", "empty"): 0,
        ("public", "nothing"): 1,
        ("public", "parent"): 1,
        ("public", "parted_1"): 50,
        ("public", "parted_2"): 51,
        ("public", "unlogged"): 0,
        LARGE_OBJECTS: 2,
    }
    server.sql("postgres", "CREATE DATABASE again")
    restore_backup(url, server.url("again"), password=PASSWORD)
    # Settings of the database change how values look, and the order of the rows is another one.
    server.sql("postgres", "ALTER DATABASE again SET datestyle = 'German'; ALTER DATABASE again SET timezone = 'Japan'")
    server.sql("again", "UPDATE parted_1 SET id = id WHERE id < 40")
    restored = _facts(server, "again", tmp_path)
    assert differing_tables(dumped, restored) == []
    assert restored == dumped

    server.sql("again", "UPDATE child SET late = 7 WHERE c = 2; DELETE FROM ONLY parent WHERE a = 1; DROP TABLE empty")
    server.sql("again", "SELECT lo_put(max(oid), 0, 'x') FROM pg_largeobject_metadata; CREATE TABLE new (n int)")
    assert differing_tables(dumped, _facts(server, "again", tmp_path)) == [
        "public.child has the 2 rows of the dump, but their content differs",
        "public.empty is missing; the dump had 0 rows",
        "public.parent has 0 rows; the dump had 1",
        "pg_catalog.pg_largeobject_metadata has the 2 rows of the dump, but their content differs",
        "public.new was not in the dump",
    ]


def test_the_facts_are_those_of_the_dumps_snapshot_while_others_write(server: Server, tmp_path: Path) -> None:
    server.sql("postgres", "CREATE DATABASE busy")
    server.sql("busy", "CREATE TABLE ledger (id int, text text); CREATE TABLE other (id int)")
    over = threading.Event()

    def write() -> None:
        for first in range(0, 10_000_000, 2000):
            if over.is_set():
                return
            server.sql(
                "busy",
                f"BEGIN; INSERT INTO ledger SELECT n, md5(n::text) FROM generate_series({first}, {first + 1999}) n;"
                f"INSERT INTO other SELECT generate_series({first}, {first + 1999}); COMMIT",
            )

    writer = threading.Thread(target=write)
    writer.start()
    try:
        url = _backup(server, tmp_path, "busy", "content")
    finally:
        over.set()
        writer.join()
    (entry,) = newest_backup(url).files
    server.sql("postgres", "CREATE DATABASE busy_again")
    restore_backup(url, server.url("busy_again"), password=PASSWORD)
    assert _facts(server, "busy_again", tmp_path) == entry.tables
    ledger, other = entry.tables or ()
    assert ledger.rows == other.rows


def test_rows_are_counted_without_a_hash_and_nothing_if_nothing_is_asked(server: Server, tmp_path: Path) -> None:
    rows = _facts(server, "full_of", tmp_path, "rows")
    assert {table.content for table in rows} == {None}
    assert differing_tables(rows, _facts(server, "full_of", tmp_path)) == []
    (entry,) = newest_backup(_backup(server, tmp_path, "full_of", "none")).files
    assert entry.tables is None


def test_a_session_that_fails_says_why(server: Server, tmp_path: Path) -> None:
    database = Database(server.url("full_of"), tmp_path, PASSWORD)
    with (
        database.session(database.tools()) as session,
        pytest.raises(PostgresFailed, match=r'^psql: ERROR:  relation "nowhere" does not exist'),
    ):
        session.ask("SELECT 1;\nSELECT * FROM nowhere;")
    with (
        Database(server.url("nowhere"), tmp_path, PASSWORD).session(database.tools()) as session,
        pytest.raises(PostgresFailed, match='database "nowhere" does not exist'),
    ):
        session.ask("SELECT 1;")


def test_a_session_that_is_ended_leaves_no_query_at_the_server(server: Server, tmp_path: Path) -> None:
    database = Database(server.url("full_of"), tmp_path, PASSWORD)
    tools = database.tools()
    running = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%' AND pid <> pg_backend_pid()"

    def sleep(session: PsqlSession) -> None:
        with pytest.raises(PostgresFailed, match="canceling statement due to user request"):
            session.ask("SELECT pg_sleep(600);")

    with ThreadPoolExecutor(1) as threads, database.session(tools) as session:
        sleeping = threads.submit(sleep, session)
        wait_for("the query", lambda: server.sql("full_of", running) == "1", 60)
    sleeping.result()
    wait_for("the query's end", lambda: server.sql("full_of", running) == "0", 60)
