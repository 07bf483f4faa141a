"""What a dump's manifest says of the tables, compared with a restored database and with one that has changed."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from examples.demo.postgres import Server, postgres_server
from node.cli.local import wait_for
from tasks.backup.fingerprint import (
    BEGIN,
    LARGE_OBJECTS,
    DatabaseContent,
    Fingerprint,
    database_content,
    differences,
    differing_tables,
)
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


def _content(server: Server, database: str, scratch: Path, fingerprint: Fingerprint = "content") -> DatabaseContent:
    found = Database(server.url(database), scratch, PASSWORD)
    with found.session(found.tools()) as session:
        session.ask(BEGIN)
        return database_content(session.ask, fingerprint)


def _facts(
    server: Server, database: str, scratch: Path, fingerprint: Fingerprint = "content"
) -> tuple[TableFacts, ...]:
    return _content(server, database, scratch, fingerprint).tables or ()


def _backup(
    server: Server,
    tmp_path: Path,
    database: str,
    fingerprint: str,
    progress: Callable[[float, float | None, str], None] = lambda done, total, unit: None,
) -> str:
    source = {"type": "postgres", "url": server.url(database), "password": {"secret": "pg"}, "fingerprint": fingerprint}
    params = BackupParams.model_validate({"source": source, "destination": str(tmp_path / "to")})
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    context = FakeContext(params, scratch, task="facts", secrets={"pg": PASSWORD})
    context.progress = progress  # type: ignore[method-assign,assignment]
    return str(Backup().run(context)["url"])


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
    restored = _content(server, "again", tmp_path)
    assert differences(DatabaseContent.of([entry]), restored) == []
    assert restored.tables == dumped

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


DEFINED = """
CREATE ROLE clerk; CREATE ROLE boss;
CREATE TABLE orders (id serial PRIMARY KEY, item text CHECK (item <> ''), price int);
CREATE INDEX by_item ON orders (item); GRANT SELECT, INSERT ON orders TO clerk; GRANT UPDATE (price) ON orders TO clerk;
CREATE FUNCTION twice(n int) RETURNS int LANGUAGE sql AS 'SELECT n * 2'; REVOKE ALL ON FUNCTION twice FROM public;
ALTER TABLE orders ENABLE ROW LEVEL SECURITY; CREATE POLICY all_of_it ON orders TO boss USING (price > 0);
CREATE FUNCTION quiet() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE TRIGGER each BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION quiet();
CREATE SCHEMA old AUTHORIZATION boss; GRANT USAGE ON SCHEMA old TO clerk; CREATE TYPE size AS ENUM ('s', 'l');
CREATE PUBLICATION told FOR TABLE orders; CREATE MATERIALIZED VIEW dear AS SELECT * FROM orders WHERE price > 9;
ALTER DEFAULT PRIVILEGES FOR ROLE boss GRANT SELECT ON TABLES TO clerk; COMMENT ON TABLE orders IS 'of customers';
SELECT nextval('orders_id_seq'), nextval('orders_id_seq'); SELECT lo_create(77); ALTER LARGE OBJECT 77 OWNER TO boss;
"""

CHANGES = {
    "REVOKE INSERT ON orders FROM clerk": "the owner and grants of the table public.orders: not as in the dump",
    "REVOKE UPDATE (price) ON orders FROM clerk": "the owner and grants of the table column public.orders.price: "
    "missing",
    "GRANT EXECUTE ON FUNCTION twice TO clerk": "the owner and grants of the function public.twice(integer): not as in "
    "the dump",
    "ALTER SCHEMA old OWNER TO clerk": "the owner and grants of the schema old: not as in the dump",
    "ALTER DEFAULT PRIVILEGES FOR ROLE boss REVOKE SELECT ON TABLES FROM clerk": "the owner and grants of the default "
    "acl for role boss on tables: missing",
    "ALTER LARGE OBJECT 77 OWNER TO clerk": "the owner and grants of the large object 77: not as in the dump",
    "DROP INDEX by_item": "the index public.by_item: missing",
    "ALTER TABLE orders DROP CONSTRAINT orders_item_check": "the table constraint orders_item_check on public.orders: "
    "missing",
    "ALTER POLICY all_of_it ON orders TO public": "the policy all_of_it on public.orders: not as in the dump",
    "ALTER TABLE orders DISABLE TRIGGER each": "the trigger each on public.orders: not as in the dump",
    "CREATE OR REPLACE FUNCTION twice(n int) RETURNS int LANGUAGE sql AS 'SELECT n * 3'": "the function "
    "public.twice(integer): not as in the dump",
    "ALTER TYPE size ADD VALUE 'm' BEFORE 'l'": "the type public.size: not as in the dump",
    "ALTER TABLE orders ALTER price SET DEFAULT 1": "the table public.orders: not as in the dump",
    "ALTER TABLE orders DISABLE ROW LEVEL SECURITY": "the table public.orders: not as in the dump",
    "ALTER PUBLICATION told SET (publish = 'insert')": "the publication told: not as in the dump",
    "REFRESH MATERIALIZED VIEW dear WITH NO DATA": "the materialized view public.dear: not as in the dump",
    "COMMENT ON TABLE orders IS NULL": "the comment table public.orders: missing",
    "CREATE VIEW more AS SELECT 1 AS n": "the view public.more: not in the dump",
    "DROP SCHEMA old": "the schema old: missing",
    # The last one: a position is not rolled back.
    "SELECT setval('orders_id_seq', 1) \\g /dev/null\n": "the sequence public.orders_id_seq continues with 2; in the "
    "dump 3",
}


def test_each_difference_of_a_definition_a_grant_or_a_position_is_named(server: Server, tmp_path: Path) -> None:
    server.sql("postgres", "CREATE DATABASE defined")
    server.sql("defined", DEFINED)
    database = Database(server.url("defined"), tmp_path, PASSWORD)
    dumped = _content(server, "defined", tmp_path)
    with database.session(database.tools()) as session:
        for change, said in CHANGES.items():
            session.ask(f"BEGIN; {change};")
            assert differences(dumped, database_content(session.ask, "rows")) == [said], change
            session.ask("ROLLBACK;")


ALIKE = {
    "float8": ("0", "-0"), "float4": ("0", "-0"), "numeric": ("1.0", "1.00"), "jsonb": ("1", "1.0"),
    "json": ('{"a":1}', '{"a": 1}'), "text": ("a", "a "), "varchar": ("", None), "char(3)": ("", None),
    "bpchar": ("a", "a "), "bytea": ("", None), "int2": ("1", "257"), "int4": ("1", "-1"), "int8": ("0", "4294967296"),
    "bool": ("t", "f"), "uuid": ("00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000001"),
    "timestamptz": ("2026-01-01 00:00:00+00", "2026-01-01 00:00:00.000001+00"), "timestamp": ("infinity", "-infinity"),
    "date": ("2026-01-01", "2026-01-02"), "interval": ("1 day", "24:00"), "time": ("00:00", "24:00"),
    "timetz": ("01:00+00", "02:00+01"), "text[]": ("{a,b}", "{b,a}"), "int4[]": ("[0:1]={1,2}", "{1,2}"),
    "inet": ("10.0.0.1", "10.0.0.1/24"), "bit varying": ("0", "00"), "xml": ("<a/>", "<a></a>"), "oid": ("1", "2"),
    "name": ("a", "b"), "int4range": ("empty", "[1,2)"), "point": ("(0,0)", "(0,-0)"), "\"char\"": ("a", "b"),
    "own": ("s", "l"), "short": ("a", "b"), "size": ("(1,2)", "(2,1)"), "own[]": ("{s}", "{l}"),
}  # fmt: skip
"""Values of a type that are nearly the same, or that PostgreSQL takes for equal."""


def test_values_that_are_alike_have_other_hashes_whatever_their_type_and_column(server: Server, tmp_path: Path) -> None:
    server.sql("postgres", "CREATE DATABASE alike")
    server.sql(
        "alike",
        "CREATE TYPE own AS ENUM ('s', 'l'); CREATE DOMAIN short AS text; CREATE TYPE size AS (a int, b int);"
        + "".join(
            f"CREATE TABLE {side}_{number} (v {of_type}, w {of_type}); "
            f"INSERT INTO {side}_{number} VALUES ({first}, {last});"
            for number, (of_type, values) in enumerate(ALIKE.items())
            for one, other in [["NULL" if value is None else f"'{value}'" for value in values]]
            for side, first, last in (("a", one, one), ("b", one, other), ("c", other, one), ("d", other, other))
        ),
    )
    columns = ", ".join(f"c{number} text" for number in range(1600))
    server.sql("alike", f"CREATE TABLE wide_a ({columns}); INSERT INTO wide_a (c0, c1599) VALUES ('x', 'y')")
    server.sql("alike", "CREATE TABLE wide_b (LIKE wide_a); INSERT INTO wide_b (c0, c1599) VALUES ('x', 'z')")
    found = {table.name: table.content for table in _facts(server, "alike", tmp_path)}
    for number, of_type in enumerate(ALIKE):
        assert len({found[f"{side}_{number}"] for side in "abcd"}) == 4, of_type
    assert found["wide_a"] != found["wide_b"]
    server.sql(
        "postgres", "ALTER DATABASE alike SET timezone = 'Asia/Tokyo'; ALTER DATABASE alike SET datestyle = 'German'"
    )
    assert {table.name: table.content for table in _facts(server, "alike", tmp_path)} == found


def test_hashes_of_an_earlier_version_are_not_compared() -> None:
    now = TableFacts(schema_name="s", name="t", rows=1, content="2:77")
    assert differing_tables([now.model_copy(update={"content": "77"})], [now]) == []
    assert differing_tables([now.model_copy(update={"content": "2:78"})], [now]) != []


def test_a_sequence_that_goes_on_during_the_dump_is_within_its_positions(server: Server, tmp_path: Path) -> None:
    server.sql("postgres", "CREATE DATABASE numbers")
    server.sql("numbers", "CREATE SEQUENCE up; CREATE SEQUENCE down INCREMENT -5; CREATE SEQUENCE still START 9")

    def draw(done: float, total: float | None = None, unit: str = "") -> None:
        server.sql("numbers", "SELECT nextval('up'), nextval('down') FROM generate_series(1, 50)")

    url = _backup(server, tmp_path, "numbers", "rows", draw)
    saw = DatabaseContent.of(newest_backup(url).files)
    assert {each.name: each.low == each.high for each in saw.sequences or ()} == {
        "up": False,
        "down": False,
        "still": True,
    }
    server.sql("postgres", "CREATE DATABASE numbers_again")
    restore_backup(url, server.url("numbers_again"), password=PASSWORD)
    assert differences(saw, _content(server, "numbers_again", tmp_path)) == []
    server.sql("numbers_again", "SELECT setval('up', 1000)")
    (said,) = differences(saw, _content(server, "numbers_again", tmp_path))
    assert said == "the sequence public.up continues with 1001; in the dump between 1 and 51"


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
