"""Restores by the command line with no node running, as at three in the morning: each works, or says what to do."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from examples.demo.postgres import Server, postgres_server
from node.cli.main import rota
from tasks.backup.encryption import new_identity
from tasks.backup.kind import Backup
from tests.unit.tasks.backup.backups import backup_context, fill

pytestmark = pytest.mark.integration

PASSWORD = "hush-hush"
OLDER = Path("/usr/lib/postgresql/15/bin")
NEWEST = "20991128T000000.000000Z-9"


@pytest.fixture
def night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an encrypted backup of two runs in `to/nightly`, and the key; no node runs."""
    fill(tmp_path / "from")
    for name in ("key", "other"):
        public, private = new_identity(None)
        (tmp_path / f"{name}.txt").write_text(private)
        if name == "key":
            recipients = [public]
    for token in (1, 2):
        context = backup_context(tmp_path, token, encryption={"recipients": recipients})
        context.run_id = f"nightly~{token}"
        Backup().run(context)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROTA_URL", "http://127.0.0.1:1")
    return tmp_path


def _says(line: str, *words: str, code: int = 1) -> str:
    """Run `rota backup`, and check its exit code and the words that it says. Returns what it says."""
    done = CliRunner().invoke(rota, ["backup", *line.split()])
    said = done.output + str(done.exception or "")
    assert done.exit_code == code, said
    for each in words:
        assert each in said, said
    return said


def test_names_that_are_wrong_are_answered_by_what_is_there(night: Path) -> None:
    _says("list nightly", "Without a node, give the URL instead of the name: DESTINATION/nightly, or ./nightly")
    _says("list to/nightlyy", "holds no folder with a manifest.json", "to has the folders nightly", code=0)
    _says("restore ./to x", "give DESTINATION/TASK; ./to has the folders nightly")
    _says("restore ./to/nightly x --identity key.txt --path nope", "has no nope: paths begin below")
    _says("restore ./to/nightly x --from ./to", "--from chooses among the destinations of a task", code=2)
    _says("restore ./to/nightly x --wal ./log --to-time 14:03", "is no time: write it as 2026-", code=2)
    _says("restore ./to/nightly x --wal ./log --to-time 2026-11-26T14:03", "no time zone: by this machine's", code=2)
    _says("restore ./to/nightly x --options {}x", "--options is not JSON", code=2)
    _says('restore ./to/nightly x --options {"key":{"secret":"k"}}', "add --secret k=FILE", code=2)


def test_keys_that_are_wrong_or_missing_are_named(night: Path) -> None:
    _says("restore ./to/nightly x", "is encrypted to age1", "give the identity", "--identity FILE")
    _says("restore ./to/nightly x --identity other.txt", "cannot be decrypted by the identity that was given")
    _says("restore ./to/nightly x --identity none.txt", "the identity cannot be read", "none.txt")
    assert not (night / "x").exists()
    _says("restore ./to/nightly x --identity key.txt", "restored ./to/nightly/", code=0)
    assert (night / "x" / "a.txt").read_text() == "a"
    _says("restore ./to/nightly x --identity key.txt", "x exists and is not empty", "or give --overwrite")


def test_a_newest_backup_that_is_not_whole_is_named_with_the_one_before(night: Path) -> None:
    first, last = sorted((night / "to" / "nightly").iterdir())
    shutil.copytree(last, night / "to" / "nightly" / NEWEST, ignore=lambda *_: {"manifest.json"})
    _says("list ./to/nightly", f"not listed: {NEWEST} is not complete", code=0)
    _says("restore ./to/nightly x --identity key.txt", f"skipped: {NEWEST} is not complete", last.name, code=0)
    (last / "folder.tar.zst.age").unlink()
    _says(
        "restore ./to/nightly y --identity key.txt",
        f"{last.name} is whole at no destination (./to/nightly/{last.name} lacks folder.tar.zst.age)",
        f"the one before it is ./to/nightly/{first.name}",
    )
    _says("verify ./to/nightly", "DAMAGED", "folder.tar.zst.age is missing")
    _says(f"restore ./to/nightly/{first.name} y --identity key.txt", "restored", code=0)


def test_too_little_room_and_places_that_refuse_are_told_from_the_backup(night: Path) -> None:
    said = _says("restore ./to/nightly key.txt/new --identity key.txt", "key.txt/new cannot be written: ")
    assert "storage" not in said
    (_, last) = sorted((night / "to" / "nightly").iterdir())
    manifest = last / "manifest.json"
    [size] = {str(file["size_bytes"]) for file in json.loads(manifest.read_text())["files"]}
    free = str(shutil.disk_usage(night).free * 2)
    changed = manifest.read_text().replace(f'"size_bytes": {size}', f'"size_bytes": {free}')
    manifest.write_text(changed.rpartition(',\n "sha256"')[0] + "\n}")  # as earlier versions wrote it
    _says("restore ./to/nightly x --identity key.txt", f"needs {int(free):,} bytes; ", "are free there")


CONFINED = "--inh-caps=-all", "--bounding-set=-all"


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="gives files to another user")
def test_a_user_who_may_not_read_or_write_is_told_which_file(night: Path) -> None:
    (_, last) = sorted((night / "to" / "nightly").iterdir())

    def restored(to: str) -> str:
        program = "import sys; from node.cli.main import rota; rota()"
        argv = ["backup", "restore", "./to/nightly", to, "--identity", "key.txt"]
        command = ["setpriv", *CONFINED, sys.executable, "-c", program, *argv]
        env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False).stderr

    (night / "closed").mkdir(mode=0o500)
    assert f"{night}/closed/x cannot be written: Permission denied" in restored("closed/x")
    for path in (last / "folder.tar.zst.age", night / "to" / "nightly"):
        os.chown(path, 65534, 65534)
        path.chmod(0o600)
        assert "cannot be read: " in (said := restored("x")) and "Permission denied" in said


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server(PASSWORD) as server:
        server.sql("postgres", "CREATE DATABASE orders")
        server.sql("orders", "CREATE TABLE line AS SELECT n AS id FROM generate_series(1, 1000) n")
        yield server


def _back_up_orders(server: Server, tmp_path: Path) -> None:
    source = {"type": "postgres", "url": server.url("orders"), "password": {"secret": "pg"}}
    context = backup_context(tmp_path, source=source)
    context.secrets = {"pg": PASSWORD}
    Backup().run(context)


def test_a_database_that_is_not_there_or_too_old_is_named(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _back_up_orders(server, tmp_path)
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    backups = f"{tmp_path}/to/nightly"
    _says(f"restore {backups} {server.url('absent')}", 'database "absent" does not exist: create it')
    _says(
        f"restore {backups} {server.url('orders')} --overwrite", "is the database that was backed up, and is not empty"
    )
    server.sql("orders", "DROP TABLE line")
    _says(f"restore {backups} {server.url('orders')} --table public.line", "restored", code=0)
    assert server.sql("orders", "SELECT count(*) FROM line") == "1000"
    monkeypatch.setenv("ROTA_POSTGRES_BIN", "/nonexistent")
    _says(
        f"restore {backups} {server.url('orders')}", "are not installed in /nonexistent, which ROTA_POSTGRES_BIN names"
    )


@pytest.mark.more
@pytest.mark.skipif(not OLDER.exists(), reason="PostgreSQL 15 is not installed")
def test_a_server_that_is_older_than_the_dump_is_named(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _back_up_orders(server, tmp_path)
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with postgres_server(PASSWORD, OLDER) as older:
        older.sql("postgres", "CREATE DATABASE again")
        _says(
            f"restore {tmp_path}/to/nightly {older.url('again')}", "The server is PostgreSQL 15", "restore into one of"
        )
