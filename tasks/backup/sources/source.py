"""The interface of a source of backups. One class of each type of source implements it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from tasks.access import Access
from tasks.backup.archive import Content
from tasks.backup.manifest import FileEntry, Manifest
from tasks.backup.objects import NewObjects, StoredObjects
from tasks.file_guard import FileGuard
from tasks.kind import Unretryable
from tasks.needs import Needs
from tasks.reach import Reach


class NoBackupSource(Unretryable):
    """The folder or file to back up does not exist."""


def _nothing(entry: FileEntry) -> Content:
    raise LookupError(f"there is no earlier backup to read {entry.name} of")


@dataclass(frozen=True)
class EarlierChain:
    """The newest complete backup of a source, and the backups that it needs."""

    #: The newest is the last; before it what it needs, the full one first. Empty: there is none.
    backups: tuple[Manifest, ...] = ()
    #: Returns the checked content of an object of the newest that was written for the next backup to read.
    read: Callable[[FileEntry], Content] = _nothing


@dataclass(frozen=True, kw_only=True)
class SourceWork:
    """The parts of an attempt that its source needs."""

    #: The member's id.
    node: str
    #: The paths and hosts that tasks may reach on the member.
    access: Access
    #: A folder for temporary files.
    scratch: Path
    #: Returns the value of a reference to a secret.
    secret: Callable[[Any], str]
    #: Called regularly. Raises if the attempt must stop.
    step: Callable[[], None] = lambda: None
    #: When the backup was begun.
    created: datetime
    #: Returns the time.
    now: Callable[[], datetime]
    #: Returns the newest complete backup of this source that an earlier run made. Raises `BrokenChain` and the
    #: storage's errors.
    earlier: Callable[[], EarlierChain] = EarlierChain
    #: Called with the size of the content, in bytes, if the size is known before the content is written.
    expect: Callable[[int], None] = lambda size_bytes: None

    def guard(self) -> FileGuard:
        """Return a guard that checks the files of the source when they are opened."""
        return FileGuard(self.access, "source")


@dataclass(frozen=True, kw_only=True)
class SourceNotes:
    """The notes on a dump for the manifest, besides the entries of its objects."""

    #: The versions of the programs that made the dump, by their names.
    tools: dict[str, str] = field(default_factory=dict)
    #: Sentences about content that is missing or different.
    remarks: tuple[str, ...] = ()
    #: Further fields of the manifest.
    manifest: dict[str, Any] = field(default_factory=dict)


class NoSuchPart(Unretryable):
    """The part of a backup that is to be restored is not in the backup, or has no place in the target."""


@dataclass(frozen=True, kw_only=True)
class RestoreParts:
    """The parts of a backup that are restored. The default is all of it."""

    #: The only database to restore, by its name in the backup.
    database: str | None = None
    #: The only table to restore, as `schema.name`.
    table: str | None = None
    #: Whether owners and grants are restored; None: only with all databases of a server.
    owners: bool | None = None
    #: Whether roles of a server are made that the target's server lacks.
    roles: bool = True
    #: The only file or subfolder of a folder to restore, as a path below it.
    path: str | None = None


ALL_PARTS: Final = RestoreParts()


OVER_SOURCE: Final = "--over-source"
"""The option of the command line that lets a restore replace what was backed up."""


class RestoreTarget(NamedTuple):
    """The target of a restore."""

    #: A path, or the URL of a database.
    name: str
    #: Whether existing content is replaced.
    overwrite: bool = False
    #: The password of a database; None: libpq looks for one in its usual places, and for MariaDB it is MYSQL_PWD.
    password: str | None = None
    #: The parts of the backup that are restored.
    parts: RestoreParts = ALL_PARTS
    #: New paths for the tablespaces of a physical backup, by their names.
    tablespaces: Mapping[str, str] = MappingProxyType({})
    #: Whether existing content is replaced even if it is what was backed up.
    over_source: bool = False
    #: The folder of PostgreSQL's programs; None: ROTA_POSTGRES_BIN, else the PATH and the usual folders.
    postgres_bin: str | None = None
    #: Of a target that is a path: called with what is complete beside it, just before that is renamed to the target.
    placing: Callable[[Path], None] = lambda path: None


class BackupSource(Protocol):
    """A source; its class is the model of its params too. Methods may raise the errors of the source's module."""

    @property
    def type(self) -> str:
        """The type of the source, as written in params and manifests."""

    def is_local(self) -> bool:
        """Whether the data is on the member's own disk, so that other members have other data there."""

    def reach(self) -> Reach:
        """Return the path or the hosts of the source."""

    def needs(self) -> Needs:
        """Return the needs of an attempt for the source, beside `reach`."""

    def check_readable(self, access: Access, node: str) -> None:
        """Raise `NoBackupSource` or `AccessRefused` if the source cannot be read. Opening a file checks it again."""

    def identity(self, work: SourceWork) -> dict[str, str]:
        """Return the source's identity facts (`tasks.source_identity`)."""

    def dump(self, work: SourceWork, out: NewObjects) -> SourceNotes:
        """Write the content of the source as one or several objects. Returns notes for the manifest."""

    @classmethod
    def restore(cls, stored: StoredObjects, target: RestoreTarget) -> list[str]:
        """Restore a backup, completely or not at all. Returns remarks."""

    @classmethod
    def verify(cls, content: Content, entry: FileEntry, manifest: Manifest, scratch: Path) -> list[str]:
        """Read and check the content of one object. Returns remarks. Raises `Damaged` and `PostgresFailed`."""


def check_exists(path: str, access: Access, node: str) -> None:
    """Raise `NoBackupSource` if no file or folder is at `path`, and `AccessRefused` if it may not be read."""
    if not (found := FileGuard(access, "source").resolve(path)).exists():
        raise NoBackupSource(
            f"{found} does not exist on {node}: correct the source's path, mount it, or bind the task to the node that "
            "has it (group: {node: ID})"
        )
