"""A restore replaces what was backed up only when it is told so, by whatever path it comes there."""

import ctypes
import os
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tasks.backup.archive import TargetExists
from tasks.backup.kind import Backup
from tasks.backup.manifest import newest_backup
from tasks.backup.over_source import TargetInUse, refuse_over_source
from tasks.backup.restore import restore_backup
from tasks.backup.sources.source import RestoreParts, RestoreTarget
from tests.unit.tasks.backup.backups import backup_context, fill
from tests.unit.tasks.backup.test_chain import backup

_BIND, _UNMOUNT_LATER = 4096, 2


@pytest.fixture
def backed_up(tmp_path: Path) -> str:
    fill(tmp_path / "from")
    Backup().run(backup_context(tmp_path))
    (tmp_path / "from" / "a.txt").write_text("written since")
    return f"{tmp_path}/to/nightly"


@pytest.fixture
def bound(tmp_path: Path) -> Iterator[Callable[[Path, Path], None]]:
    """Mount a folder at a second path, until the test ends."""
    libc, mounted = ctypes.CDLL(None, use_errno=True), list[Path]()

    def bind(folder: Path, at: Path) -> None:
        at.mkdir()
        if libc.mount(os.fsencode(folder), os.fsencode(at), None, _BIND, None):
            pytest.skip(f"this user may not mount: {os.strerror(ctypes.get_errno())}")
        mounted.append(at)

    yield bind
    for at in mounted:
        libc.umount2(os.fsencode(at), _UNMOUNT_LATER)


def _refused(url: str, target: Path, says: str, kind: type[TargetExists] = TargetExists, **how: Any) -> None:
    with pytest.raises(kind, match=says):
        restore_backup(url, str(target), **{"overwrite": True, **how})


def test_the_folder_that_was_backed_up_is_replaced_only_by_name(tmp_path: Path, backed_up: str) -> None:
    source = tmp_path / "from"
    (tmp_path / "link").symlink_to(source)
    for target in (source, tmp_path / "link", tmp_path / "link" / ".." / "from"):
        _refused(backed_up, target, rf"{source} is what was backed up: .* or give --over-source to replace")
    _refused(backed_up, source / "deep", "is in, or holds, .*from, which was backed up")
    _refused(backed_up, source / "a.txt", "is in, or holds", parts=RestoreParts(path="a.txt"))
    _refused(backed_up, source, "is what was backed up", overwrite=False)
    assert (source / "a.txt").read_text() == "written since"
    restore_backup(backed_up, str(source), over_source=True)
    assert (source / "a.txt").read_text() == "a"


def test_the_folder_is_known_at_another_mount_point(
    tmp_path: Path, backed_up: str, bound: Callable[[Path, Path], None]
) -> None:
    bound(tmp_path / "from", tmp_path / "elsewhere")
    _refused(backed_up, tmp_path / "elsewhere", "which was backed up")
    _refused(backed_up, tmp_path / "elsewhere" / "deep", "which was backed up")
    assert (tmp_path / "from" / "a.txt").read_text() == "written since"


def test_what_is_lost_is_restored_to_its_own_place_without_a_word(tmp_path: Path, backed_up: str) -> None:
    source = tmp_path / "from"
    (source / "a.txt").unlink()
    restore_backup(backed_up, str(source / "a.txt"), parts=RestoreParts(path="a.txt"))
    assert (source / "a.txt").read_text() == "a"
    source.rename(tmp_path / "lost")
    restore_backup(backed_up, str(source))
    assert (source / "a.txt").read_text() == "a"


def test_a_folder_of_that_name_on_another_machine_is_an_ordinary_target(tmp_path: Path, backed_up: str) -> None:
    manifest = newest_backup(backed_up)
    elsewhere = manifest.model_copy(update={"identity": {**(manifest.identity or {}), "file_system": "other"}})
    refuse_over_source(elsewhere, RestoreTarget(str(tmp_path / "from"), overwrite=True))
    with pytest.raises(TargetExists):
        refuse_over_source(manifest, RestoreTarget(str(tmp_path / "from"), overwrite=True))


def test_the_backups_themselves_are_never_replaced(tmp_path: Path, backed_up: str, monkeypatch: Any) -> None:
    own = newest_backup(backed_up).url
    for target in (backed_up, own, f"{own}/new", tmp_path / "to", tmp_path):
        _refused(backed_up, Path(target), "holds the backups themselves", TargetInUse, over_source=True)
    monkeypatch.chdir(tmp_path / "to")
    _refused("./nightly", tmp_path / "to", "holds the backups themselves", TargetInUse)
    restore_backup(backed_up, str(tmp_path / "to" / "restored"))


def test_an_sqlite_file_is_known_through_a_hard_link(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE t (id)")
    Backup().run(backup_context(tmp_path, source={"type": "sqlite", "path": str(path)}))
    (tmp_path / "other.db").hardlink_to(path)
    _refused(f"{tmp_path}/to/nightly", path, r"app\.db is what was backed up")
    _refused(f"{tmp_path}/to/nightly", tmp_path / "other.db", r"other\.db is .*app\.db, which was backed up")
    restore_backup(f"{tmp_path}/to/nightly", str(path), over_source=True)


def test_a_data_folder_is_known_by_its_server(tmp_path: Path) -> None:
    manifest = backup(1)
    assert manifest.wal is not None
    data = tmp_path / "data"
    (data / "global").mkdir(parents=True)
    (data / "global" / "pg_control").write_bytes(struct.pack("=Q", int(manifest.wal.system)) + bytes(8))
    to = RestoreTarget(str(data), overwrite=True)
    with pytest.raises(TargetExists, match="data folder of the server that was backed up, or of a copy"):
        refuse_over_source(manifest, to)
    refuse_over_source(manifest, to._replace(over_source=True))
    (data / "postmaster.pid").write_text(f"{os.getpid()}\n{data}\n")
    with pytest.raises(TargetInUse, match=rf"a PostgreSQL server runs on {data} \(process {os.getpid()}"):
        refuse_over_source(manifest, to._replace(over_source=True))
    (data / "postmaster.pid").write_text("not a process\n")
    (data / "global" / "pg_control").write_bytes(struct.pack("=Q", 42))
    refuse_over_source(manifest, to)
