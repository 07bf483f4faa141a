"""Plain content of backups that a command line has in temporary files goes with the command, also by SIGKILL."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from tasks.backup.kind import Backup
from tasks.backup.scratch import private_folder, removed_if_killed
from tests.unit.tasks.backup.backups import backup_context

pytestmark = pytest.mark.integration

_HELD = """
import sys, time
from tasks.backup.sources import sqlite
from tasks.backup import restore, verify

def check(path, step):
    print(path, flush=True)
    time.sleep(3600)

sqlite._examine = check
verify.verify(sys.argv[2]) if sys.argv[1] == "verify" else restore.restore_backup(sys.argv[2], sys.argv[3])
"""
"""Verifies or restores, says where the plain copy is, and goes no further."""


def _wait_until_gone(path: Path) -> None:
    deadline_s = time.monotonic() + 60
    while path.exists():
        assert time.monotonic() < deadline_s, f"{path} is still there"
        time.sleep(0.02)


@pytest.mark.parametrize("what", ["verify", "restore"])
def test_a_copy_of_a_database_goes_with_a_process_that_is_killed(tmp_path: Path, what: str) -> None:
    with closing(sqlite3.connect(tmp_path / "app.db")) as database:
        database.execute("CREATE TABLE t (x)")
    source = {"type": "sqlite", "path": str(tmp_path / "app.db"), "shared": True}
    url = Backup().run(backup_context(tmp_path, source=source))["url"]
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    argv = [sys.executable, "-c", _HELD, what, url, str(tmp_path / "back.db")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environ, start_new_session=True) as process:
        assert process.stdout is not None
        copy = Path(process.stdout.readline().strip())
        assert copy.is_relative_to(tmp_path)
        assert copy.stat().st_mode & 0o077 == 0 or copy.parent.stat().st_mode & 0o077 == 0
        os.killpg(process.pid, signal.SIGKILL)
    _wait_until_gone(copy)
    if what == "verify":
        _wait_until_gone(copy.parent)
    assert not (tmp_path / "back.db").exists()


def test_nothing_is_removed_at_an_ordinary_end(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("kept")
    with removed_if_killed(kept):
        pass
    assert kept.exists()
    with private_folder("rota-test-") as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
    assert not folder.exists()


def test_without_a_shell_the_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with removed_if_killed(tmp_path):
        pass
