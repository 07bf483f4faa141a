"""Backs up a whole PostgreSQL server as its files, which the server sends over the replication protocol while it runs.

With an archive of its write-ahead log (the kind `wal`), the server can be restored to any moment after the backup.
"""

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import Field

from tasks.backup.archive import Content, Damaged
from tasks.backup.chain import (
    SERVER_MANIFEST_FILE,
    BrokenChain,
    NextBackup,
    full_because,
    next_backup,
    parents_of_next,
    server_manifest,
)
from tasks.backup.keep import SPAN, span
from tasks.backup.manifest import FileEntry, Manifest, ParentBackup
from tasks.backup.objects import NewObjects, StoredObjects
from tasks.backup.sources.base_backup import BaseBackupStream, stream_base_backup
from tasks.backup.sources.data_folder import restore_data_folder
from tasks.backup.sources.postgres import PostgresServerSource
from tasks.backup.sources.source import EarlierChain, RestoreTarget, SourceNotes, SourceWork
from tasks.backup.sources.unpack import check_archive
from tasks.kind import Unretryable
from tasks.needs import Needs
from tasks.postgres.replication import PostgresError, ServerIdentity, asking, identified, replicating

_NAME: Final = "rota backup"
"""The name under which the server shows the connections of a backup."""

_OLDEST: Final = 15
"""The oldest major version of PostgreSQL that sends all archives in one stream."""

_TABLESPACES: Final = "SELECT oid, spcname FROM pg_catalog.pg_tablespace"
_SIZE: Final = "SELECT backup_total FROM pg_catalog.pg_stat_progress_basebackup WHERE pid = %s"


class ServerTooOld(Unretryable):
    """The server's version of PostgreSQL is too old for a physical backup."""


class PhysicalSource(PostgresServerSource):
    """A whole PostgreSQL server (15 or later), as its files. Needs a role with REPLICATION."""

    type: Literal["postgres_physical"] = Field(description="The type of the source")
    wal: Literal["included", "archived"] = Field(
        default="included",
        description="`included`: the backup holds the log that it needs to start, so it can be restored by itself; the "
        "server has to keep that log while it is copied (`wal_keep_size`). `archived`: it holds none, and can be "
        "restored once a task of kind `wal` has archived that part of the log",
    )

    full_every: Annotated[int, Field(ge=1, le=1000)] | Annotated[str, Field(pattern=rf"^{SPAN}$")] | None = Field(
        default=None,
        description="Every how many backups a full one is made, or how long after a full one the next (hours, days or "
        "weeks); those between are incremental and hold what has changed since the one before, for which the server "
        "needs PostgreSQL 17 and `summarize_wal = on`. null: all are full",
        examples=[7, "1w"],
    )

    def needs(self) -> Needs:
        """Return the URL's file of root certificates, and the credential files of libpq. No program is needed."""
        return Needs(reaches=self.certificate("source"), own_credentials=self.own_credentials)

    def identity(self, work: SourceWork) -> dict[str, str]:
        """Return the server's identity facts (`tasks.source_identity`). Raises the errors of `tasks.postgres`."""
        with replicating(self.url, self._password(work), _NAME) as connection:
            return {"type": self.type, "system": identified(connection).system}

    def dump(self, work: SourceWork, out: NewObjects) -> SourceNotes:
        """Write the server's files: a tar archive of the data folder and of each tablespace, and the server's manifest.

        If the server refuses an incremental backup, for example because its summaries of the log are gone, a full one
        is made, and a remark says why. Raises `ServerTooOld`, `BadBaseBackup`, and the errors of
        `tasks.postgres.replication`.
        """
        with replicating(self.url, self._password(work), _NAME) as connection:
            server = identified(connection)
        if server.major < _OLDEST:
            raise ServerTooOld(
                f"{self.url} is PostgreSQL {server.version}; a physical backup needs version {_OLDEST} or later: back "
                "its databases up with type postgres"
            )
        earlier, remark = self._earlier(work)
        next_ = next_backup(earlier.backups, self._full_every, work.created, server)
        if next_.parent is not None and (entry := server_manifest(next_.parent)) is not None:
            stream, failed = self._stream(work, out, earlier.read(entry))
            if failed is None:
                return self._notes(stream, server, parents_of_next(earlier.backups))
            next_ = NextBackup(None, full_because(f"after {next_.parent.url}, {failed}"))
        stream, _ = self._stream(work, out, None)
        remarks = tuple(dict.fromkeys(each for each in (remark, next_.remark) if each is not None))
        return self._notes(stream, server, (), remarks)

    @property
    def _full_every(self) -> int | timedelta | None:
        return span(self.full_every) if isinstance(self.full_every, str) else self.full_every

    def _earlier(self, work: SourceWork) -> tuple[EarlierChain, str | None]:
        """Return the backups that the next one may continue, and a remark if they cannot be used."""
        if self.full_every is None:
            return EarlierChain(), None
        try:
            return work.earlier(), None
        except (BrokenChain, PermissionError) as error:
            return EarlierChain(), full_because(str(error))

    def _stream(
        self, work: SourceWork, out: NewObjects, before: Content | None
    ) -> tuple[BaseBackupStream, Exception | None]:
        """Let the server send its files; incremental if there is the server's manifest of an earlier backup, `before`.

        Returns the stream, and why an incremental backup is not possible, of which then nothing is written.
        """
        password = self._password(work)
        with asking(self.url, password, _NAME) as cursor:
            cursor.execute(_TABLESPACES)
            names = dict(cursor.fetchall())

            def begun() -> None:
                cursor.execute(_SIZE, (connection.info.backend_pid,))
                found = cursor.fetchone()
                if found and found[0]:
                    work.expect(found[0])

            stream = BaseBackupStream(out, names, begun)
            try:
                with replicating(self.url, password, _NAME) as connection:
                    stream_base_backup(connection, stream, self.wal, before)
            except (PostgresError, Damaged) as error:
                if before is None or not stream.empty:
                    raise
                return stream, error
        return stream, None

    def _notes(
        self,
        stream: BaseBackupStream,
        server: ServerIdentity,
        parents: tuple[ParentBackup, ...],
        remarks: tuple[str, ...] = (),
    ) -> SourceNotes:
        wal = stream.wal_range(server.system, included=self.wal == "included")
        return SourceNotes(
            tools={"postgresql": server.version}, remarks=remarks, manifest={"wal": wal, "parents": parents}
        )

    def _password(self, work: SourceWork) -> str | None:
        return None if self.password is None else work.secret(self.password)

    @classmethod
    def restore(cls, stored: StoredObjects, target: RestoreTarget) -> list[str]:
        """Make a data folder of the objects. Returns remarks."""
        return restore_data_folder(stored, target)

    @classmethod
    def verify(cls, content: Content, entry: FileEntry, manifest: Manifest, scratch: Path) -> list[str]:
        """Read the whole archive, member by member."""
        if entry.plain_name == SERVER_MANIFEST_FILE:
            content.drain()
        else:
            check_archive(content)
        return []
