"""One PostgreSQL database dumped by several programs at once, as parts of one snapshot, and restored in one piece."""

import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from examples.demo.postgres import PostgresFailed as SqlFailed
from examples.demo.postgres import Server, postgres_server
from tasks.backup.archive import Damaged, TargetExists
from tasks.backup.fingerprint import BEGIN, DatabaseContent, database_content, differences
from tasks.backup.kind import Backup
from tasks.backup.manifest import newest_backup, write_manifest
from tasks.backup.params import BackupParams
from tasks.backup.restore import restore_backup
from tasks.backup.sources import postgres_dump
from tasks.backup.sources.postgres_database import Database
from tasks.backup.sources.postgres_tools import PostgresFailed
from tasks.backup.sources.source import RestoreParts
from tasks.backup.verify import verify
from tasks.drill.kind import Drill, DrillFailed
from tasks.drill.params import DrillParams
from tasks.places.place import Place
from testkit.fake_context import FakeContext

pytestmark = [pytest.mark.integration, pytest.mark.more]

PASSWORD = "in parts"

AWKWARD = Path(__file__).with_name("awkward.sql")

ODD = r"""
CREATE SCHEMA "a.b"; CREATE SCHEMA "A*?"; CREATE TABLE same (id serial PRIMARY KEY, t text);
CREATE TABLE "a.b".same (t text); CREATE TABLE "a.b"."same.t" (t text); CREATE TABLE "A*?"."s*e""$|(x" (t text);
CREATE TABLE "A*?".same (t text); CREATE TABLE "A*?"."it's \ a ""name"" " (t text); CREATE TABLE "A*?"."größe" (t text);
CREATE TABLE small (n int REFERENCES same); CREATE VIEW seen AS SELECT t FROM same;
INSERT INTO same (t) SELECT md5(n::text) || repeat('x', 300) FROM generate_series(1, 2000) n;
INSERT INTO "a.b".same SELECT t FROM same; INSERT INTO "a.b"."same.t" SELECT t || 1 FROM same;
INSERT INTO "A*?"."s*e""$|(x" SELECT t || 2 FROM same; INSERT INTO "A*?".same SELECT t || 3 FROM same;
INSERT INTO "A*?"."it's \ a ""name"" " SELECT t || 4 FROM same; INSERT INTO "A*?"."größe" SELECT t || 5 FROM same;
INSERT INTO small VALUES (1), (2); SELECT lo_from_bytea(55, 'large');
SELECT lo_from_bytea(56, convert_to(repeat('x', 99999), 'UTF8'));
CREATE ROLE "o'brien"; GRANT SELECT ON LARGE OBJECT 55 TO "o'brien"; COMMENT ON LARGE OBJECT 55 IS 'it''s
COMMIT;
BEGIN;';
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server(PASSWORD) as running:
        for name, text in (("awkward", AWKWARD.read_text()), ("odd", ODD)):
            running.sql("postgres", f"CREATE DATABASE {name}")
            running.sql(name, text)
        yield running


def _backup(server: Server, tmp_path: Path, database: str, **more: Any) -> FakeContext[BackupParams]:
    source = {"type": "postgres", "url": server.url(database), "password": {"secret": "pg"}, "parallel": 3}
    params = {"source": source | {"fingerprint": "content"} | more, "destination": str(tmp_path / "to")}
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    return FakeContext(BackupParams.model_validate(params), scratch, task="parts", secrets={"pg": PASSWORD})


def _content(server: Server, database: str, tmp_path: Path) -> DatabaseContent:
    found = Database(server.url(database), tmp_path, PASSWORD)
    with found.session(found.tools()) as session:
        session.ask(BEGIN)
        return database_content(session.ask, "content")


def _listed(server: Server, archive: bytes) -> list[str]:
    """What an archive holds, without the numbers and oids of its entries."""
    argv = [str(server.programs / "pg_restore"), "--list"]
    done = subprocess.run(argv, input=archive, capture_output=True, check=True)
    lines = (line for line in done.stdout.decode().splitlines() if not line.startswith(";"))
    return [line.split(" ", 3)[3] for line in lines]


@pytest.mark.parametrize("database", ["awkward", "odd"])
def test_parts_hold_what_one_dump_holds_and_restore_the_same(server: Server, tmp_path: Path, database: str) -> None:
    url = Backup().run(_backup(server, tmp_path, database))["url"]
    assert verify(url).ok
    manifest = newest_backup(url)
    assert [file.section for file in manifest.files] == ["pre-data", "data", "data", "data", "data", "post-data"]
    argv = [str(server.programs / "pg_dump"), "-Fc", "-Z0", "-d", server.url(database)]
    whole = subprocess.run(argv, env={"PGPASSWORD": PASSWORD}, capture_output=True, check=True).stdout
    in_parts: Counter[str] = Counter()
    for file in manifest.files:
        archive = zstandard.ZstdDecompressor().stream_reader((Path(url) / file.name).read_bytes()).read()
        in_parts.update(_listed(server, archive))
    once = Counter(_listed(server, whole))
    assert once - in_parts == Counter()
    # The sequence of a table that is dumped apart stands in two parts; the later one has what the manifest says.
    assert all(line.startswith("SEQUENCE SET ") for line in in_parts - once)

    server.sql("postgres", "DROP DATABASE IF EXISTS again")
    server.sql("postgres", "CREATE DATABASE again")
    restored = restore_backup(url, server.url("again"), password=PASSWORD, parts=RestoreParts(owners=True))
    saw = DatabaseContent.of(restored.manifest.files)
    assert None not in (saw.tables, saw.sequences, saw.catalog)
    assert differences(saw, _content(server, "again", tmp_path)) == []
    assert differences(_content(server, database, tmp_path), _content(server, "again", tmp_path)) == []


def test_a_drill_proves_parts_and_finds_what_one_of_them_lacks(server: Server, tmp_path: Path) -> None:
    url = Backup().run(_backup(server, tmp_path, "odd"))["url"]
    given = {"backups": {"url": url.rpartition("/")[0]}, "compare": "content"}
    ctx = FakeContext(DrillParams.model_validate(given), tmp_path / "drill", task="drill", token=100)
    ctx.scratch.mkdir()
    result = Drill().run(ctx)
    assert (result["tables"], result["rows"]) == (9, 7 * 2000 + 2 + 2)
    assert "definitions, owners, grants" in " ".join(result["how"])
    # A dump of another moment in the place of a part: its checksums are right, and its rows are not those of the rest.
    server.sql("postgres", "CREATE DATABASE later TEMPLATE odd")
    server.sql("later", "DELETE FROM \"A*?\".same WHERE ctid = '(0,1)'")
    (tmp_path / "later").mkdir()
    later = Path(Backup().run(_backup(server, tmp_path / "later", "later"))["url"])
    manifest = newest_backup(url)
    files = [
        theirs.model_copy(update={"tables": ours.tables})
        for ours, theirs in zip(manifest.files, newest_backup(str(later)).files, strict=True)
    ]
    shutil.rmtree(url)
    shutil.copytree(later, url)
    (Path(url) / "manifest.json").unlink()
    write_manifest(Place(url), manifest.model_copy(update={"files": tuple(files)}))
    ctx.scratch, ctx.token = tmp_path / "drill-again", 101
    ctx.scratch.mkdir()
    with pytest.raises(DrillFailed, match=r"A\*\?\.same has 1999 rows; the dump had 2000"):
        Drill().run(ctx)


def test_parts_are_restored_over_what_is_there_and_one_table_alone(server: Server, tmp_path: Path) -> None:
    url = Backup().run(_backup(server, tmp_path, "odd"))["url"]
    saw = DatabaseContent.of(newest_backup(url).files)
    server.sql("postgres", "DROP DATABASE IF EXISTS again")
    server.sql("postgres", "CREATE DATABASE again")
    restore_backup(url, server.url("again"), password=PASSWORD)
    server.sql("again", "DELETE FROM small; UPDATE same SET t = 'x'; SELECT lo_unlink(55), setval('same_id_seq', 1)")
    with pytest.raises(TargetExists, match="not empty"):
        restore_backup(url, server.url("again"), password=PASSWORD)
    whole = RestoreParts(owners=True)
    restore_backup(url, server.url("again"), overwrite=True, password=PASSWORD, parts=whole)
    assert differences(saw, _content(server, "again", tmp_path)) == []

    server.sql("postgres", "DROP DATABASE IF EXISTS one")
    server.sql("postgres", "CREATE DATABASE one")
    server.sql("one", 'CREATE SCHEMA "A*?"')
    restore_backup(url, server.url("one"), password=PASSWORD, parts=RestoreParts(table="A*?.größe"))
    count = 'SELECT count(*), md5(string_agg(t, \'\' ORDER BY t)) FROM "A*?"."größe"'
    assert server.sql("one", count) == server.sql("odd", count)
    assert server.sql("one", "SELECT count(*) FROM pg_stat_user_tables") == "1"


@pytest.mark.parametrize("number", [0, 2, 4, 5])
def test_a_damaged_part_changes_nothing_in_the_target(server: Server, tmp_path: Path, number: int) -> None:
    url = Backup().run(_backup(server, tmp_path, "odd"))["url"]
    stored = Path(url) / newest_backup(url).files[number].name
    content = bytearray(stored.read_bytes())
    content[-20] ^= 1
    stored.write_bytes(content)
    assert not verify(url).ok
    server.sql("postgres", "DROP DATABASE IF EXISTS untouched")
    server.sql("postgres", "CREATE DATABASE untouched")
    with pytest.raises(Damaged):
        restore_backup(url, server.url("untouched"), password=PASSWORD)
    assert server.sql("untouched", "SELECT count(*) FROM pg_stat_user_tables") == "0"


def test_a_restore_that_the_server_refuses_says_why_and_changes_nothing(server: Server, tmp_path: Path) -> None:
    url = Backup().run(_backup(server, tmp_path, "odd"))["url"]
    server.sql("postgres", "DROP DATABASE IF EXISTS refuses")
    server.sql("postgres", "CREATE DATABASE refuses")
    server.sql(
        "refuses",
        "CREATE FUNCTION information_schema.no() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''not here''; "
        "END'; CREATE EVENT TRIGGER no ON ddl_command_start WHEN TAG IN ('ALTER TABLE') "
        "EXECUTE FUNCTION information_schema.no()",
    )
    with pytest.raises(PostgresFailed, match=r"psql ended with exit code 3: .*not here"):
        restore_backup(url, server.url("refuses"), password=PASSWORD)
    assert server.sql("refuses", "SELECT count(*) FROM pg_stat_user_tables") == "0"


@pytest.mark.parametrize("parallel", [None, 3])
def test_tables_stay_as_they_are_while_they_are_dumped(server: Server, tmp_path: Path, parallel: int | None) -> None:
    server.sql("postgres", "DROP DATABASE IF EXISTS moving")
    server.sql("postgres", "CREATE DATABASE moving TEMPLATE odd")
    context = _backup(server, tmp_path, "moving", parallel=parallel)
    tried: list[str] = []
    trying = threading.Lock()

    def progress(done: float, total: float | None = None, unit: str = "") -> None:
        if not done or not trying.acquire(blocking=False):
            return
        for change in ("DROP TABLE small", "TRUNCATE small", "ALTER TABLE small ADD m int", "CREATE TABLE new ()"):
            try:
                server.sql("moving", f"SET lock_timeout = '50ms'; {change}")
            except SqlFailed as error:
                assert "lock timeout" in str(error)
            else:
                tried.append(change)

    context.progress = progress  # type: ignore[method-assign]
    url = Backup().run(context)["url"]
    assert tried == ["CREATE TABLE new ()"]
    saw = DatabaseContent.of(newest_backup(url).files)
    assert ("public", "new") not in {(table.schema_name, table.name) for table in saw.tables or ()}
    assert ("public", "small", 2) in {(table.schema_name, table.name, table.rows) for table in saw.tables or ()}


def test_a_dump_that_another_session_would_keep_waiting_for_ever_fails(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for this package's session to let go of the table, and pg_dump would wait for it."""
    monkeypatch.setattr(postgres_dump, "_LOCK_WAIT_S", 1)
    server.sql("postgres", "DROP DATABASE IF EXISTS queued")
    server.sql("postgres", "CREATE DATABASE queued TEMPLATE odd")
    database = Database(server.url("queued"), tmp_path, PASSWORD)
    lock = Path(tmp_path / "lock")
    lock.mkdir()
    context = _backup(server, tmp_path, "queued")
    running = database.running
    with Database(server.url("queued"), lock, PASSWORD).session(database.tools()) as other:

        def with_one_that_waits(self: Database, argv: list[str], *pipes: Any) -> Any:
            if "--section=pre-data" in argv or "--format=custom" in argv:
                process = other._process
                assert process.stdin is not None
                if not process.stdin.closed:
                    process.stdin.write(b"BEGIN; LOCK TABLE small;\n")
                    process.stdin.flush()
                waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"
                while server.sql("queued", waiting) == "0":
                    pass
            return running.__func__(self, argv, *pipes)  # type: ignore[attr-defined]

        monkeypatch.setattr(Database, "running", with_one_that_waits)
        with pytest.raises(PostgresFailed, match="waits for an exclusive lock"):
            Backup().run(context)
