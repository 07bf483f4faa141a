"""Backs up an SQLite database by SQLite's backup API: consistent while other programs use it. Restores it too."""

import os
import re
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from tasks.access import Access
from tasks.backup.archive import CHUNK_BYTES, Content, Damaged, TargetExists, Writer
from tasks.backup.manifest import FileEntry, Manifest
from tasks.backup.objects import NewObjects, StoredObjects
from tasks.backup.scratch import removed_if_killed
from tasks.backup.sources.in_place import beside, closed_to_others, put_file
from tasks.backup.sources.source import RestoreTarget, SourceNotes, SourceWork, check_exists
from tasks.disk_identity import facts_of
from tasks.errors import Failed
from tasks.file_guard import FileGuard, regular_files_open
from tasks.needs import Needs
from tasks.reach import Reach

FILE = "database.sqlite.zst"

_PAGES_A_STEP = 2048
_OPERATIONS_A_STEP = 1000
_BUSY_S = 60
_HEADER_BYTES = 100
_APPLICATION_ID = slice(68, 72)
"""The position of the application_id in a database file's header (SQLite's file format, section 1.3)."""

_NOT_HERE = re.compile(
    r"(?:no such collation sequence: (?P<collation>.+)|no such module: .+"
    r"|(?:no such function: |unknown function: )(?P<function>.+?)(?:\(\))?)"
)
"""Errors of SQLite's check for functions, collations and modules that only the application provides."""

_CONTENT = re.compile(r"CHECK constraint failed in |[-\w]+ value in ")
"""Findings of SQLite's check about invalid values in tables. The file itself is sound, so a backup does not fail."""


class SqliteSource(BaseModel):
    """An SQLite database file on the member that runs the task."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["sqlite"] = Field(description="The type of the source")
    path: Annotated[str, StringConstraints(pattern=r"^/[^\x00]*$")] = Field(
        description="The database file's absolute path", examples=["/srv/app/app.db"]
    )
    shared: bool = Field(default=False, description="All members that may run the task see the same file at this path")

    def is_local(self) -> bool:
        """Whether each member has a different file at the path."""
        return not self.shared

    def reach(self) -> Reach:
        """Return the `Reach` of the file's path, beside which SQLite keeps more files."""
        return Reach("source", "source", self.path, self.path, beside=True)

    def needs(self) -> Needs:
        """Return no further needs: the content is read in this process."""
        return Needs(network=False)

    def check_readable(self, access: Access, node: str) -> None:
        """Raise `NoBackupSource` if the file does not exist, and `AccessRefused` if it may not be read."""
        check_exists(self.path, access, node)

    def identity(self, work: SourceWork) -> dict[str, str]:
        """Return the database's identity facts (`tasks.source_identity`). Raises `SqliteFailed`.

        A file with an application_id is identified by this id, and any other file by its inode.
        """
        path = Path(self.path)
        try:
            facts = facts_of(path, work.node, shared=self.shared)
            with path.open("rb") as file:
                header, inode = file.read(_HEADER_BYTES), os.fstat(file.fileno()).st_ino
        except OSError as error:
            raise SqliteFailed(f"{path}: unable to open it: {error.strerror or error}") from error
        application = int.from_bytes(header[_APPLICATION_ID], "big")
        own = {"application": f"{application:#x}"} if application else {"inode": str(inode)}
        return {"type": self.type, "path": os.path.normpath(self.path), **facts, **own}

    def dump(self, work: SourceWork, out: NewObjects) -> SourceNotes:
        """Write the database as one file. Raises the errors of this module's function `dump`."""
        guard = work.guard()
        path = guard.resolve(self.path)
        if path.exists():
            work.expect(path.stat().st_size)
        with out.writing(FILE) as writer:
            remarks = dump_sqlite(path, work.scratch, writer, work.step, guard)
            writer.about(**_permissions(path))
        return SourceNotes(tools={"sqlite": sqlite3.sqlite_version}, remarks=tuple(remarks))

    @classmethod
    def restore(cls, stored: StoredObjects, target: RestoreTarget) -> list[str]:
        """Write the database to a file. Returns remarks."""
        return restore_sqlite(stored, Path(target.name), target.overwrite, target.placing)

    @classmethod
    def verify(cls, content: Content, entry: FileEntry, manifest: Manifest, scratch: Path) -> list[str]:
        """Let SQLite check the database. Returns remarks."""
        return check_sqlite(content, scratch)


class _Unsound(Exception):
    """SQLite's own check has found damage in the file. The message is SQLite's."""


class SqliteFailed(Failed):
    """The database cannot be read, or is damaged."""


def dump_sqlite(
    path: Path, scratch: Path, out: Writer, step: Callable[[], None], guard: FileGuard | None = None
) -> list[str]:
    """Write the database as one file. Returns remarks. The copy is made in `scratch`, which must have room for it.

    `step` is called regularly, and may raise to stop the copy. `guard` checks every file that SQLite has opened. Raises
    `AccessRefused` and `SqliteFailed`. It also fails for a damaged database, because backups of this would replace the
    backups from before the damage.
    """
    copy = scratch / "copy.sqlite"
    copy.unlink(missing_ok=True)
    try:
        before = regular_files_open()
        with closing(_open(path)) as source:
            # Copy in one read transaction, so that writers do not make the copy start over. In WAL mode they can write
            # at the same time; in the older modes they wait.
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
            f"{path} is damaged, and was not backed up ({error}): restore an older backup, or repair it with sqlite3's"
            " .recover"
        ) from error
    with copy.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            out.write(chunk)
    copy.unlink()
    return remarks


def _permissions(path: Path) -> dict[str, int]:
    """Return the mode and owner of the database file, under the names of the manifest's fields."""
    about = path.stat()
    return {"mode": stat.S_IMODE(about.st_mode), "uid": about.st_uid, "gid": about.st_gid}


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=_BUSY_S, isolation_level=None)


def restore_sqlite(
    stored: StoredObjects, target: Path, overwrite: bool, placing: Callable[[Path], None] = lambda path: None
) -> list[str]:
    """Write the database to the file `target`, which appears complete and checked, or not at all. Returns remarks.

    The file gets the mode in its entry, and the owner if root restores it; without a mode only the owner may read it.
    Raises `Damaged`, and `TargetExists` if `target` exists and `overwrite` is not set.
    """
    target = target.resolve()
    if target.is_dir():
        raise TargetExists(f"{target} is a folder", "name a file for the database", None)
    if target.exists() and not overwrite:
        raise TargetExists(f"{target} exists")
    target.parent.mkdir(parents=True, exist_ok=True)
    aside, content, entry = beside(target), stored.only(), stored.manifest.files[0]
    with removed_if_killed(aside):
        try:
            with closed_to_others(), aside.open("xb") as file:
                while chunk := content.read(CHUNK_BYTES):
                    file.write(chunk)
            stored.doing("SQLite checks the database")
            remarks = _check(aside)
            if entry.uid is not None and entry.gid is not None and os.geteuid() == 0:
                os.chown(aside, entry.uid, entry.gid)
            if entry.mode is not None:
                aside.chmod(entry.mode)
            placing(aside)
            # The log files of an older database at this path do not belong to the new one.
            put_file(aside, target, [target.with_name(target.name + suffix) for suffix in ("-wal", "-shm", "-journal")])
        finally:
            aside.unlink(missing_ok=True)
    return remarks


def _check(path: Path) -> list[str]:
    """Let SQLite check the restored file. Returns remarks. Raises `Damaged`."""
    try:
        return _examine(path, lambda: None)
    except _Unsound as error:
        raise Damaged(
            f"the backup is not a sound database ({error}): `zstd -d {FILE}` unpacks it unchanged, for sqlite3's"
            " .recover"
        ) from error


def _examine(path: Path, step: Callable[[], None]) -> list[str]:
    """Let SQLite check a file that no program has open. Returns remarks. Raises `_Unsound`, or an error of `step`."""
    remarks: list[str] = []
    try:
        # With immutable=1 SQLite does not evaluate constraints, which may need functions of the application.
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
        # If `step` raised during the check, SQLite reports an interruption: call `step` again to raise its error.
        step()
        raise _Unsound(str(error)) from error


def _findings(database: sqlite3.Connection) -> list[str]:
    """Run the check. Returns a remark on invalid values. Raises `_Unsound` for a finding about the file itself."""
    first, others = "", -1
    # A high limit of findings, since findings about values may come before those about the file.
    for (found,) in database.execute("PRAGMA quick_check(1000000)"):
        if found == "ok":
            return []
        if not _CONTENT.match(found):
            raise _Unsound(found)
        first, others = first or found, others + 1
    return [f"SQLite found invalid values: {first}" + (f", and {others:,} more" if others else "")]


def _stand_in(database: sqlite3.Connection, missing: re.Match[str]) -> bool:
    """Register a substitute for a missing collation or function of the application, so that the check can read every
    page. Returns False for a missing module, which has no substitute.
    """
    if missing["collation"] is not None:
        database.create_collation(missing["collation"], lambda left, right: (left > right) - (left < right))
    elif missing["function"] is not None:
        database.create_function(missing["function"], -1, lambda *values: 1, deterministic=True)
    else:
        return False
    return True


def check_sqlite(content: Content, scratch: Path) -> list[str]:
    """Read the whole archive, and let SQLite check the database. Returns remarks. Raises `Damaged`."""
    copy = scratch / "check.sqlite"
    with copy.open("wb") as file:
        while chunk := content.read(CHUNK_BYTES):
            file.write(chunk)
    remarks = _check(copy)
    copy.unlink()
    return remarks
