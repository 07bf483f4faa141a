"""Ways in which a backup can be spoilt. Each is drawn by a seed, and says what it did."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tasks.backup.encryption import new_identity
from tasks.backup.manifest import NAME, FileEntry, Manifest, read_manifest, write_manifest
from tasks.places.place import Place
from tasks.postgres.wal_position import segment_start
from tasks.wal.archive import read_archive
from tests.integration.drills.backups import GoodBackups, without_extension

Spoiling = Callable[[GoodBackups, str, random.Random], dict[str, Any]]
"""Spoils a task's backup. Returns what is another than usual for its drill: `postgres_bin`, or the `identity`."""


def cut_short(backups: GoodBackups, task: str, draw: random.Random) -> dict[str, Any]:
    """An object ends too early."""
    path = _an_object(backups, task, draw)
    size = draw.randrange(path.stat().st_size)
    path.write_bytes(path.read_bytes()[:size])
    return {}


def flipped_byte(backups: GoodBackups, task: str, draw: random.Random) -> dict[str, Any]:
    """One bit of an object is another."""
    _flip(_an_object(backups, task, draw), draw)
    return {}


def flipped_manifest(backups: GoodBackups, task: str, draw: random.Random) -> dict[str, Any]:
    """One bit of the manifest is another."""
    _flip(backups.backup(task) / NAME, draw)
    return {}


def missing_object(backups: GoodBackups, task: str, draw: random.Random) -> dict[str, Any]:
    """An object is gone."""
    _an_object(backups, task, draw).unlink()
    return {}


def another_manifest(backups: GoodBackups, task: str, draw: random.Random) -> dict[str, Any]:
    """The manifest is that of another task's backup."""
    others = [other for other in ("dump", "base", "sqlite", "folder", "server", "chain") if other != task]
    shutil.copy(backups.backup(draw.choice(others)) / NAME, backups.backup(task) / NAME)
    return {}


def no_parent(backups: GoodBackups, task: str, draw: random.Random) -> dict[str, Any]:
    """The full backup that an incremental one continues is gone."""
    shutil.rmtree(backups.chain(task)[0])
    return {}


def no_segment(backups: GoodBackups, task: str, draw: random.Random) -> dict[str, Any]:
    """A stored piece of the archived log, which the backup needs, is gone."""
    _a_segment(backups, task, draw).unlink()
    return {}


def flipped_segment(backups: GoodBackups, task: str, draw: random.Random) -> dict[str, Any]:
    """One bit of the archived log is another."""
    _flip(_a_segment(backups, task, draw), draw)
    return {}


def no_table(backups: GoodBackups, task: str, draw: random.Random) -> dict[str, Any]:
    """The dump lacks a table."""
    return _replaced(backups, task, "less")


def fewer_rows(backups: GoodBackups, task: str, draw: random.Random) -> dict[str, Any]:
    """The dump lacks a row."""
    return _replaced(backups, task, "fewer")


def other_content(backups: GoodBackups, task: str, draw: random.Random) -> dict[str, Any]:
    """A row of the dump has another value."""
    return _replaced(backups, task, "other")


def no_grants(backups: GoodBackups, task: str, draw: random.Random) -> dict[str, Any]:
    """The dump lacks a grant."""
    return _replaced(backups, task, "closed")


def other_owner(backups: GoodBackups, task: str, draw: random.Random) -> dict[str, Any]:
    """A table of the dump belongs to another role."""
    return _replaced(backups, task, "owned")


def no_index(backups: GoodBackups, task: str, draw: random.Random) -> dict[str, Any]:
    """The dump lacks an index."""
    return _replaced(backups, task, "slow")


def no_policy(backups: GoodBackups, task: str, draw: random.Random) -> dict[str, Any]:
    """The dump lacks a policy of row security."""
    return _replaced(backups, task, "open")


def sequence_back(backups: GoodBackups, task: str, draw: random.Random) -> dict[str, Any]:
    """A sequence of the dump would give numbers again."""
    return _replaced(backups, task, "back")


def wrong_key(backups: GoodBackups, task: str, draw: random.Random) -> dict[str, Any]:
    """The drill has another identity than that of the recipient."""
    return {"identity": new_identity(None)[1]}


def no_extension(backups: GoodBackups, task: str, draw: random.Random) -> dict[str, Any]:
    """The server on which the backup is restored has not the extension that the dump needs."""
    return {"postgres_bin": str(without_extension(backups.server, "hstore", backups.server.folder / "programs"))}


_ANY: Final = (cut_short, flipped_byte, flipped_manifest, missing_object, another_manifest)
_CONTENT: Final = (no_table, fewer_rows, other_content, no_grants, other_owner, no_index, no_policy, sequence_back)
_LOG: Final = (no_segment, flipped_segment)

SPOILINGS: Final[dict[str, tuple[Spoiling, ...]]] = {
    "dump": (*_ANY, *_CONTENT, no_extension),
    "server": (*_ANY, *_CONTENT, no_extension),
    "sealed": (*_ANY, wrong_key, no_extension),
    "base": (*_ANY, *_LOG),
    "chain": (*_ANY, *_LOG, no_parent),
    "maria": (*_ANY, no_table, fewer_rows),
    "sqlite": _ANY,
    "folder": _ANY,
    "packs": _ANY,
    "stream": _ANY,
}
"""What can be done to the backup of each task."""


def _an_object(backups: GoodBackups, task: str, draw: random.Random) -> Path:
    """Any object that a restore of the task's newest backup reads."""
    return draw.choice([path for each in backups.chain(task) for path in sorted(each.iterdir()) if path.name != NAME])


def _flip(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def _a_segment(backups: GoodBackups, task: str, draw: random.Random) -> Path:
    """A stored object of the log that recovery from the task's backup has to read."""
    (system,) = (path for path in (backups.top / "wal").iterdir() if path.name.isdecimal())
    manifest = read_manifest(Place(str(backups.backup(task))))
    assert manifest is not None
    assert manifest.wal is not None
    counted = read_archive(Place(str(system)))
    begins = segment_start(manifest.wal.start, counted.segment_bytes)
    pieces = [piece for at, found in counted.pieces.items() if at not in counted.segments for piece in found]
    needed = [stored for stored in (*counted.segments.values(), *pieces) if stored.start >= begins]
    return system / draw.choice(sorted(needed, key=lambda stored: stored.start)).file.name


def _replaced(backups: GoodBackups, task: str, variant: str) -> dict[str, Any]:
    """Put the dump of a variant of the database in the place of the good one; the manifest vouches for it."""
    good = backups.backup(task)
    other = next((backups.variants / variant / ("maria" if task == "maria" else "dump")).iterdir())
    said, wrong = (read_manifest(Place(str(folder))) for folder in (good, other))
    assert isinstance(said, Manifest)
    assert isinstance(wrong, Manifest)
    ours = next(file for file in said.files if {"orders", "shop"} & _databases(file) or len(said.files) == 1)
    theirs = next(file for file in wrong.files if file.tables)
    recorded = ours.model_dump(include={"name", "tables", "sequences", "catalog", "database"})
    file = FileEntry.model_validate(theirs.model_dump() | recorded)
    shutil.copy(other / theirs.name, good / ours.name)
    (good / NAME).unlink()
    files = tuple(file if each is ours else each for each in said.files)
    write_manifest(Place(str(good)), said.model_copy(update={"files": files}))
    return {}


def _databases(file: FileEntry) -> set[str]:
    """The name of the database in an object of several."""
    return {file.database.name if file.database is not None else file.name.split(".")[1]}
