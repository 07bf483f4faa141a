"""A program's output as a source: what is kept of it, and how the program's end is told."""

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from node.cli.local import wait_for
from tasks.access import EVERYTHING, AccessRefused
from tasks.backup.archive import TargetExists
from tasks.backup.content import BackupStopped
from tasks.backup.kind import Backup
from tasks.backup.manifest import survey_url
from tasks.backup.params import BackupParams
from tasks.backup.restore import BadTarget, restore_backup
from tasks.backup.sources.stream import StreamFailed
from tasks.backup.verify import verify
from tasks.errors import MissingSecret
from tasks.reach import refusals
from testkit.fake_context import FakeContext


def context_of(tmp_path: Path, *argv: str, token: int = 1, **more: Any) -> FakeContext[BackupParams]:
    source = {"type": "stream", "argv": [sys.executable, "-c", *argv]} | more
    params = BackupParams.model_validate({"source": source, "destination": str(tmp_path / "to")})
    (tmp_path / "scratch").mkdir(exist_ok=True)
    return FakeContext(params, tmp_path / "scratch", task="db", token=token, secrets={"ldap": "hush-hush"})


def test_the_output_is_kept_and_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROTA_SECRET_FILE", "/no")
    code = (
        "import os, sys; print(os.environ['WORD'], os.environ['PLAIN'], 'ROTA_SECRET_FILE' in os.environ, os.getcwd());"
        "sys.stdout.write('x' * 3_000_000)"
    )
    env = {"WORD": {"secret": "ldap"}, "PLAIN": "a b"}
    context = context_of(tmp_path, code, env=env, cwd=str(tmp_path), name="ldap.ldif")
    result = Backup().run(context)
    assert [each["name"] for each in result["objects"]] == ["ldap.ldif.zst"]
    assert context.shown[-1][0] == result["bytes"]
    assert verify(result["url"]).ok
    assert "hush" not in (Path(result["url"]) / "manifest.json").read_text()
    target = tmp_path / "new" / "file"
    restore_backup(f"{tmp_path}/to/db", str(target))
    assert target.read_text() == f"hush-hush a b False {tmp_path}\n" + "x" * 3_000_000
    assert target.stat().st_mode & 0o777 == 0o600
    with pytest.raises(TargetExists, match="--overwrite"):
        restore_backup(result["url"], str(target))
    with pytest.raises(TargetExists, match="is a folder"):
        restore_backup(result["url"], str(tmp_path / "new"), overwrite=True)
    restore_backup(result["url"], str(target), overwrite=True)
    with pytest.raises(BadTarget, match="a path"):
        restore_backup(result["url"], "mysql://a@b/")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import sys; print('half'); sys.exit('the disk is gone')", r"ended with exit code 1: the disk is gone"),
        ("import os; os.kill(os.getpid(), 9)", "was ended by SIGKILL: it said nothing"),
        ("pass", "wrote nothing: if that is right, set `allow_empty: true`"),
    ],
)
def test_a_program_that_fails_makes_no_backup(tmp_path: Path, code: str, said: str) -> None:
    with pytest.raises(StreamFailed, match=said):
        Backup().run(context_of(tmp_path, code))
    assert list((tmp_path / "to" / "db").iterdir()) == []


def test_an_output_of_no_bytes_is_a_backup_if_that_is_said(tmp_path: Path) -> None:
    result = Backup().run(context_of(tmp_path, "pass", allow_empty=True))
    restore_backup(result["url"], str(tmp_path / "empty"))
    assert (tmp_path / "empty").read_bytes() == b""


def test_a_program_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    with pytest.raises(StreamFailed, match="cannot start 'nothing-here': nothing-here: No such file"):
        Backup().run(context_of(tmp_path, argv=["nothing-here"]))
    with pytest.raises(MissingSecret):
        Backup().run(context_of(tmp_path, "pass", env={"A": {"secret": "none"}}))


def test_a_silent_program_is_killed_with_its_children_when_the_run_is_cancelled(tmp_path: Path) -> None:
    code = (
        "import os, subprocess, sys, time;"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']);"
        f"open({str(tmp_path / 'pids')!r} + '.new', 'w').write(f'{{os.getpid()}} {{child.pid}}');"
        f"os.rename({str(tmp_path / 'pids')!r} + '.new', {str(tmp_path / 'pids')!r}); time.sleep(600)"
    )

    class Cancelled(FakeContext[BackupParams]):
        @property
        def cancelled(self) -> bool:
            return (tmp_path / "pids").exists()

        @cancelled.setter
        def cancelled(self, value: bool) -> None:
            pass

    made = context_of(tmp_path, code)
    with pytest.raises(BackupStopped):
        Backup().run(Cancelled(made.params, made.scratch, task="db"))
    parent, child = map(int, (tmp_path / "pids").read_text().split())
    with pytest.raises(ProcessLookupError):
        os.kill(parent, signal.SIGTERM)
    # The signal was sent to the whole group; the child, which is nobody's to wait for here, dies a moment later.
    wait_for("the end of the child", lambda: _has_ended(child))
    assert survey_url(f"{tmp_path}/to/db").complete == ()


def _has_ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_a_node_without_commands_runs_no_stream(tmp_path: Path) -> None:
    context = context_of(tmp_path, "pass")
    context.access = replace(EVERYTHING, node="node-1", allow_command=False)
    with pytest.raises(AccessRefused, match="node-1 runs no programs of tasks: set ROTA_ALLOW_COMMAND=1"):
        Backup().run(context)
    assert not (tmp_path / "to").exists()
    [told] = refusals(context.access, Backup.reaches(context.params, "db"))
    assert told.startswith("params.source: ")
    assert refusals(EVERYTHING, Backup.reaches(context.params, "db")) == []


def test_a_stream_has_the_needs_of_a_command_and_is_one_members(tmp_path: Path) -> None:
    params = context_of(tmp_path, "pass").params
    assert Backup.needs(params, "db").everything
    assert Backup.local_data(params) == ["source"]
    assert Backup.local_data(context_of(tmp_path, "pass", shared=True).params) == []
    with pytest.raises(ValidationError, match="set by Rota"):
        context_of(tmp_path, "pass", env={"ROTA_TASK": "x"})
    with pytest.raises(ValidationError, match="name"):
        context_of(tmp_path, "pass", name="../up")
