"""An SQLite database, by SQLite's own backup API: a consistent copy while others read and write."""

import sqlite3
import uuid
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from tasks.backup.archive import CHUNK_BYTES, Content, Damaged, TargetExists, Writer
from tasks.kind import Failed

FILE = "database.sqlite.zst"

_PAGES_A_STEP = 2048
_BUSY_S = 60


class SqliteSource(BaseModel):
    """An SQLite database file on the member that runs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["sqlite"]
    path: Annotated[str, StringConstraints(pattern=r"^/[^\x00]*$")] = Field(examples=["/srv/app/app.db"])


class SqliteFailed(Failed):
    """The database cannot be read."""


def dump(path: Path, scratch: Path, out: Writer, step: Callable[[], None]) -> None:
    """Write the database as one file. The copy is made in `scratch`, which must have room for it.

    `step` is called now and then, and may raise to stop. Raises `SqliteFailed`.
    """
    copy = scratch / "copy.sqlite"
    copy.unlink(missing_ok=True)
    try:
        with closing(_open(path)) as source, closing(sqlite3.connect(copy)) as target:
            # Within one read transaction, so that writers do not make the copy start over. In WAL mode they go on
            # writing meanwhile; in the older modes they wait.
            source.execute("BEGIN")
            source.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            source.backup(target, pages=_PAGES_A_STEP, progress=lambda status, left, total: step())
    except sqlite3.Error as error:
        raise SqliteFailed(f"{path}: {error}") from error
    with copy.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            out.write(chunk)
    copy.unlink()


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY_S, isolation_level=None)


def restore(content: Content, target: Path, overwrite: bool) -> None:
    """Write the database to the file `target`, which appears whole and checked, or not at all.

    Raises `TargetExists` if there is something at `target` and `overwrite` is not set; `Damaged`.
    """
    if target.is_dir():
        raise TargetExists(f"{target} is a folder: name the file that is to become the database")
    if target.exists() and not overwrite:
        raise TargetExists(f"{target} is there: name another target, or allow to overwrite it")
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{uuid.uuid4().hex}.partial")
    try:
        with aside.open("xb") as file:
            while chunk := content.read(CHUNK_BYTES):
                file.write(chunk)
        _check(aside)
        # What an older database at that place left in its log is not the new one's.
        for suffix in ("-wal", "-shm", "-journal"):
            target.with_name(target.name + suffix).unlink(missing_ok=True)
        aside.rename(target)
    finally:
        for path in target.parent.glob(f"{aside.name}*"):
            path.unlink()


def _check(path: Path) -> None:
    try:
        with closing(_open(path)) as database:
            found = [row[0] for row in database.execute("PRAGMA quick_check")]
    except sqlite3.Error as error:
        raise Damaged(f"what was backed up is not a sound database: {error}") from error
    if found != ["ok"]:
        raise Damaged(f"what was backed up is not a sound database: {found[0]}")


def check(content: Content, scratch: Path) -> None:
    """Read the archive through, and ask SQLite whether it is sound. Raises `Damaged`."""
    copy = scratch / "check.sqlite"
    with copy.open("wb") as file:
        while chunk := content.read(CHUNK_BYTES):
            file.write(chunk)
    _check(copy)
    copy.unlink()
