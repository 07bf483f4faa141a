"""A folder to back up, and attempts at backing it up."""

import os
from pathlib import Path
from typing import Any

from tasks.backup.params import BackupParams
from testkit.fake_context import FakeContext


def backup_context(tmp_path: Path, token: int = 1, **params: Any) -> FakeContext[BackupParams]:
    given = {"source": {"type": "folder", "path": str(tmp_path / "from")}, "destination": str(tmp_path / "to")}
    scratch = tmp_path / f"scratch-{token}"
    scratch.mkdir(exist_ok=True)
    return FakeContext(BackupParams.model_validate(given | params), scratch, task="nightly", token=token)


def fill(path: Path) -> None:
    (path / "deep" / "empty").mkdir(parents=True)
    (path / "a.txt").write_text("a")
    (path / "deep" / "b.bin").write_bytes(os.urandom(100_000))
    (path / "deep" / "umlaut-ä").write_text("x")
    (path / "deep" / "b.bin").chmod(0o640)
    (path / "link").symlink_to("/etc/passwd")
    (path / "dangling").symlink_to("nowhere")
    (path / "hard").hardlink_to(path / "a.txt")
