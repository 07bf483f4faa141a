"""An SQLite database, by SQLite's own backup API: a consistent copy while others read and write."""

import os
import re
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from tasks.backup.archive import CHUNK_BYTES, Content, Damaged, TargetExists, Writer
from tasks.backup.manifest import FileEntry
from tasks.backup.sources.in_place import beside, closed_to_others, put_file
from tasks.disk import facts_of
from tasks.errors import Failed
from tasks.opened import Guard, regular_files_open

FILE = "database.sqlite.zst"

_PAGES_A_STEP = 2048
_OPERATIONS_A_STEP = 1000
_BUSY_S = 60
_HEADER_BYTES = 100
_APPLICATION_ID = slice(68, 72)
"""Where the header of a database file has it (the file format, section 1.3)."""

_NOT_HERE = re.compile(
    r"(?:no such collation sequence: (?P<collation>.+)|no such module: .+"
    r"|(?:no such function: |unknown function: )(?P<function>.+?)(?:\(\))?)"
)
"""What the check says where it needs what only the application brings along."""

_CONTENT = re.compile(r"CHECK constraint failed in |[-\w]+ value in ")
"""What the check says of values that the tables should not have: the file is sound, and they were backed up."""


class SqliteSource(BaseModel):
    """An SQLite database file on the member that runs."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["sqlite"]
    path: Annotated[str, StringConstraints(pattern=r"^/[^\x00]*$")] = Field(examples=["/srv/app/app.db"])
    shared: bool = Field(default=False, description="All members that may run this see the same file at this path")


class _Unsound(Exception):
    """What SQLite's own check says of a file that is damaged."""


class SqliteFailed(Failed):
    """The database cannot be read, or is damaged."""


def identity(source: SqliteSource, node: str) -> dict[str, str]:
    """What tells the database from another of that name (`tasks.identity`). Raises `SqliteFailed`.

    A file whose application has given it an application_id is known by that, another one by its inode.
    """
    path = Path(source.path)
    try:
        facts = facts_of(path, node, shared=source.shared)
        with path.open("rb") as file:
            header, inode = file.read(_HEADER_BYTES), os.fstat(file.fileno()).st_ino
    except OSError as error:
        raise SqliteFailed(f"{path}: unable to open it: {error.strerror or error}") from error
    application = int.from_bytes(header[_APPLICATION_ID], "big")
    own = {"application": f"{application:#x}"} if application else {"inode": str(inode)}
    return {"type": source.type, "path": os.path.normpath(source.path), **facts, **own}


def dump(path: Path, scratch: Path, out: Writer, step: Callable[[], None], guard: Guard | None = None) -> list[str]:
    """Write the database as one file. The copy is made in `scratch`, which must have room for it. Remarks.

    `step` is called now and then, and may raise to stop. Whatever file SQLite opens, `guard` is asked whether it may be
    read, once it is open. Raises `Refused`, and `SqliteFailed`, for a database that is damaged too: a
    backup of it would take the place of those from when it was sound.
    """
    copy = scratch / "copy.sqlite"
    copy.unlink(missing_ok=True)
    try:
        before = regular_files_open()
        with closing(_open(path)) as source:
            # Within one read transaction, so that writers do not make the copy start over. In WAL mode they go on
            # writing meanwhile; in the older modes they wait.
            source.execute("BEGIN")
            source.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            for descriptor in regular_files_open().keys() - before.keys():
                if guard is not None:
                    guard.check_opened(descriptor, path)
            with closing(sqlite3.connect(copy)) as target:
                source.backup(target, pages=_PAGES_A_STEP, progress=lambda status, left, total: step())
    except sqlite3.Error as error:
        raise SqliteFailed(f"{path}: {error}") from error
    try:
        remarks = _examine(copy, step)
    except _Unsound as error:
        raise SqliteFailed(
            f"{path} is damaged, and was not backed up ({error}): restore an older backup, or mend it by sqlite3's"
            " .recover"
        ) from error
    with copy.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            out.write(chunk)
    copy.unlink()
    return remarks


def permissions(path: Path) -> dict[str, int]:
    """The mode and owner of the database's file, by their names in the manifest."""
    about = path.stat()
    return {"mode": stat.S_IMODE(about.st_mode), "uid": about.st_uid, "gid": about.st_gid}


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY_S, isolation_level=None)


def restore(content: Content, target: Path, overwrite: bool, entry: FileEntry) -> list[str]:
    """Write the database to the file `target`, which appears whole and checked, or not at all. Remarks.

    It gets the mode and (from root) the owner that `entry` names; it is its owner's alone if that names none. Raises
    `TargetExists` if there is something at `target` and `overwrite` is not set; `Damaged`.
    """
    target = target.resolve()
    if target.is_dir():
        raise TargetExists(f"{target} is a folder: name the file that is to become the database")
    if target.exists() and not overwrite:
        raise TargetExists(f"{target} is there: name another target, or give --overwrite")
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = beside(target)
    try:
        with closed_to_others(), aside.open("xb") as file:
            while chunk := content.read(CHUNK_BYTES):
                file.write(chunk)
        remarks = _check(aside)
        if entry.uid is not None and entry.gid is not None and os.geteuid() == 0:
            os.chown(aside, entry.uid, entry.gid)
        if entry.mode is not None:
            aside.chmod(entry.mode)
        # What an older database at that place left in its log is not the new one's.
        put_file(aside, target, [target.with_name(target.name + suffix) for suffix in ("-wal", "-shm", "-journal")])
    finally:
        aside.unlink(missing_ok=True)
    return remarks


def _check(path: Path) -> list[str]:
    """Ask SQLite whether what was backed up is sound. Remarks. Raises `Damaged`."""
    try:
        return _examine(path, lambda: None)
    except _Unsound as error:
        raise Damaged(
            f"what was backed up is not a sound database ({error}): `zstd -d {FILE}` gives it as it is, for sqlite3's"
            " .recover"
        ) from error


def _examine(path: Path, step: Callable[[], None]) -> list[str]:
    """Ask SQLite whether the file, which nobody else has open, is sound. Remarks. Raises `_Unsound`, or as `step`."""
    remarks: list[str] = []
    try:
        # Read only, SQLite leaves the constraints alone, which may want functions that only the application has.
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)) as database:
            database.set_progress_handler(step, _OPERATIONS_A_STEP)
            while True:
                try:
                    return remarks + _findings(database)
                except sqlite3.OperationalError as error:
                    missing = _NOT_HERE.fullmatch(str(error))
                    remark = f"SQLite could not check all of it: {error}"
                    if missing is None or remark in remarks:
                        raise
                    remarks.append(remark)
                    if not _stand_in(database, missing):
                        return remarks
    except sqlite3.Error as error:
        # What `step` raises in the middle of the check comes out of SQLite as an interruption.
        step()
        raise _Unsound(str(error)) from error


def _findings(database: sqlite3.Connection) -> list[str]:
    """What the check says of the tables' values. Raises `_Unsound` for what it says of the file itself."""
    first, others = "", -1
    # It ends after a number of findings, and those about values may come before the others.
    for (found,) in database.execute("PRAGMA quick_check(1000000)"):
        if found == "ok":
            return []
        if not _CONTENT.match(found):
            raise _Unsound(found)
        first, others = first or found, others + 1
    return [f"SQLite found values that do not belong there: {first}" + (f", and {others:,} more" if others else "")]


def _stand_in(database: sqlite3.Connection, missing: re.Match[str]) -> bool:
    """Let the check go on without the application: it reads every page, whatever an order or a value means."""
    if missing["collation"] is not None:
        database.create_collation(missing["collation"], lambda left, right: (left > right) - (left < right))
    elif missing["function"] is not None:
        database.create_function(missing["function"], -1, lambda *values: 1, deterministic=True)
    else:
        return False
    return True


def check(content: Content, scratch: Path) -> list[str]:
    """Read the archive through, and ask SQLite whether it is sound. Remarks. Raises `Damaged`."""
    copy = scratch / "check.sqlite"
    with copy.open("wb") as file:
        while chunk := content.read(CHUNK_BYTES):
            file.write(chunk)
    remarks = _check(copy)
    copy.unlink()
    return remarks
