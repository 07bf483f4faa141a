"""Awkward data and definitions of PostgreSQL: the restored database is equal by content and by catalog."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.demo.postgres import Server, postgres_server
from tasks.backup.encryption import BackupKeys, Identities, new_identity
from tasks.backup.fingerprint import BEGIN, DatabaseContent, database_content, differences
from tasks.backup.kind import Backup
from tasks.backup.manifest import newest_backup
from tasks.backup.params import BackupParams
from tasks.backup.restore import restore_backup
from tasks.backup.sources.postgres_database import Database
from tasks.backup.sources.source import RestoreParts
from testkit.fake_context import FakeContext
from testkit.servers.postgres_servers import recovered

pytestmark = [pytest.mark.integration, pytest.mark.more]

PASSWORD = "awkward"

AWKWARD = Path(__file__).with_name("awkward.sql")

SEQUENCES = "SELECT schemaname, sequencename, last_value, increment_by, cycle FROM pg_sequences ORDER BY 1, 2"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server(PASSWORD) as running:
        running.sql("postgres", "CREATE DATABASE awkward")
        running.sql("awkward", AWKWARD.read_text())
        yield running


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize("databases", [None, ["awkward"]])
def test_awkward_data_is_equal_after_a_restore(
    server: Server, tmp_path: Path, databases: list[str] | None, encrypted: bool
) -> None:
    public, private = new_identity(None)
    source = {"type": "postgres", "url": server.url("awkward"), "password": {"secret": "pg"}, "databases": databases}
    given: dict[str, Any] = {"source": source | {"fingerprint": "content"}, "destination": str(tmp_path / "to")}
    given |= {"encryption": {"recipients": [public]}} if encrypted else {}
    context = FakeContext(
        BackupParams.model_validate(given), tmp_path / "scratch", task="odd", secrets={"pg": PASSWORD}
    )
    context.scratch.mkdir()
    url = Backup().run(context)["url"]
    server.sql("postgres", "DROP DATABASE IF EXISTS again")
    server.sql("postgres", "CREATE DATABASE again")
    # Values are compared whatever the settings of the database are.
    server.sql("postgres", "ALTER DATABASE again SET extra_float_digits = -10")
    server.sql("postgres", "ALTER DATABASE again SET bytea_output = escape")
    keys = BackupKeys(Identities.of_text(private, "key.txt")) if encrypted else None
    parts = RestoreParts(owners=True, database=None if databases is None else "awkward")
    restored = restore_backup(url, server.url("again"), password=PASSWORD, keys=keys, parts=parts)

    dumped = DatabaseContent.of(file for file in restored.manifest.files if file.database is not None)
    assert sum(table.rows for table in dumped.tables or ()) == 2 + 2 + 100 + 2 + 1 + 2 + 4 + 2 + 2 + 2 + 3 + 3
    assert len(dumped.sequences or ()) == 4
    assert {"event trigger", "policy", "owner and grants"} < {each.kind for each in dumped.catalog or ()}
    assert differences(dumped, _content(server, tmp_path)) == []
    assert _dumped(server, "again") == _dumped(server, "awkward")
    for query in (SEQUENCES, "SELECT count(*), min(at) FROM per_day", "SELECT loid, lomacl FROM large_objects"):
        named = query.replace("large_objects", "(SELECT oid AS loid, lomacl FROM pg_largeobject_metadata ORDER BY 1) l")
        assert server.sql("again", named) == server.sql("awkward", named)


def _content(server: Server, tmp_path: Path) -> DatabaseContent:
    database = Database(server.url("again"), tmp_path, PASSWORD)
    with database.session(database.tools()) as session:
        session.ask(BEGIN)
        return database_content(session.ask, "content")


def _dumped(server: Server, database: str, *more: str) -> str:
    """All of a database, as pg_dump writes it, without what differs in each run."""
    argv = [str(server.programs / "pg_dump"), *more, "-d", server.url(database)]
    environ = {"PGPASSWORD": server.password, "PGOPTIONS": "-c bytea_output=hex", "PATH": ""}
    done = subprocess.run(argv, env=environ, capture_output=True, check=True)
    return re.sub(r"(?m)^\\(un)?restrict .*$", "", done.stdout.decode())


@pytest.mark.parametrize("encrypted", [False, True])
def test_awkward_data_is_equal_in_a_server_that_is_restored_from_its_files(
    server: Server, tmp_path: Path, encrypted: bool
) -> None:
    public, private = new_identity(None)
    server.sql("postgres", "ALTER SYSTEM SET summarize_wal = on")
    server.sql("postgres", "SELECT pg_reload_conf()")
    source = {"type": "postgres_physical", "url": server.url("awkward"), "password": {"secret": "pg"}, "full_every": 2}
    given: dict[str, Any] = {"source": source, "destination": str(tmp_path / "to")}
    given |= {"encryption": {"recipients": [public], "metadata": {"secret": "members"}}} if encrypted else {}
    keys = BackupKeys(Identities.of_text(private, "key.txt")) if encrypted else None
    secrets = {"pg": PASSWORD, "members": new_identity(None)[1]}
    for token in (1, 2):
        params = BackupParams.model_validate(given)
        context = FakeContext(
            params, tmp_path / f"scratch-{token}", task="odd", secrets=secrets, token=token, run_id=f"odd~{token}"
        )
        context.scratch.mkdir()
        url = Backup().run(context)["url"]
        # Of a server's files, what is not logged is emptied by a recovery.
        was = _dumped(server, "awkward", "--no-unlogged-table-data")
        server.sql("awkward", "UPDATE edges SET n = n + 10; INSERT INTO above SELECT 9, 'late'; VACUUM edges")
        with recovered(server, lambda data, url=url: restore_backup(url, str(data), keys=keys)) as again:  # type: ignore[misc]
            assert _dumped(again, "awkward", "--no-unlogged-table-data") == was
            assert again.sql("awkward", "SELECT count(*) FROM fleeting") == "0"
    assert len(newest_backup(str(tmp_path / "to" / "odd")).parents) == 1
