"""Ways in which a backup can be spoilt. Each is drawn by a seed, and says what it did."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tasks.backup.encryption import new_identity
from tasks.backup.manifest import NAME, Manifest, read_manifest, write_manifest
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
    others = [other for other in ("dump", "base", "sqlite", "folder") if other != task]
    shutil.copy(backups.backup(draw.choice(others)) / NAME, backups.backup(task) / NAME)
    return {}


def no_segment(backups: GoodBackups, task: str, draw: random.Random) -> dict[str, Any]:
    """A stored piece of the archived log, which the backup needs, is gone."""
    _a_segment(backups, draw).unlink()
    return {}


def flipped_segment(backups: GoodBackups, task: str, draw: random.Random) -> dict[str, Any]:
    """One bit of the archived log is another."""
    _flip(_a_segment(backups, draw), draw)
    return {}


def no_table(backups: GoodBackups, task: str, draw: random.Random) -> dict[str, Any]:
    """The dump lacks a table."""
    return _replaced(backups, "less")


def fewer_rows(backups: GoodBackups, task: str, draw: random.Random) -> dict[str, Any]:
    """The dump lacks a row."""
    return _replaced(backups, "fewer")


def other_content(backups: GoodBackups, task: str, draw: random.Random) -> dict[str, Any]:
    """A row of the dump has another value."""
    return _replaced(backups, "other")


def no_grants(backups: GoodBackups, task: str, draw: random.Random) -> dict[str, Any]:
    """The dump lacks a grant."""
    return _replaced(backups, "closed")


def wrong_key(backups: GoodBackups, task: str, draw: random.Random) -> dict[str, Any]:
    """The drill has another identity than that of the recipient."""
    return {"identity": new_identity(None)[1]}


def no_extension(backups: GoodBackups, task: str, draw: random.Random) -> dict[str, Any]:
    """The server on which the backup is restored has not the extension that the dump needs."""
    return {"postgres_bin": str(without_extension(backups.server, "hstore", backups.server.folder / "programs"))}


SPOILINGS: Final[dict[str, tuple[Spoiling, ...]]] = {
    "dump": (
        cut_short,
        flipped_byte,
        flipped_manifest,
        missing_object,
        another_manifest,
        no_table,
        fewer_rows,
        other_content,
        no_grants,
        no_extension,
    ),
    "base": (cut_short, flipped_byte, flipped_manifest, missing_object, another_manifest, no_segment, flipped_segment),
    "sqlite": (cut_short, flipped_byte, flipped_manifest, missing_object, another_manifest),
    "sealed": (cut_short, flipped_byte, flipped_manifest, missing_object, another_manifest, wrong_key),
    "server": (cut_short, flipped_byte, flipped_manifest, missing_object, another_manifest),
    "folder": (cut_short, flipped_byte, flipped_manifest, missing_object, another_manifest),
}
"""What can be done to the backup of each task."""


def _an_object(backups: GoodBackups, task: str, draw: random.Random) -> Path:
    return draw.choice(sorted(path for path in backups.backup(task).iterdir() if path.name != NAME))


def _flip(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def _a_segment(backups: GoodBackups, draw: random.Random) -> Path:
    """A stored object of the log that recovery from the base backup has to read."""
    (system,) = (path for path in (backups.top / "wal").iterdir() if path.name.isdecimal())
    manifest = read_manifest(Place(str(backups.backup("base"))))
    assert manifest is not None
    assert manifest.wal is not None
    counted = read_archive(Place(str(system)))
    begins = segment_start(manifest.wal.start, counted.segment_bytes)
    pieces = [piece for at, found in counted.pieces.items() if at not in counted.segments for piece in found]
    needed = [stored for stored in (*counted.segments.values(), *pieces) if stored.start >= begins]
    return system / draw.choice(sorted(needed, key=lambda stored: stored.start)).file.name


def _replaced(backups: GoodBackups, variant: str) -> dict[str, Any]:
    """Put the dump of a variant of the database in the place of the good one; the manifest vouches for it."""
    good, other = backups.backup("dump"), next((backups.variants / variant / "dump").iterdir())
    said, wrong = (read_manifest(Place(str(folder))) for folder in (good, other))
    assert isinstance(said, Manifest)
    assert isinstance(wrong, Manifest)
    files = tuple(
        theirs.model_copy(update={"tables": ours.tables}) for ours, theirs in zip(said.files, wrong.files, strict=True)
    )
    for file in files:
        shutil.copy(other / file.name, good / file.name)
    (good / NAME).unlink()
    write_manifest(Place(str(good)), said.model_copy(update={"files": files}))
    return {}
