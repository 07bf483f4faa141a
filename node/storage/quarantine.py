"""Quarantine of damaged files: they are renamed and kept, since parts of them may still be wanted."""

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from tasks.places.fsync import sync

_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}


def set_aside(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Rename the files that exist to "NAME.damaged-1" and so on, all with the same number. Returns the new paths.

    They are renamed in the given order, and the new names are synced to the disk. Raises `OSError`.
    """
    there = [path for path in paths if path.exists()]
    number = 1
    while any(_aside(path, number).exists() for path in there):
        number += 1
    kept = tuple(path.rename(_aside(path, number)) for path in there)
    for folder in {path.parent for path in there}:
        sync(folder)
    return kept


def is_damage(error: sqlite3.Error) -> bool:
    """Whether SQLite reports damage in the file itself, not a full disk, a missing permission or a lock."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)  # undecodable text has no error code
    return code & 0xFF in _DAMAGE


def _aside(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.damaged-{number}")
