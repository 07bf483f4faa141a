"""Dumps of PostgreSQL databases under conditions that are not usual: encodings, names, standbys, faults in between."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from examples.demo.postgres import Server, postgres_server, run_as_server
from node.cli.local import wait_for
from tasks.access import EVERYTHING
from tasks.backup.fingerprint import BEGIN, DatabaseContent, database_content, differences
from tasks.backup.kind import Backup
from tasks.backup.manifest import newest_backup, survey_url
from tasks.backup.params import BackupParams
from tasks.backup.restore import restore_backup, restore_manifest
from tasks.backup.sources.postgres_database import Database
from tasks.backup.sources.postgres_tools import PostgresFailed
from tasks.backup.sources.source import RestoreParts, RestoreTarget
from tasks.errors import Away
from testkit.fake_context import FakeContext
from testkit.servers.postgres_servers import standby

pytestmark = [pytest.mark.integration, pytest.mark.more]

PASSWORD = "trouble"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server(PASSWORD) as running:
        yield running


def _backup(server: Server, tmp_path: Path, database: str, **more: Any) -> FakeContext[BackupParams]:
    source = {"type": "postgres", "url": server.url(database), "password": {"secret": "pg"}, "fingerprint": "content"}
    params = {"source": source | more, "destination": str(tmp_path / "to")}
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    return FakeContext(BackupParams.model_validate(params), scratch, task="trouble", secrets={"pg": PASSWORD})


def _content(server: Server, database: str, tmp_path: Path) -> DatabaseContent:
    found = Database(server.url(database), tmp_path, PASSWORD)
    with found.session(found.tools()) as session:
        session.ask(BEGIN)
        return database_content(session.ask, "content")


def _at_first_chunk(context: FakeContext[BackupParams], do: Callable[[], object]) -> None:
    done: list[bool] = []

    def progress(size: float, total: float | None = None, unit: str = "") -> None:
        if size and not done:
            done.append(True)
            do()

    context.progress = progress  # type: ignore[method-assign,assignment]


@pytest.mark.parametrize("parallel", [None, 2])
@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_of_another_encoding_is_the_same_after_a_restore(
    server: Server, tmp_path: Path, encoding: str, parallel: int | None
) -> None:
    for name in ("other", "other_again"):
        server.sql("postgres", f"DROP DATABASE IF EXISTS {name}")
        server.sql("postgres", f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}' LOCALE 'C'")
    # In SQL_ASCII the server takes any bytes for text: 0xe9 alone is no UTF-8.
    argv = [str(server.programs / "psql"), "-Xqv", "ON_ERROR_STOP=1", "-d", server.url("other")]
    script = (
        'CREATE TABLE "caf\xe9" (t text); INSERT INTO "caf\xe9" SELECT \'\xfc\' || n FROM generate_series(1, 2000) n;'
        'CREATE TABLE "Gr\xf6\xdfe" (t text); INSERT INTO "Gr\xf6\xdfe" SELECT \'\xe4\' || t FROM "caf\xe9";'
        "CREATE FUNCTION f() RETURNS text LANGUAGE sql AS 'SELECT ''\xdf''::text'; CREATE SEQUENCE \"s\xe9\";"
    )
    environ = os.environ | {"PGPASSWORD": PASSWORD, "PGCLIENTENCODING": encoding}
    subprocess.run(argv, input=script.encode("latin-1"), env=environ, check=True)
    url = Backup().run(_backup(server, tmp_path, "other", parallel=parallel))["url"]
    saw = DatabaseContent.of(newest_backup(url).files)
    assert sorted(table.rows for table in saw.tables or ()) == [2000, 2000]
    restore_backup(url, server.url("other_again"), password=PASSWORD, parts=RestoreParts(owners=True))
    assert differences(saw, _content(server, "other_again", tmp_path)) == []


def test_databases_of_any_name_are_dumped_and_restored(server: Server, tmp_path: Path) -> None:
    names = ["postgres://x/y?a=b", "dbname=z", 'it\'s "q" %s \\', " ", "--clean", "größe"]
    for number, name in enumerate(names):
        quoted = name.replace('"', '""')
        server.sql("postgres", f'CREATE DATABASE "{quoted}"')
        of_it = Database(server.url("postgres"), tmp_path, PASSWORD).of_name(name)
        of_it.ask(of_it.tools(), f"CREATE TABLE t AS SELECT {number} AS n")
    url = Backup().run(_backup(server, tmp_path, "postgres", databases=names))["url"]
    with postgres_server(PASSWORD) as other:
        restore_backup(url, other.url("postgres"), password=PASSWORD)
        for number, name in enumerate(names):
            of_it = Database(other.url("postgres"), tmp_path, PASSWORD).of_name(name)
            assert of_it.ask(of_it.tools(), "SELECT n FROM t") == str(number), name


@pytest.mark.parametrize("parallel", [None, 2])
def test_a_role_that_loses_a_grant_in_the_middle_makes_no_backup(
    server: Server, tmp_path: Path, parallel: int | None
) -> None:
    server.sql("postgres", "DROP DATABASE IF EXISTS grants; DROP ROLE IF EXISTS reader")
    server.sql("postgres", "CREATE DATABASE grants; CREATE ROLE reader LOGIN PASSWORD 'trouble'")
    server.sql(
        "grants",
        "CREATE TABLE a AS SELECT repeat(md5(n::text), 30) t FROM generate_series(1, 90000) n; CREATE TABLE b (n int);"
        "GRANT SELECT ON a, b TO reader",
    )
    url = server.url("grants").replace("//rota@", "//reader@")
    context = _backup(server, tmp_path, "grants", url=url, parallel=parallel)
    _at_first_chunk(context, lambda: server.sql("grants", "REVOKE SELECT ON b FROM reader"))
    with pytest.raises(PostgresFailed, match="permission denied for table b"):
        Backup().run(context)
    assert survey_url(f"{tmp_path}/to/trouble").complete == ()


@pytest.mark.parametrize("parallel", [None, 2])
def test_a_server_that_ends_in_the_middle_is_named(tmp_path: Path, parallel: int | None) -> None:
    with postgres_server(PASSWORD) as server:
        server.sql("postgres", "CREATE TABLE a AS SELECT repeat(md5(n::text), 90) t FROM generate_series(1, 90000) n")
        context = _backup(server, tmp_path, "postgres", parallel=parallel)
        postmaster = int((server.folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        _at_first_chunk(context, lambda: os.kill(postmaster, signal.SIGINT))
        with pytest.raises(PostgresFailed, match=r"terminating connection|server closed|shutting down|not accepting"):
            Backup().run(context)
        assert survey_url(f"{tmp_path}/to/trouble").complete == ()
        # So that the server can be stopped when the block ends.
        wait_for("the server's end", lambda: not (server.folder / "data" / "postmaster.pid").exists(), 60)
        argv = [str(server.programs / "pg_ctl"), "-D", str(server.folder / "data"), "-w", "start", "-l"]
        options = f"-c listen_addresses='' -c unix_socket_directories={server.folder}"
        run_as_server([*argv, str(server.folder / "server.log"), "-o", options], server.folder)


def test_a_server_that_does_not_answer_is_waited_for_and_one_that_refuses_is_not(tmp_path: Path) -> None:
    with postgres_server("hush-hush") as server:
        url = server.url("postgres")
        tools = Database(url, tmp_path, server.password).tools()
        with pytest.raises(PostgresFailed, match="FATAL") as refused:
            Database(url, tmp_path, "another").ask(tools, "SELECT 1")
        assert not isinstance(refused.value, Away)
        with pytest.raises(PostgresFailed, match="division by zero") as failed:
            Database(url, tmp_path, server.password).ask(tools, "SELECT 1 / 0")
        assert not isinstance(failed.value, Away)
        ends = "SELECT pg_terminate_backend(pg_backend_pid())"
        with pytest.raises(Away):
            Database(url, tmp_path, server.password).ask(tools, ends)
    with pytest.raises(Away):
        Database(url, tmp_path, "hush-hush").ask(tools, "SELECT 1")


def test_more_tables_than_the_server_can_lock_name_the_setting(tmp_path: Path, server: Server) -> None:
    server.sql("postgres", "CREATE DATABASE many")
    server.sql(
        "many",
        "DO $$ BEGIN FOR n IN 1..16000 LOOP EXECUTE format('CREATE TABLE t%s (n int)', n); "
        "IF n % 200 = 0 THEN COMMIT; END IF; END LOOP; END $$",
    )
    with pytest.raises(PostgresFailed, match="max_locks_per_transaction"):
        Backup().run(_backup(server, tmp_path, "many"))
    server.sql("postgres", "DROP DATABASE many")


@pytest.mark.parametrize("parallel", [None, 2])
def test_a_standby_is_dumped_as_its_primary_would_be(tmp_path: Path, parallel: int | None) -> None:
    with postgres_server(PASSWORD) as primary:
        primary.sql("postgres", "CREATE DATABASE copied")
        primary.sql(
            "copied",
            "CREATE TABLE a (id serial, t text); INSERT INTO a (t) SELECT md5(n::text) FROM generate_series(1, 5000) n;"
            "CREATE UNLOGGED TABLE fleeting AS SELECT 1 AS n",
        )
        with standby(primary) as follower:
            url = Backup().run(_backup(follower, tmp_path, "copied", parallel=parallel))["url"]
        primary.sql("postgres", "CREATE DATABASE again")
        restore_backup(url, primary.url("again"), password=PASSWORD, parts=RestoreParts(owners=True))
        saw = DatabaseContent.of(newest_backup(url).files)
        assert [table.name for table in saw.tables or ()] == ["a"]
        assert [said for said in differences(saw, _content(primary, "again", tmp_path)) if "fleeting" not in said] == []


AWKWARD = Path(__file__).with_name("awkward.sql")
_FIFTEEN = Path("/usr/lib/postgresql/15/bin")


@pytest.mark.skipif(not (_FIFTEEN / "initdb").exists(), reason="PostgreSQL 15 of Debian is not installed")
@pytest.mark.parametrize("parallel", [None, 3])
def test_a_server_of_version_15_is_dumped_and_restored_by_its_own_programs(
    tmp_path: Path, parallel: int | None
) -> None:
    with postgres_server(PASSWORD, _FIFTEEN) as old:
        for name in ("awkward", "again"):
            old.sql("postgres", f"CREATE DATABASE {name}")
        old.sql("awkward", AWKWARD.read_text())
        context = _backup(old, tmp_path, "awkward", parallel=parallel)
        context.access = replace(EVERYTHING, postgres_bin=str(_FIFTEEN))
        url = Backup().run(context)["url"]
        saw = DatabaseContent.of(newest_backup(url).files)
        for overwrite in (False, True):
            target = RestoreTarget(
                name=old.url("again"),
                overwrite=overwrite,
                password=PASSWORD,
                parts=RestoreParts(owners=True),
                postgres_bin=str(_FIFTEEN),
            )
            restore_manifest(newest_backup(url), target)
            assert differences(saw, _content(old, "again", tmp_path)) == []
