"""Exit codes, which scripts rely on: 0 done, 1 failed, 2 wrong call."""

from pathlib import Path

import pytest

from node.cli.main import main
from tasks.backup.kind import Backup
from tasks.backup.params import BackupParams
from testkit.fake_context import FakeContext


def exit_code(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_a_damaged_backup_is_a_failure_of_verify(tmp_path: Path) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "file").write_text("content" * 1000)
    source = {"type": "folder", "path": str(tmp_path / "from")}
    params = BackupParams.model_validate({"source": source, "destination": str(tmp_path / "to")})
    url = Backup().run(FakeContext(params, tmp_path, task="nightly"))["url"]
    assert exit_code("backup", "verify", url) == 0
    archive = next(path for path in Path(url).iterdir() if path.suffix == ".zst")
    content = bytearray(archive.read_bytes())
    content[len(content) // 2] ^= 1
    archive.write_bytes(content)
    assert exit_code("backup", "verify", url) == 1
    assert exit_code("backup", "verify", str(tmp_path / "nowhere" / "else")) == 1


def test_help_is_not_a_failure_and_an_unknown_command_is_a_wrong_call() -> None:
    assert exit_code("--help") == 0
    assert exit_code("conquer") == 2
