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
from tasks.backup.params import BackupParams
from tasks.backup.restore import restore_backup
from tasks.backup.sources.postgres_database import Database
from tasks.backup.sources.source import RestoreParts
from testkit.fake_context import FakeContext

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
    assert sum(table.rows for table in dumped.tables or ()) == 2 + 2 + 100 + 2 + 1 + 2
    assert len(dumped.sequences or ()) == 3
    assert {"event trigger", "policy", "owner and grants"} < {each.kind for each in dumped.catalog or ()}
    assert differences(dumped, _content(server, tmp_path)) == []
    assert _schema(server, "again") == _schema(server, "awkward")
    for query in (SEQUENCES, "SELECT count(*), min(at) FROM per_day", "SELECT loid, lomacl FROM large_objects"):
        named = query.replace("large_objects", "(SELECT oid AS loid, lomacl FROM pg_largeobject_metadata ORDER BY 1) l")
        assert server.sql("again", named) == server.sql("awkward", named)


def _content(server: Server, tmp_path: Path) -> DatabaseContent:
    database = Database(server.url("again"), tmp_path, PASSWORD)
    with database.session(database.tools()) as session:
        session.ask(BEGIN)
        return database_content(session.ask, "content")


def _schema(server: Server, database: str) -> str:
    """The definition of everything in a database, as pg_dump writes it, without what differs in each run."""
    argv = [str(server.programs / "pg_dump"), "--schema-only", "-d", server.url(database)]
    done = subprocess.run(argv, env={"PGPASSWORD": server.password, "PATH": ""}, capture_output=True, check=True)
    return re.sub(r"(?m)^\\(un)?restrict .*$", "", done.stdout.decode())
