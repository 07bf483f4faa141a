"""Opens an SQLite file for writing, checked against the node's policy. Each error is one sentence.

SQLite opens files by their paths. So the database file and the files beside it are first checked and held open by
O_PATH descriptors, because closing an ordinary descriptor would release SQLite's own locks. They are compared with the
files that SQLite has opened before anything is read or written. SQLite itself follows no symlink at the last part of a
path.
"""

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from spark_tasks.contracts.sink import SinkAway, SinkUnfit
from tasks.access import AccessRefused
from tasks.file_guard import FileGuard, FileId, file_id, regular_files_open

BUSY_S: Final = 20
"""How long to wait for another program's lock, in seconds."""

_BESIDE: Final = ("-journal", "-wal", "-shm")
"""The files that SQLite keeps beside a database."""

_AWAY: Final = {
    sqlite3.SQLITE_BUSY: f"another program has kept it locked for {BUSY_S} s",
    sqlite3.SQLITE_LOCKED: "another connection has it locked",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_IOERR: "the disk has failed",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
    sqlite3.SQLITE_NOMEM: "memory is short",
    sqlite3.SQLITE_PROTOCOL: "it cannot be locked",
}
"""The errors that may not occur at another attempt."""

_UNFIT: Final = {
    sqlite3.SQLITE_READONLY: "this member may only read it",
    sqlite3.SQLITE_NOTADB: "it is no SQLite database",
    sqlite3.SQLITE_CORRUPT: "it is damaged",
    sqlite3.SQLITE_CONSTRAINT: "a row violates a constraint",
}


class CommitUnknown(SinkAway):
    """The disk failed at the end of a commit. The file has to be read again to find out whether the commit
    took effect.
    """


class SqliteFile:
    """The database file at `path`. Its methods raise `AccessRefused`, `SinkAway` and `SinkUnfit`."""

    def __init__(self, path: str, guard: FileGuard) -> None:
        self.path = path
        self.guard = guard
        self._before: frozenset[int] = frozenset()

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection | None]:
        """Open a connection in a read transaction for the block. Yields None if the file does not exist."""
        with ExitStack() as closing:
            database = self._connected(closing, make=False)
            if database is None:
                yield None
                return
            with self.explained():
                database.execute("BEGIN")
                database.execute("SELECT count(*) FROM sqlite_schema").fetchone()
                self._check_opened()
                yield database

    @contextmanager
    def writing(self, staged: Path | None = None) -> Iterator[sqlite3.Connection]:
        """Open a connection in a transaction, which is committed at the end of the block, or rolled back if the block
        raises.

        The file is created if it does not exist. `staged` is another database file, attached under the name `staged`.
        """
        with ExitStack() as closing:
            database = self._connected(closing, make=True)
            assert database is not None
            with self.explained():
                if staged is not None:
                    database.execute("ATTACH ? AS staged", (f"{staged.as_uri()}?mode=ro&immutable=1",))
                # The folder is synced as well, because a journal that reappears after a power cut would undo the
                # commit.
                database.execute("PRAGMA synchronous = EXTRA")
                database.execute("PRAGMA foreign_keys = ON")
                database.execute("BEGIN IMMEDIATE")
                try:
                    self._check_opened(None if staged is None else file_id(staged.stat()))
                    yield database
                    self._commit(database)
                finally:
                    with suppress(sqlite3.Error):  # closing rolls back as well
                        if database.in_transaction:
                            database.execute("ROLLBACK")

    def _commit(self, database: sqlite3.Connection) -> None:
        try:
            database.execute("COMMIT")
        except sqlite3.Error as error:
            if _code(error) == sqlite3.SQLITE_IOERR:
                raise CommitUnknown(f"{self.path}: {_AWAY[sqlite3.SQLITE_IOERR]} at a commit ({error})") from error
            raise

    def _connected(self, closing: ExitStack, make: bool) -> sqlite3.Connection | None:
        real = self.guard.resolve(self.path)
        try:
            folder, _ = self.guard.open_folder(real.parent)
            closing.callback(os.close, folder)
            held = self._held(closing, folder, real.name, make)
        except OSError as error:
            raise SinkAway(f"{self.path} cannot be opened: {error.strerror or error}") from error
        if held is None:
            return None
        self._before = frozenset(regular_files_open())
        with self.explained():
            database = sqlite3.connect(f"{real.as_uri()}?mode=rw", uri=True, timeout=BUSY_S, isolation_level=None)
        closing.callback(database.close)
        opened = self._check_opened()
        if opened and held not in opened:
            raise AccessRefused(f"{self.path} was exchanged for another file while it was opened")
        return database

    def _held(self, closing: ExitStack, folder: int, name: str, make: bool) -> FileId | None:
        """Check the file, and with `make` create it. Returns its identity; None if it does not exist."""
        if make:
            with suppress(FileExistsError):
                made = os.open(
                    name, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644, dir_fd=folder
                )
                os.close(made)
        held = self._named(closing, folder, name)
        for suffix in _BESIDE:
            self._named(closing, folder, name + suffix)
        return held

    def _named(self, closing: ExitStack, folder: int, name: str) -> FileId | None:
        try:
            descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        except FileNotFoundError:
            return None
        closing.callback(os.close, descriptor)
        about = os.fstat(descriptor)
        if stat.S_ISLNK(about.st_mode):
            raise AccessRefused(f"{self.path}: {name} is a link, which a destination's own files must not be")
        if not stat.S_ISREG(about.st_mode):
            raise SinkUnfit(f"{self.path}: {name} is no file")
        self.guard.check_opened(descriptor, self.path)
        return file_id(about)

    def _check_opened(self, own: FileId | None = None) -> set[FileId]:
        """Check the files that SQLite has opened since, except `own`, the attempt's own. Returns their identities."""
        opened = regular_files_open()
        new = {descriptor: opened[descriptor] for descriptor in opened.keys() - self._before}
        for descriptor, identity in new.items():
            if identity != own:
                self.guard.check_opened(descriptor, self.path)
        return set(new.values())

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Raise `SinkAway` or `SinkUnfit` instead of SQLite's errors within the block."""
        try:
            yield
        except sqlite3.Error as error:
            code = _code(error)
            if code in _AWAY:
                raise SinkAway(f"{self.path}: {_AWAY[code]} ({error})") from error
            raise SinkUnfit(f"{self.path}: {_UNFIT.get(code, 'SQLite refuses')} ({error})") from error


def _code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code; 0 for an error of Python's module itself."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF
