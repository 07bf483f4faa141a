"""Copies the files of a PostgreSQL server while it runs, by the replication protocol's BASE_BACKUP.

The server sends a tar archive of each tablespace outside its data folder, then one of the data folder, and last a
manifest with a checksum of each file, all in one stream of messages ("Streaming Replication Protocol" in PostgreSQL's
manual). Each becomes one object of the backup. Given the manifest of an earlier backup, the server sends of each file
only the blocks that have changed since.
"""

import json
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal

from tasks.backup.archive import CHUNK_BYTES, Content, Writer
from tasks.backup.chain import SERVER_MANIFEST_FILE
from tasks.backup.manifest import TablespaceFacts, WalRange
from tasks.backup.objects import NewObjects
from tasks.errors import Failed
from tasks.postgres.wal_position import parse_lsn

if TYPE_CHECKING:
    from psycopg2.extensions import connection

FILE: Final = "base.tar.zst"
"""The name of the object with the data folder."""

SERVER_MANIFEST: Final = "backup_manifest"
"""The name of the server's manifest in a data folder."""

_TAIL_BYTES: Final = 64 << 10

_ARCHIVE: Final = re.compile(rb"(?P<name>[^\0]*)\0(?P<path>[^\0]*)\0")
"""The content of a message that begins an archive."""

_OF_TABLESPACE: Final = re.compile(r"([1-9][0-9]{0,9})\.tar")


class BadBaseBackup(Failed):
    """The server sent a base backup that is not as PostgreSQL's protocol says."""


class BaseBackupStream:
    """Takes the messages of a base backup (`write`), and writes each archive, and the manifest, as an object to `out`.

    `tablespaces` are their names by their numbers. `begun` is called when the first archive begins. Use as a context:
    the last object is complete when the block ends.
    """

    def __init__(self, out: NewObjects, tablespaces: Mapping[int, str], begun: Callable[[], None]) -> None:
        self._out = out
        self._tablespaces = tablespaces
        self._begun: Callable[[], None] | None = begun
        self.empty = True
        self._open = ExitStack()
        self._writer: Writer | None = None
        self._held: list[memoryview] = []
        self._held_bytes = 0
        self._in_manifest = False
        self._tail = b""
        self._names: set[str] = set()

    def __enter__(self) -> "BaseBackupStream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._end_object()
        else:
            self._open.__exit__(kind, error, trace)

    def write(self, message: bytes) -> int:
        """Take the next message. Raises `BadBaseBackup`."""
        type_ = message[:1]
        if type_ == b"d":
            self._held.append(memoryview(message)[1:])
            self._held_bytes += len(message) - 1
            if self._held_bytes >= CHUNK_BYTES:
                self._flush()
        elif type_ == b"n":
            self._begin(*self._archive(message[1:]))
        elif type_ == b"m":
            self._begin(SERVER_MANIFEST_FILE, None)
            self._in_manifest = True
        elif type_ != b"p":
            raise BadBaseBackup(f"the server sent a message of the type {type_!r} in a base backup")
        return len(message)

    def _archive(self, message: bytes) -> tuple[str, TablespaceFacts | None]:
        """Return the name of the object for an archive, and its tablespace. Raises `BadBaseBackup`.

        The name becomes a part of a path at the destination, and the server chooses it.
        """
        told = _ARCHIVE.fullmatch(bytes(message))
        name, path = ("", "") if told is None else (part.decode(errors="surrogateescape") for part in told.groups())
        if told is not None and not path:
            return FILE, None
        number = _OF_TABLESPACE.fullmatch(name)
        if number is None:
            raise BadBaseBackup(f"the server sent an archive under the name {name!r}; expected: NUMBER.tar")
        oid = int(number[1])
        return f"{name}.zst", TablespaceFacts(oid=oid, name=self._tablespaces.get(oid, str(oid)), path=path)

    def _begin(self, name: str, tablespace: TablespaceFacts | None) -> None:
        self._end_object()
        if name in self._names:
            raise BadBaseBackup(f"the server sent {name} twice")
        self._names.add(name)
        self.empty = False
        if self._begun is not None:
            self._begun()
            self._begun = None
        self._writer = self._open.enter_context(self._out.writing(name, for_next=name == SERVER_MANIFEST_FILE))
        if tablespace is not None:
            self._writer.about(tablespace=tablespace)

    def _flush(self) -> None:
        content = b"".join(self._held)
        self._held, self._held_bytes = [], 0
        if self._writer is None:
            raise BadBaseBackup("the server sent content before the name of an archive")
        if self._in_manifest:
            self._tail = (self._tail + content)[-_TAIL_BYTES:]
        self._writer.write(content)

    def _end_object(self) -> None:
        if self._held:
            self._flush()
        self._open.close()

    def wal_range(self, system: str, *, included: bool) -> WalRange:
        """Return the range of the WAL that the backup needs. Raises `BadBaseBackup` if its manifest does not say it."""
        try:
            # Of the manifest, which may be large, only the end is in memory: the ranges come after the files.
            told: dict[str, Any] = json.loads(b"{" + self._tail[self._tail.rindex(b'"WAL-Ranges"') :])
            last = told["WAL-Ranges"][-1]
            return WalRange(
                system=system,
                timeline=last["Timeline"],
                start=parse_lsn(told["WAL-Ranges"][0]["Start-LSN"]),
                end=parse_lsn(last["End-LSN"]),
                included=included,
            )
        except (ValueError, LookupError) as error:
            raise BadBaseBackup(
                f"the server's manifest does not say which part of the log the backup needs ({error!r})"
            ) from None


def stream_base_backup(
    opened: "connection", into: BaseBackupStream, wal: Literal["included", "archived"], before: Content | None
) -> None:
    """Let the server send a base backup over a replication connection `into` a stream.

    `before` is the server's manifest of an earlier backup: then the backup is incremental. Raises psycopg2's errors,
    and those of the stream.
    """
    options = ["LABEL 'rota'", "PROGRESS true", "CHECKPOINT 'fast'", "WAIT false", "MANIFEST 'yes'"]
    options += ["WAL true"] if wal == "included" else []
    with opened.cursor() as cursor:
        if before is not None:
            cursor.copy_expert("UPLOAD_MANIFEST", before)
            options.append("INCREMENTAL")
        with into:
            cursor.copy_expert(f"BASE_BACKUP ({', '.join(options)})", into)
