"""Setting damaged files aside: renamed, kept, and named, so that nothing is lost that somebody may still want."""

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from tasks.fsync import sync

_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}


def set_aside(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Rename those of the files that are there to "NAME.damaged-1" and so on, all with one number. Their new names.

    Files are renamed in the order given, for good when this returns. Raises `OSError`.
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
    """Whether SQLite finds something wrong in a file, and not around it (a full disk, no permission, a lock)."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)  # text that is none has no code
    return code & 0xFF in _DAMAGE


def _aside(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.damaged-{number}")
