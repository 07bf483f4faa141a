"""The content of a backup: finds the identity of its source, and writes its files. Also the errors of an attempt."""

from collections.abc import Callable
from pathlib import Path
from sqlite3 import sqlite_version

import zstandard

from tasks.access import Access
from tasks.backup import archive
from tasks.backup.manifest import FileEntry
from tasks.backup.params import BackupParams, Source
from tasks.backup.sources import folder, postgres, sqlite
from tasks.file_guard import FileGuard
from tasks.kind import Context, Failed, Unretryable
from tasks.places.place import Place
from tasks.version import version


class BackupStopped(Exception):
    """The attempt was asked to stop. It made no backup, and removed the files that it had written."""


class NoBackupSource(Unretryable):
    """The folder or file to back up does not exist."""


class Vanished(Failed):
    """Files that this attempt wrote were removed or changed before the backup was complete."""


def check_source(source: Source, access: Access, node: str) -> None:
    """Raise `NoBackupSource` or `AccessRefused` if `source` cannot be read. Files are checked again when opened."""
    if isinstance(source, postgres.PostgresSource):
        source.check(access)
    elif not (found := FileGuard(access, "source").resolve(source.path)).exists():
        raise NoBackupSource(
            f"{found} does not exist on {node}: correct the source's path, mount it, or bind the task to the node that "
            "has it (group: {node: ID})"
        )


class BackupContent:
    """Writes the content of one backup to `place`."""

    def __init__(self, ctx: Context[BackupParams], place: Place) -> None:
        self._ctx = ctx
        self._place = place
        self._total: int | None = None

    def identity(self) -> dict[str, str]:
        """The source's identity facts. Raises the errors of `identity` in the source's module."""
        match self._ctx.params.source:
            case postgres.PostgresSource() as source:
                database = self._database(source)
                return postgres.identity(database, database.tools())
            case sqlite.SqliteSource() as source:
                return sqlite.identity(source, self._ctx.node)
            case folder.FolderSource() as source:
                return folder.identity(source, self._ctx.node)

    def _database(self, source: postgres.PostgresSource) -> postgres.Database:
        password = None if source.password is None else self._ctx.secret(source.password)
        return postgres.Database(source.url, self._ctx.scratch, password, self._ctx.access.postgres_bin)

    def write(self) -> tuple[FileEntry, dict[str, str], list[str]]:
        """Write the content. Returns the file's entry for the manifest, the versions of the tools, and remarks."""
        remarks: list[str] = []
        tools = {"rota": version(), "zstandard": zstandard.__version__}
        match self._ctx.params.source:
            case postgres.PostgresSource() as source:
                database = self._database(source)
                found = database.tools()
                entry = self._store(postgres.FILE, lambda out: postgres.dump(database, found, out))
                return entry, tools | {"pg_dump": found.version}, []
            case sqlite.SqliteSource() as source:
                guard = FileGuard(self._ctx.access, "source")
                path = guard.resolve(source.path)
                self._total = path.stat().st_size if path.exists() else None
                scratch = self._ctx.scratch
                entry = self._store(
                    sqlite.FILE, lambda out: remarks.extend(sqlite.dump(path, scratch, out, self._check, guard))
                )
                entry = entry.model_copy(update=sqlite.permissions(path))
                return entry, tools | {"sqlite": sqlite_version}, remarks
            case folder.FolderSource() as source:
                path = Path(source.path)
                guard = FileGuard(self._ctx.access, "source")
                entry = self._store(folder.FILE, lambda out: remarks.extend(folder.dump(path, out, guard)))
                return entry, tools, remarks

    def _store(self, name: str, dump: Callable[[archive.Writer], None]) -> FileEntry:
        return archive.store(self._place, name, dump, self._ctx.params.level, self._progress)

    def _progress(self, done_bytes: int) -> None:
        self._ctx.progress(done_bytes, self._total, "bytes")
        self._check()

    def _check(self) -> None:
        if self._ctx.cancelled:
            raise BackupStopped("asked to stop")
