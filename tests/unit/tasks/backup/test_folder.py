"""A folder's archive: hostile members are contained, changes during the dump are reported, the rest is restored."""

import io
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tasks.backup.archive import CHUNK_BYTES, Content, Damaged
from tasks.backup.sources import folder, in_place, restore_folder, unpack
from tasks.backup.sources.tar import tarfile
from tasks.backup.tree import read_tree, walk
from tasks.backup.tree.read_tree import FolderFailed, TreeReader
from tasks.backup.tree.walk import HiddenFiles
from tasks.file_guard import NO_FILES, open_within, path_of
from tasks.places import mounts


def _dump(path: Path) -> tuple[bytes, list[str]]:
    """The folder's archive, uncompressed, and the remarks."""
    kept, top = _Kept(), os.open(path, os.O_RDONLY)
    try:
        TreeReader(top, str(path), str(path), HiddenFiles(frozenset(), NO_FILES), lambda number: kept).read()
        folder.check_still(path, top)
    finally:
        os.close(top)
    return bytes(kept.content), kept.remarks


class _Kept:
    def __init__(self) -> None:
        self.content = bytearray()
        self.remarks: list[str] = []

    def write(self, chunk: bytes) -> None:
        self.content += chunk

    def end(self, index: Sequence[bytes], remarks: list[str]) -> None:
        self.remarks = remarks


def _content(data: bytes) -> Content:
    chunks = (data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES))
    return Content(chunks)


Member = tuple[str, bytes, str]
"""Name, tarfile's type, and what a link is to."""

FILE, LINK, SYMLINK, FOLDER = tarfile.REGTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE


def _made(*members: Member) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w|") as made:
        for name, kind, to in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname, member.mode = kind, to, 0o777
            member.size = 5 if kind == FILE else 0
            made.addfile(member, io.BytesIO(b"taken") if kind == FILE else None)
    return packed.getvalue()


@pytest.mark.parametrize(
    "hostile",
    [
        lambda out: [(f"{out}/victim", FILE, "")],
        lambda out: [(f"{out}/new", FILE, "")],
        lambda out: [("../outside/victim", FILE, "")],
        lambda out: [("x", LINK, f"{out}/victim"), ("x", FILE, "")],
        lambda out: [("x", LINK, "../outside/victim"), ("x", FILE, "")],
        lambda out: [("x", SYMLINK, f"{out}/victim"), ("y", LINK, "x"), ("y", FILE, "")],
        lambda out: [("x", SYMLINK, f"{out}/victim"), ("x", FILE, "")],
        lambda out: [("x", SYMLINK, str(out)), ("x/victim", FILE, "")],
        lambda out: [("x", SYMLINK, str(out)), ("y", LINK, "x/victim"), ("y", FILE, "")],
        lambda out: [(".", SYMLINK, str(out)), ("victim", FILE, "")],
        # A folder when it is checked, but a link elsewhere when its mode is set at the end.
        lambda out: [("d", FOLDER, ""), ("x", SYMLINK, "d"), ("x", FOLDER, ""), ("x", SYMLINK, str(out))],
    ],
)
def test_an_archive_cannot_write_outside_the_restore_folder(
    tmp_path: Path, hostile: Callable[[Path], list[Member]]
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(0o750)
    (outside / "victim").write_text("mine")
    (outside / "victim").chmod(0o600)
    with pytest.raises(Damaged, match="cannot be unpacked"):
        restore_folder.restore(_content(_made(*hostile(outside))), tmp_path / "back", overwrite=False)
    assert [path.name for path in outside.iterdir()] == ["victim"]
    assert (outside / "victim").read_text() == "mine"
    assert stat.S_IMODE((outside / "victim").stat().st_mode) == 0o600
    assert stat.S_IMODE(outside.stat().st_mode) == 0o750
    assert [path.name for path in tmp_path.iterdir()] == ["outside"]


@pytest.mark.parametrize(
    "unsound",
    [
        [("/etc/x", FILE, "")],
        [("x/../../y", FILE, "")],
        [("a", LINK, "gone")],
        [("a", LINK, "b"), ("b", FILE, "")],
        [("b", FILE, ""), ("a", LINK, "../b")],
    ],
)
def test_verification_refuses_an_archive_that_cannot_be_restored(tmp_path: Path, unsound: list[Member]) -> None:
    with pytest.raises(Damaged, match="is refused"):
        unpack.check_archive(_content(_made(*unsound)))
    with pytest.raises(Damaged, match="is refused"):
        restore_folder.restore(_content(_made(*unsound)), tmp_path / "back", overwrite=False)
    assert list(tmp_path.iterdir()) == []


def _before_opening(monkeypatch: pytest.MonkeyPatch, name: str, do: Callable[[Path], object]) -> None:
    def late(inside: int, wanted: str, **kwargs: Any) -> int:
        if wanted == name:
            do(Path(path_of(inside)) / wanted)
        return open_within(inside, wanted, **kwargs)

    monkeypatch.setattr(read_tree, "open_within", late)


def test_other_hard_links_of_a_vanished_file_are_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "a").write_text("content")
    (tmp_path / "from" / "b").hardlink_to(tmp_path / "from" / "a")
    (tmp_path / "from" / "c").hardlink_to(tmp_path / "from" / "a")
    _before_opening(monkeypatch, "a", Path.unlink)
    data, remarks = _dump(tmp_path / "from")
    assert remarks == [f"{tmp_path}/from/a vanished while the folder was read"]
    assert unpack.check_archive(_content(data)) == 3
    restore_folder.restore(_content(data), tmp_path / "back", overwrite=False)
    assert (tmp_path / "back" / "b").read_text() == "content"
    assert (tmp_path / "back" / "c").samefile(tmp_path / "back" / "b")


@pytest.mark.parametrize("replaced", [False, True])
def test_a_source_folder_removed_during_the_backup_fails_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    root = tmp_path / "from"
    root.mkdir()
    for name in ("a", "b", "c"):
        (root / name).write_text(name)

    def goes(path: Path) -> None:
        root.rename(tmp_path / "elsewhere")
        if replaced:
            root.mkdir()

    _before_opening(monkeypatch, "b", goes)
    with pytest.raises(FolderFailed, match="renamed, unmounted or replaced"):
        _dump(root)


def test_a_subfolder_that_vanishes_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "from" / "deep" / "er").mkdir(parents=True)

    def late(inside: int, wanted: str, **kwargs: Any) -> int:
        shutil.rmtree(Path(path_of(inside)) / wanted)
        return open_within(inside, wanted, **kwargs)

    monkeypatch.setattr(walk, "open_within", late)
    _, remarks = _dump(tmp_path / "from")
    assert remarks == [f"{tmp_path}/from/deep vanished while the folder was read"]


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mode", [0o700, 0o2775])
def test_the_folders_own_mode_and_time_are_restored(tmp_path: Path, mode: int) -> None:
    root = tmp_path / "from"
    (root / "deep").mkdir(parents=True)
    (root / "-").mkdir()
    (root / "-" / "x").write_text("x")
    root.chmod(mode)
    os.utime(root, (1_000_000, 1_000_000))
    data, _ = _dump(root)
    restore_folder.restore(_content(data), tmp_path / "new" / "back", overwrite=False)
    assert _mode(tmp_path / "new" / "back") == mode
    assert (tmp_path / "new" / "back").stat().st_mtime == 1_000_000
    assert (tmp_path / "new" / "back" / "-" / "x").read_text() == "x"


def test_an_archive_without_a_root_entry_is_restored_with_a_private_mode(tmp_path: Path) -> None:
    old = _made(("a", FILE, ""), ("d", FOLDER, ""), ("d/b", LINK, "a"))
    assert unpack.check_archive(_content(old)) == 3
    restore_folder.restore(_content(old), tmp_path / "back", overwrite=False)
    assert (tmp_path / "back" / "d" / "b").read_text() == "taken"
    assert (_mode(tmp_path / "back"), _mode(tmp_path / "back" / "a")) == (0o700, 0o777)


def test_a_restore_through_a_link_fills_the_linked_folder(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "back").symlink_to("disk")
    restore_folder.restore(_content(_made(("a", FILE, ""))), tmp_path / "back", overwrite=False)
    assert (tmp_path / "back").is_symlink()
    assert (tmp_path / "disk" / "a").read_text() == "taken"


def _full(path: Path) -> Path:
    (path / "old").mkdir(parents=True)
    (path / "old" / "file").write_text("old")
    return path


def _all_names(path: Path) -> list[str]:
    return sorted(entry.relative_to(path).as_posix() for entry in path.rglob("*"))


@pytest.fixture(params=["a folder", "a mount point"])
def target(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with something in it; the second is in the table of mounts, with the space written as it is there."""
    there = _full(tmp_path / "there is")
    if request.param == "a mount point":
        table = tmp_path.parent / f"{tmp_path.name}-mounts"
        table.write_text(f"25 24 0:23 / /dev/shm rw\n26 24 0:23 / {tmp_path}/there\\040is rw - ext4 /dev/x rw\n")
        monkeypatch.setattr(mounts, "MOUNTINFO", table)
        rename = Path.rename

        def busy(self: Path, to: Path) -> Path:
            if there in (self, to):
                raise OSError(16, "Device or resource busy")
            return rename(self, to)

        monkeypatch.setattr(Path, "rename", busy)
    return there


def test_the_existing_folder_is_replaced_after_the_new_one_is_synced(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = []
    monkeypatch.setattr(in_place, "sync_files", lambda path: left.append(list(target.parent.rglob("old/file"))))
    restore_folder.restore(
        _content(_made((".", FOLDER, ""), ("a", FILE, ""), ("old", FOLDER, ""))), target, overwrite=True
    )
    assert [len(paths) for paths in left] == [1, 1]
    assert _all_names(target.parent) == ["there is", "there is/a", "there is/old"]
    assert _mode(target) == 0o777


def test_a_new_folder_appears_after_it_is_synced_whatever_its_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def sync(path: Path) -> None:
        os.close(os.open(path, os.O_RDONLY))
        seen.append(sorted(each.name for each in tmp_path.glob("*")))

    monkeypatch.setattr(in_place, "sync_files", sync)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    (tmp_path / ".new").mkdir()
    (tmp_path / ".new").chmod(0o311)
    in_place.put_folder(tmp_path / ".new", tmp_path / "back")
    assert seen == [[".new"]]
    assert _mode(tmp_path / "back") == 0o311


def test_a_folder_that_cannot_be_replaced_is_left_unchanged(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def full(self: Path, to: Path) -> Path:
        if ".partial" in str(self):
            raise OSError(28, "No space left on device")
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(OSError, match="No space left"):
        restore_folder.restore(_content(_made(("a", FILE, ""))), target, overwrite=True)
    assert _all_names(target.parent) == ["there is", "there is/old", "there is/old/file"]


def test_syncing_a_missing_path_raises(tmp_path: Path) -> None:
    in_place.sync_files(tmp_path)
    with pytest.raises(FileNotFoundError):
        in_place.sync_files(tmp_path / "nowhere")
