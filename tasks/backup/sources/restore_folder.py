"""Restores a folder: from one archive, from packs, or only a file or a subfolder of it.

The folder is made beside its target, which it replaces when it is complete. From packs it is made in a folder whose
name depends on the backup, and a file beside that says how many packs are in it: a restore that was interrupted goes
on with the pack it was at. A lock on this file keeps two restores of a backup into one target apart.
"""

import fcntl
import json
import os
import shutil
import stat
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Final

from tasks.backup.archive import Content, Damaged, TargetExists
from tasks.backup.manifest import FileEntry, Manifest
from tasks.backup.objects import StoredObjects
from tasks.backup.sources.in_place import beside, closed_to_others, empty, put_file, put_folder, sync_files
from tasks.backup.sources.source import NoSuchPart
from tasks.backup.sources.unpack import Unpacking, extract
from tasks.backup.tree.pack_index import PackIndex
from tasks.backup.tree.packs import index_name, number_of
from tasks.backup.tree.walk import position

_PRIVATE: Final = 0o700
"""With a mode of its own a folder is closed to others even if the one above it has a default ACL."""

_MARKER: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def restore(
    content: Content, target: Path, overwrite: bool, placing: Callable[[Path], None] = lambda path: None
) -> list[str]:
    """Unpack the archive as the folder `target`, which appears complete or not at all. Returns remarks.

    Raises `Damaged`, and `TargetExists` if `target` exists, is not an empty folder, and `overwrite` is not set.
    """
    target = _checked(target, overwrite)
    aside = beside(target)
    with closed_to_others():
        aside.mkdir(_PRIVATE)
        try:
            remarks = extract(content, aside)
            placing(aside)
            put_folder(aside, target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return remarks


def restore_packs(
    stored: StoredObjects, target: Path, overwrite: bool, placing: Callable[[Path], None] = lambda path: None
) -> list[str]:
    """Unpack all packs of a backup as the folder `target`. Returns remarks. Raises the errors of `restore`.

    After any other error than `Damaged`, the packs that were unpacked stay beside the target for the next call.
    """
    target = _checked(target, overwrite)
    packs = [entry for entry in stored.manifest.files if number_of(entry.plain_name) is not None]
    aside = beside(target, _key(stored.manifest))
    with closed_to_others(), _locked(aside) as marker:
        # The last pack is unpacked in any case: it also says what the folder's own mode is.
        done = min(_packs_done(marker, aside), len(packs) - 1)
        unpacking = Unpacking(aside)
        try:
            for number, entry in enumerate(packs):
                if number < done:
                    stored.skip(entry)
                    continue
                unpacking.add(stored.content(entry), again=number == done)
                sync_files(aside)
                _note_done(marker, aside, number + 1)
            unpacking.finish()
            placing(aside)
            put_folder(aside, target)
        except Damaged:
            shutil.rmtree(aside, ignore_errors=True)
            _path_of(aside).unlink(missing_ok=True)
            raise
        _path_of(aside).unlink(missing_ok=True)
    return unpacking.remarks


def restore_path(stored: StoredObjects, path: str, target: Path, overwrite: bool) -> list[str]:
    """Restore the file or folder at `path` in a backup as `target`. Returns remarks.

    Only the packs that have it are read. Raises the errors of `restore`, and `NoSuchPart`.
    """
    target = _checked(target, overwrite)
    archives = _Archives(stored)
    aside = beside(target)
    with closed_to_others():
        aside.mkdir(_PRIVATE)
        try:
            unpacking = Unpacking(aside, only=path)
            for entry in archives.with_path(path):
                unpacking.add(stored.content(entry))
            if not unpacking.found:
                raise NoSuchPart(f"{stored.manifest.url} has no {path}: paths begin below the folder's own")
            remarks = _fetch_linked(stored, archives, unpacking, aside)
            unpacking.finish()
            remarks += unpacking.remarks
            single = aside / path.rstrip("/").rpartition("/")[2]
            if unpacking.is_folder:
                put_folder(aside, target)
            elif single.is_symlink():
                single.rename(target)
            else:
                put_file(single, target, ())
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return remarks


def _fetch_linked(stored: StoredObjects, archives: "_Archives", unpacking: Unpacking, aside: Path) -> list[str]:
    """Unpack files elsewhere in the backup of which hard links were restored. Returns remarks."""
    remarks: list[str] = []
    for number, (first, names) in enumerate(unpacking.linked.items()):
        inner = aside / f".linked-{number}"
        inner.mkdir()
        fetching = Unpacking(inner, only=first)
        for entry in archives.with_path(first):
            fetching.add(stored.content(entry))
        found = inner / first.rpartition("/")[2]
        if not fetching.found or not stat.S_ISREG(found.lstat().st_mode):
            raise Damaged(
                f"{stored.manifest.url}: {names[0]} is a hard link to {first}, which is no file in the backup"
            )
        for name in names:
            os.link(found, aside / name, follow_symlinks=False)
        shutil.rmtree(inner)
        remarks += fetching.remarks
    return remarks


class _Archives:
    """The archives of a backup, and which of them has a path."""

    def __init__(self, stored: StoredObjects) -> None:
        self._stored = stored
        by_name = {entry.plain_name: entry for entry in stored.manifest.files}
        self._packs = [entry for entry in stored.manifest.files if number_of(entry.plain_name) is not None]
        self._indexes: dict[int, PackIndex] = {}
        self._by_name = by_name

    def with_path(self, path: str) -> Iterator[FileEntry]:
        """Yield the archives that have the file or folder at `path`, or anything in it."""
        if len(self._packs) == 1:
            yield from self._packs
            return
        path = "/".join(part for part in path.split("/") if part not in ("", "."))
        found = set()
        file, folder = position(path, is_folder=False), position(path, is_folder=True)
        for begin in {self._first(file), self._first(folder)}:
            for number in range(begin, len(self._packs)):
                index = self._index(number)
                if not (index.part.meets(folder) or index.part.has(file)):
                    break
                if _has(index, path):
                    found.add(number)
        yield from (self._packs[number] for number in sorted(found))

    def _first(self, entry: tuple[tuple[int, str], ...]) -> int:
        """Return the first pack that does not end before the position `entry`."""

        def end(number: int) -> tuple[bool, tuple[tuple[int, str], ...]]:
            last = self._index(number).part.last
            return (last is None, last or ())

        return bisect_left(range(len(self._packs)), (False, entry), key=end)

    def _index(self, number: int) -> PackIndex:
        if number not in self._indexes:
            name = index_name(self._packs[number].plain_name)
            entry = self._by_name.get(name)
            if entry is None:
                raise Damaged(f"{self._stored.manifest.url} lacks {name}")
            try:
                self._indexes[number] = PackIndex.read(self._stored.content(entry).readall())
            except ValueError as error:
                raise Damaged(f"{self._stored.manifest.url}/{entry.name}: {error}") from None
        return self._indexes[number]


def _has(index: PackIndex, path: str) -> bool:
    return any(
        kind != "a" and (found == path or not path or found.startswith(f"{path}/")) for found, kind, *_ in index.entries
    )


def _checked(target: Path, overwrite: bool) -> Path:
    """Return the resolved target, whose parent folder exists then. Raises `TargetExists`."""
    target = target.resolve()
    if not overwrite and target.exists() and (not target.is_dir() or not empty(target)):
        raise TargetExists(f"{target} exists and is not empty")
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


def _key(manifest: Manifest) -> str:
    sums: Sequence[str] = [entry.sha256 for entry in manifest.files]
    return blake2b(" ".join((manifest.run_id, str(manifest.token), *sums)).encode(), digest_size=16).hexdigest()


def _path_of(aside: Path) -> Path:
    """Return the path of the file that says how many packs are in the folder `aside`."""
    return aside.with_name(f"{aside.name}.json")


@contextmanager
def _locked(aside: Path) -> Iterator[int]:
    """Make the folder `aside` and its marker if they do not exist. Yields the marker's descriptor, which is locked.

    Raises `TargetExists` if another restore holds the lock, or if others could have put something there.
    """
    marker = os.open(_path_of(aside), _MARKER, 0o600)
    try:
        try:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise TargetExists(f"another restore of this backup is making {aside}", "wait for its end", None) from None
        aside.mkdir(_PRIVATE, exist_ok=True)
        for about in (os.fstat(marker), aside.lstat()):
            if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o077:
                others = f"remove it and {_path_of(aside).name}"
                raise TargetExists(f"{aside} was not made by this user's restore", others, None)
        if not stat.S_ISDIR(aside.lstat().st_mode):
            raise TargetExists(f"{aside} is no folder", "remove it", None)
        yield marker
    finally:
        os.close(marker)


def _packs_done(marker: int, aside: Path) -> int:
    """Return how many packs are in `aside`."""
    text = os.pread(marker, 1000, 0)
    try:
        noted = json.loads(text or "{}")
        # Somebody may have removed the folder, and not the marker.
        return int(noted["packs"]) if noted.get("inode") == aside.stat().st_ino else 0
    except (ValueError, LookupError, TypeError, AttributeError):
        return 0


def _note_done(marker: int, aside: Path, packs: int) -> None:
    text = json.dumps({"packs": packs, "inode": aside.stat().st_ino}).encode()
    os.pwrite(marker, text, 0)
    os.ftruncate(marker, len(text))
    os.fsync(marker)
