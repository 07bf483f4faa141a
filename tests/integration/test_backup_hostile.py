"""Content of backups that is code: what it reaches when it is restored."""

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from examples.demo.postgres import Server, postgres_server
from tasks.backup.kind import Backup
from tasks.backup.params import BackupParams
from tasks.backup.sources.postgres_database import Database
from tasks.backup.sources.postgres_restore import executed
from tasks.backup.sources.postgres_sql import role_statements
from tasks.backup.sources.postgres_tools import PostgresFailed
from tasks.drill.kind import Drill
from tasks.drill.params import DrillParams
from testkit.fake_context import FakeContext

pytestmark = pytest.mark.integration

SHELL = """CREATE FUNCTION public.sound(n int) RETURNS boolean LANGUAGE plpgsql AS $f$
BEGIN
  IF current_setting('is_superuser') = 'on' AND session_user = 'rota_drill' THEN
    COPY (SELECT 1) TO PROGRAM $p$%s$p$;
  END IF;
  RETURN true;
EXCEPTION WHEN OTHERS THEN
  RETURN true;
END $f$;
CREATE TABLE public.bait (n int CHECK (public.sound(n)));
INSERT INTO public.bait VALUES (1);"""
"""What anybody can do who may make a table. Nothing happens until a superuser restores the table."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server("hush-hush") as running:
        running.sql("postgres", "CREATE ROLE guest LOGIN")
        yield running


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as heard:
        heard.setblocking(False)
        yield heard


def drilled(server: Server, tmp_path: Path, command: str) -> dict[str, Any]:
    """Drill a backup of a database in which a guest has planted a command, which leaves its findings in `loot`."""
    server.sql("postgres", "DROP DATABASE IF EXISTS planted")
    server.sql("postgres", "CREATE DATABASE planted")
    server.sql("planted", "GRANT CREATE ON SCHEMA public TO guest; SET SESSION AUTHORIZATION guest;" + SHELL % command)
    source = {"type": "postgres", "url": server.url("planted"), "password": {"secret": "pg"}}
    to = tmp_path / "to"
    params = BackupParams.model_validate({"source": source, "destination": str(to)})
    (tmp_path / "scratch").mkdir()
    Backup().run(FakeContext(params, tmp_path / "scratch", task="planted", secrets={"pg": "hush-hush"}))
    (to / "planted" / "old").write_text("x")
    for path in (to / "planted", *(to / "planted").iterdir()):
        path.chmod(0o777)  # as if the server ran as the user who may write there
    scratch = tmp_path / "drill"
    scratch.mkdir(mode=0o711)
    given = DrillParams.model_validate({"backups": {"url": str(to / "planted")}})
    return Drill().run(FakeContext(given, scratch, task="drill", token=9))


def test_what_a_guest_planted_reaches_nothing_but_the_scratch_server(
    server: Server, tmp_path: Path, listening: socket.socket
) -> None:
    shutil.copy("/bin/true", tmp_path / "program")
    (tmp_path / "secret").write_text("TOPSECRET")
    (tmp_path / "secret").chmod(0o644)
    tmp_path.chmod(0o755)
    me, port = os.getpid(), listening.getsockname()[1]
    planted = tmp_path / "to" / "planted"
    tried = {
        "told": "true",
        "removed": f"rm {planted}/old",
        "wrote": f"echo x > {planted}/planted",
        "read": f"grep -q TOPSECRET {tmp_path}/secret",
        "listed": f"ls {planted}",
        "connected": f"bash -c 'echo x > /dev/tcp/127.0.0.1/{port}'",
        "signalled": f"kill -0 {me}",
        "looked": f"head -c 1 /proc/{me}/environ | grep -q .",
        "ran": str(tmp_path / "program"),
    }
    command = "; ".join(f"({way}) 2>/dev/null && echo {name} >> ../loot" for name, way in tried.items()) + "; true"
    result = drilled(server, tmp_path, command)
    assert not (tmp_path / "drill" / "server" / "loot").exists(), "no program runs, not even a shell"
    assert result["rows"] == 1
    with pytest.raises(BlockingIOError):
        listening.accept()
    assert sorted(path.name for path in planted.iterdir()) == sorted(
        [result["backup"].rpartition("/")[2], "old", "proofs"]
    )


@pytest.mark.parametrize(
    "statement", ["CREATE ROLE a {};", "CREATE ROLE a -- '\n{}\n-- ';", "COMMENT ON ROLE a IS '{}';"]
)
def test_psql_obeys_nothing_in_the_statements_of_a_backup(server: Server, tmp_path: Path, statement: str) -> None:
    planted = tmp_path / "planted"
    database = Database(server.url("postgres"), tmp_path, "hush-hush")
    said = statement.format(f"\\! touch {planted}")
    with suppress(PostgresFailed), database.session(database.tools()) as session:
        session.ask("\n".join(map(executed, role_statements(said, ()))))
    assert not planted.exists()
