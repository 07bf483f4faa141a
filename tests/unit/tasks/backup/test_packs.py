"""A folder in packs: kept by the next attempt as long as nothing in them has changed."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tasks.backup.archive import Content, Damaged
from tasks.backup.encryption import BackupKeys, Identities, new_identity
from tasks.backup.kind import Backup
from tasks.backup.manifest import FileEntry
from tasks.backup.objects import RestoreWatch, StoredObjects
from tasks.backup.restore import restore_backup
from tasks.backup.sources import restore_folder
from tasks.backup.sources.source import NoSuchPart, RestoreParts
from tasks.backup.tree import packs, plan, read_tree
from tasks.backup.tree.pack_index import PackIndex
from tasks.backup.tree.read_tree import FolderFailed, PackOut
from tasks.backup.tree.walk import HiddenFiles
from tasks.backup.verify import verify
from tasks.file_guard import open_within, path_of
from testkit.trees import acl, facts_of_tree
from tests.unit.tasks.backup.backups import backup_context


@pytest.fixture(autouse=True)
def small_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_tree, "PACK_FILES", 10)
    monkeypatch.setattr(plan, "_FRESH_NS", -(10**18))


def _fill(top: Path, folders: int = 5) -> None:
    for folder in range(folders):
        (top / f"d{folder}").mkdir(parents=True)
        for file in range(8):
            (top / f"d{folder}" / f"f{file}").write_text(f"{folder} {file}")
    (top / "first").write_text("several names")
    (top / "d1" / "second").hardlink_to(top / "first")
    (top / "d3" / "third").hardlink_to(top / "first")


class _Died(BaseException):
    pass


def _dies_after(monkeypatch: pytest.MonkeyPatch, whole: int) -> list[int]:
    """The attempt dies once it has begun to read more than this many packs. Returns the numbers of those it reads."""
    read: list[int] = []
    begin = packs.PackWriter._begin
    monkeypatch.setattr(packs, "_AT_ONCE", 1)

    def counted(self: packs.PackWriter, number: int) -> PackOut:
        if len(read) == whole:
            self._wait(0)
            raise _Died
        read.append(number)
        return begin(self, number)

    monkeypatch.setattr(packs.PackWriter, "_begin", counted)
    return read


def _second_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: int, change: Callable[[Path], object] = lambda top: None
) -> list[int]:
    """Let an attempt die after `whole` packs, change the folder and make another. Returns what that one read."""
    first = backup_context(tmp_path)
    with monkeypatch.context() as patched:
        _dies_after(patched, whole)
        with pytest.raises(_Died):
            Backup().run(first)
    change(tmp_path / "from")
    second = backup_context(tmp_path, 2)
    second.checkpoint = first.saved[-1]
    with monkeypatch.context() as patched:
        read = _dies_after(patched, 1000)
        url = Backup().run(second)["url"]
    assert verify(url).problems == ()
    restore_backup(url, str(tmp_path / "back"))
    assert facts_of_tree(tmp_path / "back") == facts_of_tree(tmp_path / "from")
    assert [path.name for path in (tmp_path / "to" / "nightly").iterdir()] == [Path(url).name]
    return read


def test_a_folder_in_packs_comes_back(tmp_path: Path) -> None:
    _fill(tmp_path / "from")
    result = Backup().run(backup_context(tmp_path))
    names = [each["name"] for each in result["objects"]]
    made = list(map(packs.pack_name, range(1, 6)))
    assert names == sorted([*made, *map(packs.index_name, made)])
    assert verify(result["url"]).problems == ()
    restore_backup(result["url"], str(tmp_path / "back"))
    assert facts_of_tree(tmp_path / "back") == facts_of_tree(tmp_path / "from")


def test_the_next_attempt_does_not_read_whole_packs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fill(tmp_path / "from")
    assert _second_attempt(tmp_path, monkeypatch, 3) == [4, 5]


def _gone(top: Path, *names: str) -> object:
    for name in names:
        (top / name).unlink()
    return names


CHANGES: dict[str, tuple[Callable[[Path], object], list[int]]] = {
    "a file": (lambda top: (top / "d1" / "f3").write_text("new"), [2, 4, 5]),
    "a time": (lambda top: os.utime(top / "d1" / "f3", (0, 0)), [2, 4, 5]),
    "a mode": (lambda top: (top / "d2").chmod(0o700), [3, 4, 5]),
    "a new file": (lambda top: (top / "d0" / "new").write_text("new"), [1, 2, 4, 5]),
    "a file gone": (lambda top: _gone(top, "d2/f1"), [3, 4, 5]),
    "a file with names in several packs": (lambda top: (top / "first").write_text("new"), [1, 3, 4, 5]),
    "a name of such a file gone": (lambda top: _gone(top, "first"), [1, 3, 4, 5]),
    "many new files": (lambda top: [(top / "d0" / f"f0-{n}").write_text("n") for n in range(50)], [1, 4, 5]),
    "many new files at the end": (
        lambda top: [(top / "d3" / f"z{n}").write_text("n") for n in range(15)],
        [4, 5, 6, 7],
    ),
    "nearly all gone": (lambda top: _gone(top, *(f"{d}/f{n}" for d in ("d3", "d4") for n in range(8))), [4]),
}


@pytest.mark.parametrize("what", CHANGES)
def test_packs_with_changed_entries_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    change, expected = CHANGES[what]
    _fill(tmp_path / "from")
    assert sorted(_second_attempt(tmp_path, monkeypatch, 3, change)) == expected


def test_a_file_that_changed_a_moment_before_it_was_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(tmp_path / "from")
    monkeypatch.setattr(plan, "_FRESH_NS", 600 * 10**9)
    assert _second_attempt(tmp_path, monkeypatch, 3) == [1, 2, 3, 4, 5]


def test_a_link_in_a_kept_pack_whose_file_is_no_more_where_it_was_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the file moves without a new time of its inode, which some network file systems allow."""
    _fill(tmp_path / "from")
    unchanged = plan._names_if_unchanged

    def other(top: int, real: str, own: HiddenFiles, index: PackIndex) -> Any:
        found = unchanged(top, real, own, index)
        return found if found is None else [(each, path.replace("first", "elsewhere")) for each, path in found]

    def change(top: Path) -> None:
        (top / "d0" / "f1").write_text("pack 1 is made again")
        monkeypatch.setattr(plan, "_names_if_unchanged", other)

    assert _second_attempt(tmp_path, monkeypatch, 3, change) == [1, 3, 4, 5]


def test_an_unreadable_file_ends_the_backup_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fill(tmp_path / "from")
    monkeypatch.setattr(read_tree, "open_within", _fails_at_last)
    with pytest.raises(FolderFailed, match="cannot be read"):
        Backup().run(backup_context(tmp_path))
    assert list((tmp_path / "to" / "nightly").iterdir()) == []


def _fails_at_last(folder: int, name: str, **kwargs: Any) -> int:
    if name == "f7" and path_of(folder).endswith("d4"):
        raise OSError(5, "Input/output error")
    return open_within(folder, name, **kwargs)


def _only_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The packs whose content is read."""
    read: list[str] = []
    content = StoredObjects.content

    def noted(self: StoredObjects, entry: FileEntry) -> Content:
        if ".tar." in entry.name:
            read.append(entry.name)
        return content(self, entry)

    monkeypatch.setattr(StoredObjects, "content", noted)
    return read


PATHS = {
    "first": [1],
    "d1/f7": [2],
    "d1/second": [1, 3],
    "d1": [1, 2, 3],
    "d3/": [1, 4],
    "./d0/f1": [1],
}


@pytest.mark.parametrize("path", PATHS)
def test_one_file_or_folder_is_restored_from_the_packs_that_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    _fill(tmp_path / "from")
    url = Backup().run(backup_context(tmp_path))["url"]
    read = _only_reads(monkeypatch)
    restore_backup(url, str(tmp_path / "back"), parts=RestoreParts(path=path))
    there = tmp_path / "from" / path
    assert sorted(set(read)) == list(map(packs.pack_name, PATHS[path]))
    if there.is_dir():
        assert facts_of_tree(tmp_path / "back") == facts_of_tree(there)
    else:
        assert ((tmp_path / "back").read_text(), (tmp_path / "back").stat().st_mtime_ns) == (
            there.read_text(),
            there.stat().st_mtime_ns,
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "from", "scratch-1", "to"]


@pytest.mark.parametrize("in_packs", [True, False])
def test_a_path_that_is_not_in_the_backup_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_packs: bool
) -> None:
    _fill(tmp_path / "from")
    if not in_packs:
        monkeypatch.setattr(read_tree, "PACK_FILES", 1000)
    url = Backup().run(backup_context(tmp_path))["url"]
    with pytest.raises(NoSuchPart, match="has no d1/nothing"):
        restore_backup(url, str(tmp_path / "back"), parts=RestoreParts(path="d1/nothing"))
    restore_backup(url, str(tmp_path / "back"), parts=RestoreParts(path="d1/second"))
    assert (tmp_path / "back").read_text() == "several names"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "from", "scratch-1", "to"]


def test_an_interrupted_restore_goes_on_with_the_pack_it_was_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fill(tmp_path / "from")
    (tmp_path / "from" / "d1").chmod(0o555)
    url = Backup().run(backup_context(tmp_path))["url"]
    read = _only_reads(monkeypatch)
    noted = restore_folder._note_done

    def dies(marker: int, aside: Path, number: int) -> None:
        if number == 3:
            raise OSError("the store does not answer")
        noted(marker, aside, number)

    with monkeypatch.context() as patched:
        patched.setattr(restore_folder, "_note_done", dies)
        with pytest.raises(OSError, match="does not answer"):
            restore_backup(url, str(tmp_path / "back"))
    assert not (tmp_path / "back").exists()
    done: list[int] = []
    read.clear()
    restore_backup(url, str(tmp_path / "back"), watch=RestoreWatch(done.append))
    assert read == list(map(packs.pack_name, (3, 4, 5)))
    assert done == sorted(done)
    assert facts_of_tree(tmp_path / "back") == facts_of_tree(tmp_path / "from")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["back", "from", "scratch-1", "to"]


def test_a_damaged_pack_is_told_and_nothing_is_left(tmp_path: Path) -> None:
    _fill(tmp_path / "from")
    url = Backup().run(backup_context(tmp_path))["url"]
    pack = Path(url) / packs.pack_name(4)
    pack.write_bytes(pack.read_bytes()[:-9])
    assert len(verify(url).problems) == 1
    with pytest.raises(Damaged):
        restore_backup(url, str(tmp_path / "back"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["from", "scratch-1", "to"]


def test_default_acls_of_folders_reach_no_entry_of_a_later_pack(tmp_path: Path) -> None:
    _fill(tmp_path / "from")
    for folder in (tmp_path, tmp_path / "from", tmp_path / "from" / "d1"):
        os.setxattr(folder, "system.posix_acl_default", acl(1001, 6))
    before = facts_of_tree(tmp_path / "from")
    url = Backup().run(backup_context(tmp_path))["url"]
    restore_backup(url, str(tmp_path / "back"))
    assert facts_of_tree(tmp_path / "back") == before == facts_of_tree(tmp_path / "from")


def test_the_next_attempt_keeps_encrypted_packs_if_it_can_read_their_indexes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (public, private), (_, metadata) = new_identity(None), new_identity(None)
    _fill(tmp_path / "from")
    keys = BackupKeys(Identities.of_text(private, "key.txt"))
    read = {}
    for held in (True, False):
        params: dict[str, Any] = {"destination": str(tmp_path / f"to-{held}")}
        params["encryption"] = {"recipients": [public]} | ({"metadata": {"secret": "metadata"}} if held else {})
        first, second = (backup_context(tmp_path, token, **params) for token in (1, 2))
        for context in (first, second):
            context.secrets = {"metadata": metadata}
        with monkeypatch.context() as patched:
            _dies_after(patched, 3)
            with pytest.raises(_Died):
                Backup().run(first)
        second.checkpoint = first.saved[-1]
        with monkeypatch.context() as patched:
            read[held] = _dies_after(patched, 1000)
            url = Backup().run(second)["url"]
        assert verify(url, keys=keys).problems == ()
        restore_backup(url, str(tmp_path / f"back-{held}"), keys=keys)
        assert facts_of_tree(tmp_path / f"back-{held}") == facts_of_tree(tmp_path / "from")
    assert read == {True: [4, 5], False: [1, 2, 3, 4, 5]}
