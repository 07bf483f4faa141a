"""All databases of a PostgreSQL server: dumped with its roles, and restored whole or in parts."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.demo.postgres import Server, postgres_server
from tasks.backup.archive import TargetExists
from tasks.backup.kind import Backup
from tasks.backup.manifest import newest_backup, survey_url
from tasks.backup.params import BackupParams
from tasks.backup.restore import Restored, restore_backup
from tasks.backup.sources.postgres_database import Database
from tasks.backup.sources.postgres_readable import NotReadable
from tasks.backup.sources.postgres_restore import MissingRoles
from tasks.backup.sources.postgres_tools import PostgresFailed
from tasks.backup.sources.source import NoBackupSource, NoSuchPart, RestoreParts
from tasks.backup.verify import verify
from testkit.fake_context import FakeContext

pytestmark = pytest.mark.integration

PASSWORD = "all of them"
ODD = 'größe "1"; a=b'

ROLES = """
CREATE ROLE readers; CREATE ROLE "the ""owner""; of it" LOGIN PASSWORD 'hush';
GRANT readers TO "the ""owner""; of it"; ALTER ROLE readers SET work_mem = '8MB';
COMMENT ON ROLE readers IS 'who may; read
CREATE ROLE nobody_asked;';
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server(PASSWORD) as running:
        running.sql("postgres", ROLES)
        running.sql("postgres", f"CREATE DATABASE orders; CREATE DATABASE {_quoted(ODD)} OWNER readers")
        running.sql("postgres", f"ALTER DATABASE {_quoted(ODD)} SET work_mem = '9MB'")
        running.sql("postgres", f"REVOKE CONNECT ON DATABASE {_quoted(ODD)} FROM PUBLIC")
        running.sql(
            "orders",
            "CREATE TABLE line (id serial PRIMARY KEY, text text); CREATE TABLE other (n int);"
            "INSERT INTO line (text) SELECT md5(n::text) FROM generate_series(1, 3000) n;"
            'ALTER TABLE line OWNER TO "the ""owner""; of it"; GRANT SELECT ON line TO readers',
        )
        running.sql(_url_name(ODD), "CREATE TABLE a (n int); INSERT INTO a SELECT generate_series(1, 7)")
        yield running


@pytest.fixture
def other() -> Iterator[Server]:
    with postgres_server(PASSWORD) as running:
        yield running


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _url_name(name: str) -> str:
    return name.replace(" ", "%20").replace('"', "%22").replace(";", "%3B").replace("=", "%3D")


def _backup(server: Server, tmp_path: Path, token: int = 1, **source: Any) -> FakeContext[BackupParams]:
    given = {"type": "postgres", "url": server.url("postgres"), "password": {"secret": "pg"}, "databases": "all"}
    params = BackupParams.model_validate({"source": given | source, "destination": str(tmp_path / "to")})
    scratch = tmp_path / f"scratch-{token}"
    scratch.mkdir(exist_ok=True)
    return FakeContext(params, scratch, task="server", token=token, secrets={"pg": PASSWORD})


def _restore(
    url: str, server: Server, into: str, *, overwrite: bool = False, over_source: bool = False, **parts: Any
) -> Restored:
    chosen = RestoreParts(**parts)
    return restore_backup(url, server.url(into), overwrite, password=PASSWORD, parts=chosen, over_source=over_source)


LINES = "SELECT count(*), md5(string_agg(text, '' ORDER BY id)) FROM line"
ACL = "SELECT pg_get_userbyid(relowner), relacl FROM pg_class WHERE relname = 'line'"


def test_a_server_is_restored_with_its_roles_and_databases(server: Server, other: Server, tmp_path: Path) -> None:
    result = Backup().run(_backup(server, tmp_path))
    manifest = newest_backup(result["url"])
    dumped = {file.database.name: file.database for file in manifest.files if file.database is not None}
    assert sorted(dumped) == sorted(["postgres", "orders", ODD])
    assert dumped["orders"].roles == ("readers", "rota", 'the "owner"; of it')
    assert [file["name"] for file in result["objects"] if file["name"] == "server.sql.zst"]
    assert "hush" not in (Path(result["url"]) / "manifest.json").read_text()
    assert verify(result["url"]).ok

    with pytest.raises(MissingRoles, match=r'roles that own something in orders.*: readers, the "owner"; of it\.'):
        _restore(result["url"], other, "postgres", roles=False)
    assert other.sql("postgres", "SELECT count(*) FROM pg_database") == "3"
    done = _restore(result["url"], other, "postgres")
    assert done.remarks == (
        'roles were created, without passwords, which are not in the backup: readers, the "owner"; of it',
    )
    for query in (LINES, ACL):
        assert other.sql("orders", query) == server.sql("orders", query)
    assert other.sql(_url_name(ODD), "SELECT count(*) FROM a; SHOW work_mem") == "7\n9MB"
    of_it = (
        "SELECT pg_get_userbyid(datdba), a FROM pg_database, unnest(datacl) a WHERE datname LIKE 'gr%' ORDER BY a::text"
    )
    assert other.sql("postgres", of_it) == server.sql("postgres", of_it)
    assert other.sql("postgres", "SELECT count(*) FROM pg_auth_members WHERE roleid = 'readers'::regrole") == "1"
    assert other.sql("postgres", "SELECT shobj_description('readers'::regrole, 'pg_authid')").startswith(
        "who may; read"
    )

    with pytest.raises(TargetExists, match="not empty"):
        _restore(result["url"], other, "postgres")
    other.sql("orders", "DELETE FROM line")
    assert _restore(result["url"], other, "postgres", overwrite=True).remarks == ()
    assert other.sql("orders", LINES) == server.sql("orders", LINES)


@pytest.mark.more
def test_one_database_and_one_table_are_restored(server: Server, tmp_path: Path) -> None:
    url = Backup().run(_backup(server, tmp_path, databases=["orders", ODD]))["url"]
    with pytest.raises(NoSuchPart, match="has no database nowhere; it has "):
        _restore(url, server, "postgres", database="nowhere")
    with pytest.raises(NoSuchPart, match=r"name the database of the table public\.line"):
        _restore(url, server, "postgres", table="public.line")
    server.sql("postgres", "CREATE DATABASE one; CREATE DATABASE part")
    assert _restore(url, server, "one", database="orders").remarks == ()
    assert server.sql("one", LINES) == server.sql("orders", LINES)
    assert server.sql("one", ACL) == "rota|"
    _restore(url, server, "one", database="orders", owners=True, overwrite=True)
    assert server.sql("one", ACL) == server.sql("orders", ACL)

    server.sql("part", "CREATE TABLE kept (n int)")
    with pytest.raises(NoSuchPart, match=r"no table public\.lines with rows of its own; it has public\.line, "):
        _restore(url, server, "part", database="orders", table="public.lines")
    _restore(url, server, "part", database="orders", table="public.line")
    assert server.sql("part", LINES) == server.sql("orders", LINES)
    assert (
        server.sql("part", "SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_stat_user_tables") == "kept line"
    )
    with pytest.raises(TargetExists, match=r"has a table public\.line:"):
        _restore(url, server, "part", database="orders", table="public.line")
    server.sql("part", "DELETE FROM line")
    _restore(url, server, "part", database="orders", table="public.line", overwrite=True)
    assert server.sql("part", LINES) == server.sql("orders", LINES)


@pytest.mark.more
def test_the_database_that_was_backed_up_is_replaced_only_when_told(server: Server, tmp_path: Path) -> None:
    server.sql("postgres", "CREATE DATABASE mine")
    server.sql("mine", "CREATE TABLE t (n int); INSERT INTO t VALUES (1)")
    url = Backup().run(_backup(server, tmp_path, databases=["mine"]))["url"]
    server.sql("mine", "CREATE TABLE since (n int); DROP TABLE t")
    server.sql("postgres", "ALTER DATABASE mine RENAME TO renamed")
    for how in ({}, {"overwrite": True}):
        with pytest.raises(
            TargetExists,
            match=r"renamed.* is the database that was backed up, and is not empty: name another database, or give "
            "--over-source",
        ):
            _restore(url, server, "renamed", database="mine", **how)
    # A table that was dropped by mistake: then nothing is in the way.
    assert _restore(url, server, "renamed", database="mine", table="public.t").remarks == ()
    with pytest.raises(TargetExists, match=r"was backed up, and has a table public\.t: "):
        _restore(url, server, "renamed", database="mine", table="public.t", overwrite=True)
    server.sql("postgres", "ALTER DATABASE renamed RENAME TO mine")
    with pytest.raises(TargetExists, match="is the database that was backed up"):
        _restore(url, server, "postgres", overwrite=True)
    (remark,) = _restore(url, server, "mine", database="mine", over_source=True).remarks
    assert remark.endswith("is the database that was backed up: what it held was replaced")
    # So was the database.
    server.sql("postgres", "DROP DATABASE mine")
    _restore(url, server, "postgres")
    assert server.sql("mine", "SELECT n FROM t") == "1"


def test_what_the_role_cannot_read_is_told_before_anything_is_written(server: Server, tmp_path: Path) -> None:
    server.sql("postgres", "CREATE DATABASE shut; CREATE ROLE guest LOGIN PASSWORD 'g'")
    server.sql(
        "shut",
        "CREATE SCHEMA s; CREATE TABLE s.secret (id serial); CREATE TABLE open (n int); CREATE TABLE hidden (n int);"
        "GRANT SELECT ON open, hidden TO guest; ALTER TABLE hidden ENABLE ROW LEVEL SECURITY; SELECT lo_create(7777)",
    )
    context = _backup(server, tmp_path, url=server.url("shut").replace("//rota@", "//guest@"), databases=["shut"])
    context.secrets = {"pg": "g"}
    with pytest.raises(
        NotReadable,
        match="the role guest cannot read all of the database shut; it lacks SELECT on tables or sequences, or USAGE "
        r"on their schema: s\.secret, s\.secret_id_seq; row security hides rows of tables \(give the role BYPASSRLS\): "
        r"public\.hidden; it lacks SELECT on large objects: 7777\.",
    ):
        Backup().run(context)
    assert survey_url(f"{tmp_path}/to/server").complete == ()
    server.sql("shut", "GRANT USAGE ON SCHEMA s TO guest; GRANT SELECT ON ALL TABLES IN SCHEMA s TO guest;")
    server.sql("shut", "GRANT SELECT ON ALL SEQUENCES IN SCHEMA s TO guest; GRANT SELECT ON LARGE OBJECT 7777 TO guest")
    server.sql("shut", "ALTER TABLE hidden DISABLE ROW LEVEL SECURITY")
    assert Backup().run(context)["objects"]


@pytest.mark.more
def test_a_database_that_does_not_exist_is_named(server: Server, tmp_path: Path) -> None:
    with pytest.raises(NoBackupSource, match="the server has no database gone that takes connections; it has "):
        Backup().run(_backup(server, tmp_path, databases=["orders", "gone"]))


@pytest.mark.more
def test_a_dump_that_fails_stops_one_that_waits_for_a_lock(server: Server, tmp_path: Path) -> None:
    server.sql("postgres", "CREATE DATABASE waits; CREATE DATABASE fails")
    server.sql("waits", "CREATE TABLE held (n int)")
    server.sql("fails", "CREATE TABLE t (n int)")
    locked, release = threading.Event(), threading.Event()

    def hold() -> None:
        (tmp_path / "hold").mkdir()
        database = Database(server.url("waits"), tmp_path / "hold", PASSWORD)
        with database.session(database.tools()) as session:
            session.ask("BEGIN; LOCK TABLE held;")
            locked.set()
            assert release.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert locked.wait(60)
        context = _backup(server, tmp_path, databases=["waits", "fails"])
        server.sql("fails", "CREATE FUNCTION broken() RETURNS int LANGUAGE sql AS 'SELECT 1'")
        server.sql("fails", "UPDATE pg_proc SET prolang = 4711 WHERE proname = 'broken'")
        with pytest.raises(PostgresFailed, match="pg_dump ended with exit code 1"):
            Backup().run(context)
    finally:
        release.set()
        holder.join()
    server.sql("postgres", "DROP DATABASE fails")


def test_the_next_attempt_keeps_the_databases_that_were_dumped(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.sql("postgres", "CREATE DATABASE early; CREATE DATABASE late")
    for name in ("early", "late"):
        server.sql(name, "CREATE TABLE t (n int); INSERT INTO t VALUES (1)")
    first = _backup(server, tmp_path, databases=["early", "late"], parallel=1)

    class Killed(BaseException):
        """Nothing cleans up after a process that is killed."""

    def progress(done: float, total: float | None = None, unit: str = "") -> None:
        if list((tmp_path / "to" / "server").glob("*/early-*.whole.json")):
            raise Killed

    monkeypatch.setattr(first, "progress", progress)
    with pytest.raises(Killed):
        Backup().run(first)
    for name in ("early", "late"):
        server.sql(name, "INSERT INTO t VALUES (2)")

    second = _backup(server, tmp_path, 2, databases=["early", "late"])
    second.checkpoint = first.saved[0]
    result = Backup().run(second)
    (manifest,) = survey_url(f"{tmp_path}/to/server").complete
    assert {file.database.name: (file.tables or ())[0].rows for file in manifest.files if file.database} == {
        "early": 1,
        "late": 2,
    }
    (remark,) = manifest.remarks
    assert remark.startswith("the database early was dumped at 20")
    assert not list(Path(result["url"]).glob("*.whole.json"))
