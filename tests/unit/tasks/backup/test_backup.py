"""Backups of folders and SQLite files to folders and memory: the round trip, and failures on the way."""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tasks.backup import archive
from tasks.backup import params as backup_params
from tasks.backup.archive import Damaged, TargetExists
from tasks.backup.content import BackupStopped
from tasks.backup.kind import RESULT, Backup
from tasks.backup.manifest import NoBackup, newest_backup, survey_url
from tasks.backup.params import place_url
from tasks.backup.restore import BadTarget, restore_backup
from tasks.backup.sources import sqlite
from tasks.backup.sources.source import NoBackupSource
from tasks.backup.tree import header, read_tree
from tasks.backup.tree.packs import pack_name
from tasks.backup.verify import verify
from tasks.file_guard import open_within
from tasks.kind import Fenced
from tasks.places.place import Place
from tasks.source_identity import identity_id
from tests.unit.tasks.backup.backups import backup_context, fill


def test_a_backup_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    fill(tmp_path / "from")
    url = Backup().run(backup_context(tmp_path))["url"]
    made = [Path(url), *Path(url).iterdir()]
    assert len(made) == 3
    assert [path.stat().st_mode & 0o077 for path in made] == [0, 0, 0]


def _seen(path: Path) -> dict[str, tuple[Any, ...]]:
    found = {}
    for entry in sorted(path.rglob("*")):
        about = entry.lstat()
        content: Any = entry.readlink() if entry.is_symlink() else entry.read_bytes() if entry.is_file() else None
        own = (about.st_mode, about.st_uid, about.st_gid, about.st_mtime_ns)
        found[entry.relative_to(path).as_posix()] = (content, *own)
    return found


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.delitem(backup_params.KEEPS_NOTHING, "memory")
    yield "memory://backups"
    files = fsspec.filesystem("memory")
    if files.exists("/backups"):
        files.rm("/backups", recursive=True)


@pytest.mark.parametrize("kept", ["local", "memory"])
def test_a_folder_is_restored_unchanged(tmp_path: Path, kept: str, memory: str) -> None:
    fill(tmp_path / "from")
    url = memory if kept == "memory" else str(tmp_path / "to")
    result = Backup().run(backup_context(tmp_path, destination=url))
    assert result.keys() == RESULT.keys()
    assert result["url"].startswith(f"{url}/nightly/")
    assert result["remarks"] == 0
    assert verify(place_url(url, "nightly")).ok
    restore_backup(place_url(url, "nightly"), str(tmp_path / "back"))
    assert _seen(tmp_path / "back") == _seen(tmp_path / "from")
    assert (tmp_path / "back" / "hard").stat().st_nlink == 2


def test_the_same_folder_gives_the_same_archive(tmp_path: Path) -> None:
    fill(tmp_path / "from")
    sums = [Backup().run(backup_context(tmp_path, token))["sha256"] for token in (1, 2)]
    assert sums[0] == sums[1]


def test_the_manifest_describes_the_files(tmp_path: Path) -> None:
    fill(tmp_path / "from")
    result = Backup().run(backup_context(tmp_path, 7))
    (found,) = survey_url(f"{tmp_path}/to/nightly").complete
    assert (found.task, found.token, found.url, found.source_type) == ("nightly", 7, result["url"], "folder")
    assert found.source == {"type": "folder", "path": str(tmp_path / "from"), "shared": False}
    assert (found.node, found.lineage) == ("node-1", identity_id(found.identity or {}))
    assert (found.size_bytes, found.stored_bytes) == (result["bytes"], result["stored_bytes"])
    assert sum(each["stored_bytes"] for each in result["objects"]) == found.stored_bytes
    assert json.loads((Path(found.url) / "manifest.json").read_text())["version"] == 1
    assert survey_url(found.url).complete == (found,)


def test_special_files_are_skipped_and_reported_with_their_type(tmp_path: Path) -> None:
    fill(tmp_path / "from")
    os.mkfifo(tmp_path / "from" / "pipe")
    assert Backup().run(backup_context(tmp_path))["remarks"] == 1
    assert "socket or a pipe" in newest_backup(f"{tmp_path}/to/nightly").remarks[0]


def test_a_file_that_vanishes_or_shrinks_during_the_backup_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path / "from")
    made = header.member

    def late(inside: int, wanted: str, **kwargs: Any) -> int:
        if wanted == "umlaut-ä":
            os.unlink(wanted, dir_fd=inside)
        return open_within(inside, wanted, **kwargs)

    def shrinks(name: bytes, *args: Any, **kwargs: Any) -> bytes:
        if name == b"deep/b.bin":
            os.truncate(tmp_path / "from" / "deep" / "b.bin", 5)
        return made(name, *args, **kwargs)

    monkeypatch.setattr(read_tree, "open_within", late)
    monkeypatch.setattr(read_tree, "member", shrinks)
    Backup().run(backup_context(tmp_path))
    monkeypatch.undo()
    remarks = newest_backup(f"{tmp_path}/to/nightly").remarks
    assert [remark.rpartition("/")[2] for remark in remarks] == [
        "b.bin shrank while it was read: its last 99995 bytes are zeros",
        "umlaut-ä vanished while the folder was read",
    ]
    restore_backup(f"{tmp_path}/to/nightly", str(tmp_path / "back"))
    restored = (tmp_path / "back" / "deep" / "b.bin").read_bytes()
    assert restored == (tmp_path / "from" / "deep" / "b.bin").read_bytes() + bytes(99_995)


def test_a_missing_folder_fails_the_backup_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(NoBackupSource, match="does not exist on node-1"):
        Backup().run(backup_context(tmp_path))
    assert survey_url(f"{tmp_path}/to/nightly").complete == ()


def _database(path: Path, rows: int = 2000) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE t (n INTEGER PRIMARY KEY, text TEXT)")
        database.executemany("INSERT INTO t VALUES (?, ?)", ((n, f"row {n}" * 20) for n in range(rows)))
        database.commit()


def _rows(path: Path) -> list[Any]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT * FROM t ORDER BY n").fetchall()


def test_an_sqlite_database_is_restored_consistently_despite_concurrent_writes(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    _database(path)
    before = _rows(path)
    with closing(sqlite3.connect(path)) as writer:
        # An open transaction of another's: what it has not committed is not in the backup.
        writer.execute("INSERT INTO t VALUES (-1, 'not yet')")
        Backup().run(backup_context(tmp_path, source={"type": "sqlite", "path": str(path)}))
    report = verify(f"{tmp_path}/to/nightly")
    assert report.ok
    restore_backup(f"{tmp_path}/to/nightly", str(tmp_path / "back.db"))
    assert _rows(tmp_path / "back.db") == before
    assert sorted(entry.name for entry in tmp_path.glob("*back.db*")) == ["back.db"]


def test_an_older_databases_wal_is_not_applied_to_the_restored_one(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    _database(path, 10)
    Backup().run(backup_context(tmp_path, source={"type": "sqlite", "path": str(path)}))
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("DELETE FROM t")
        writer.commit()
        restore_backup(f"{tmp_path}/to/nightly", str(path), over_source=True)
    assert len(_rows(path)) == 10


@pytest.mark.parametrize("content", [None, b"this is not a database" * 100])
def test_a_file_that_is_no_database_fails_with_its_name(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "app.db"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(
        (NoBackupSource, sqlite.SqliteFailed), match=r"app\.db(: file is not a database| does not exist on)"
    ):
        Backup().run(backup_context(tmp_path, source={"type": "sqlite", "path": str(path)}))
    assert survey_url(f"{tmp_path}/to/nightly").complete == ()


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 5)


def _lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")


@pytest.mark.parametrize("damage", [_flip, _cut, _lengthen, Path.unlink])
def test_a_damaged_archive_is_detected_and_not_restored(tmp_path: Path, damage: Any) -> None:
    fill(tmp_path / "from")
    result = Backup().run(backup_context(tmp_path))
    damage(Path(result["url"]) / pack_name(1))
    report = verify(result["url"])
    assert not report.ok
    assert pack_name(1) in report.problems[0]
    with pytest.raises(Damaged):
        restore_backup(result["url"], str(tmp_path / "back"))
    assert not (tmp_path / "back").exists()
    assert [entry.name for entry in tmp_path.glob(".back*")] == []


def test_a_highly_compressed_archive_is_read_in_pieces(tmp_path: Path) -> None:
    place = Place(str(tmp_path))

    with archive.storing(place, "zeros.zst", 3, archive.quiet) as out:
        for _ in range(64):
            out.write(bytes(archive.CHUNK_BYTES))
    entry = out.entry
    assert entry.stored_bytes < 10_000
    sizes = [len(chunk) for chunk in archive.stored_content(place, entry, archive.quiet)]
    assert max(sizes) <= archive.CHUNK_BYTES
    assert sum(sizes) == 64 * archive.CHUNK_BYTES


def test_restore_refuses_an_existing_target_unless_overwrite_is_set(tmp_path: Path) -> None:
    fill(tmp_path / "from")
    result = Backup().run(backup_context(tmp_path))
    (tmp_path / "back").mkdir()
    (tmp_path / "back" / "mine").write_text("mine")
    with pytest.raises(TargetExists, match="not empty"):
        restore_backup(result["url"], str(tmp_path / "back"))
    assert (tmp_path / "back" / "mine").read_text() == "mine"
    restore_backup(result["url"], str(tmp_path / "back"), overwrite=True)
    assert _seen(tmp_path / "back") == _seen(tmp_path / "from")
    with pytest.raises(BadTarget, match="a path"):
        restore_backup(result["url"], "postgresql://localhost/x")
    with pytest.raises(NoBackup, match=r"no folder with a manifest\.json"):
        restore_backup(str(tmp_path / "elsewhere"), str(tmp_path / "back"))


class Crash(BaseException):
    """The worker is gone."""


def _fence(value: Any) -> None:
    if "finishing" in value:  # all is written, but the manifest
        raise Fenced


def _crash(value: Any) -> None:
    if "finishing" in value:
        raise Crash


@pytest.mark.parametrize("interruption", [_fence, _crash])
def test_an_attempt_without_a_manifest_makes_no_backup_and_changes_no_other(tmp_path: Path, interruption: Any) -> None:
    fill(tmp_path / "from")
    good = Backup().run(backup_context(tmp_path, 1))
    late = backup_context(tmp_path, 2)
    late.before_checkpoint = interruption
    with pytest.raises((Fenced, Crash)):
        Backup().run(late)
    assert [found.url for found in survey_url(f"{tmp_path}/to/nightly").complete] == [good["url"]]
    assert verify(f"{tmp_path}/to/nightly").ok
    left = [entry for entry in (tmp_path / "to" / "nightly").iterdir() if str(entry) != good["url"]]
    assert len(left) == (1 if interruption is _crash else 0)


def test_a_backup_of_another_cluster_with_the_same_name_is_not_touched(
    tmp_path: Path,
) -> None:
    """Tokens count from 1 again in a new cluster; two may name a destination and a task alike."""
    fill(tmp_path / "from")
    backup = Backup(now=lambda: datetime(2026, 11, 21, 3, tzinfo=UTC))
    backup.run(backup_context(tmp_path, 1))
    with pytest.raises(FileExistsError, match="another cluster"):
        backup.run(backup_context(tmp_path, 1))
    assert verify(f"{tmp_path}/to/nightly").ok


def test_an_attempt_that_is_asked_to_stop_makes_no_backup(tmp_path: Path) -> None:
    fill(tmp_path / "from")
    context = backup_context(tmp_path)
    context.cancelled = True
    with pytest.raises(BackupStopped):
        Backup().run(context)
    assert survey_url(f"{tmp_path}/to/nightly").complete == ()


def test_a_manifest_that_was_changed_is_told(tmp_path: Path) -> None:
    fill(tmp_path / "from")
    url = Backup().run(backup_context(tmp_path))["url"]
    path = Path(url) / "manifest.json"
    text = path.read_bytes()
    last = text.rindex(b'"sha256"')
    for at in [*range(0, last, 7), *range(last + len('"sha256": "'), len(text) - 3)]:
        for bit in (1, 32, 64):
            changed = bytearray(text)
            changed[at] ^= bit
            path.write_bytes(changed)
            assert survey_url(url.rpartition("/")[0]).complete == (), (at, bit)
    path.write_bytes(text)
    assert survey_url(url).complete
    without = json.loads(text)
    del without["sha256"]
    path.write_text(json.dumps(without, indent=1))
    assert survey_url(url).complete, "earlier versions wrote no checksum"
