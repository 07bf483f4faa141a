"""The manifest of a backup, which makes a folder a backup. It is written last, when all its files are complete.

A backup is one folder, `DESTINATION/TASK/CREATED-TOKEN/`. No two attempts have the same token. So if an attempt still
writes after its run was taken over, it writes next to the good backup, never over it.
"""

import errno
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from tasks.places.place import Place

NAME = "manifest.json"

ENCRYPTED: Final = ".age"
"""The end of the name of an encrypted object."""

_END: Final = b"\n}"
_CHECKSUM: Final = re.compile(rb',\n "[^"\n]{1,20}": "([^"\n]{64})"\n}\Z')
"""The last line of a manifest. Its name and value may be damaged, too."""

_YEARS: Final = range(1970, 9000)
_NOT_PRINTED: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def _stored_name(name: str) -> str:
    """Refuse a name that would lead out of the backup's folder: whoever may write to the destination chose it."""
    if _NOT_PRINTED.search(name) or any(part in {"", ".", ".."} for part in name.split("/")):
        raise ValueError(f"{name!r} is not the name of a file below the backup's folder")
    return name


def _usual_time(time: datetime) -> datetime:
    """Refuse a time that cannot be shown in every time zone."""
    if time.year not in _YEARS:
        raise ValueError(f"the year is not between {_YEARS.start} and {_YEARS.stop}")
    return time


def _one_line(text: str) -> str:
    if _NOT_PRINTED.search(text):
        raise ValueError("contains control characters")
    return text


def controls_shown(text: str) -> str:
    """Escape control characters, which a terminal would obey."""
    return _NOT_PRINTED.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


StoredName = Annotated[str, AfterValidator(_stored_name)]
StoredTime = Annotated[AwareDatetime, AfterValidator(_usual_time)]
StoredSize = Annotated[int, Field(ge=0, lt=1 << 63)]
StoredText = Annotated[str, AfterValidator(_one_line)]
StoredRemark = Annotated[str, AfterValidator(controls_shown)]
"""Types of a manifest's fields. A manifest is untrusted: whoever may write to a destination may change it."""

SourceType = Literal["postgres", "postgres_physical", "mariadb", "sqlite", "folder", "stream"]


class NoBackup(Exception):
    """There is no complete backup at the URL."""


class TableFacts(BaseModel):
    """What a dump's own snapshot saw of one table."""

    model_config = ConfigDict(frozen=True)

    schema_name: str
    name: str
    rows: int
    content: str | None = Field(
        default=None,
        description="A hash of the content, whatever the order of the rows; null: not computed, or no rows",
    )


class SequenceFacts(BaseModel):
    """Where a sequence went on while a database was dumped. A dump carries a value between `low` and `high`."""

    model_config = ConfigDict(frozen=True)

    schema_name: str
    name: str
    low: int = Field(description="The next value of the sequence before the dump, or after it, whichever is less")
    high: int


class CatalogFacts(BaseModel):
    """What a dump's own snapshot saw of the objects of one kind in one schema of a database."""

    model_config = ConfigDict(frozen=True)

    kind: str = Field(description="Such as `table`, `index`, `policy`, or `owner and grants`")
    schema_name: str = Field(description="Empty: the objects are in no schema")
    count: int = Field(description="How many there are")
    hash: str = Field(description="A hash of all definitions")
    names: dict[str, str] | None = Field(
        default=None, description="A hash of each definition, by the object's name; null: there are too many"
    )


class DatabaseFacts(BaseModel):
    """The database in a dump."""

    model_config = ConfigDict(frozen=True)

    name: str
    oid: int
    dumped: AwareDatetime = Field(description="When the dump's snapshot was taken")
    roles: tuple[str, ...] = Field(
        default=(), description="The roles that own something in it, or that something is granted to"
    )


class TablespaceFacts(BaseModel):
    """A tablespace of a PostgreSQL server outside its data folder."""

    model_config = ConfigDict(frozen=True)

    oid: int = Field(description="The number in the name of its archive, and of its link in `pg_tblspc`")
    name: str
    path: str = Field(description="Where it was on the server")


class ParentBackup(BaseModel):
    """A backup that an incremental one needs."""

    model_config = ConfigDict(frozen=True)

    name: str = Field(description="The name of its folder")
    sha256: str = Field(description="The checksum of the server's manifest in it, as stored")


class FileEntry(BaseModel):
    """A file of a backup: its checksum, its size as stored, and that of its content."""

    name: StoredName
    size_bytes: StoredSize = Field(description="Of the content")
    stored_bytes: StoredSize = Field(description="Of the file as stored, compressed")
    sha256: str = Field(description="Of the file as stored, in hex")
    content_sha256: str | None = Field(
        default=None, description="Of the content, in hex; written by builds before 2026-11-27, and still checked"
    )
    mode: int | None = Field(
        default=None, ge=0, le=0o7777, description="Permissions of the SQLite file; null for other sources"
    )
    uid: int | None = Field(default=None, ge=0, lt=1 << 32, description="Its owner")
    gid: int | None = Field(default=None, ge=0, lt=1 << 32, description="Its group")
    remarks: tuple[StoredRemark, ...] = Field(default=(), description="What is missing or different in this file")
    database: DatabaseFacts | None = Field(default=None, description="The database in this file; null: not recorded")
    section: Literal["pre-data", "data", "post-data"] | None = Field(
        default=None, description="The part of the database in this file, as pg_dump names it; null: all of it"
    )
    tables: tuple[TableFacts, ...] | None = Field(
        default=None, description="The tables of the database whose rows are in this file; null: not recorded"
    )
    sequences: tuple[SequenceFacts, ...] | None = Field(
        default=None, description="The sequences of the database in this file; null: not recorded"
    )
    catalog: tuple[CatalogFacts, ...] | None = Field(
        default=None, description="All that the database in this file defines; null: not recorded"
    )
    tablespace: TablespaceFacts | None = Field(
        default=None, description="Of a physical backup, the tablespace that is in this file; null: none"
    )
    sealed: str | None = Field(
        default=None, description="Of an encrypted object, the other fields: JSON, encrypted and armored as age does"
    )
    version: str | None = Field(
        default=None, description="The id of the stored file's version, where versions are locked; this one is read"
    )

    @property
    def encrypted(self) -> bool:
        """Whether the stored file is encrypted."""
        return self.name.endswith(ENCRYPTED)

    @property
    def plain_name(self) -> str:
        """The name that the source gave to the object: the file's name without the suffix of encryption."""
        return self.name.removesuffix(ENCRYPTED)


class EncryptionNote(BaseModel):
    """To whom a backup is encrypted."""

    model_config = ConfigDict(frozen=True)

    recipients: tuple[str, ...] = Field(description="Public keys; each of their identities decrypts the backup")
    identity: str | None = Field(default=None, description="One of these identities, wrapped by a passphrase")


class WalRange(BaseModel):
    """The range of a PostgreSQL server's WAL that is needed to recover from a physical backup."""

    model_config = ConfigDict(frozen=True)

    system: str = Field(description="The server's system identifier")
    timeline: int = Field(description="The timeline on which the backup ended")
    start: int = Field(description="The LSN from which recovery begins, as a number")
    end: int = Field(description="The LSN up to which it has to come, as a number")
    included: bool = Field(description="Whether the backup holds this part itself")


class Manifest(BaseModel):
    """The record of one backup: its source, times, attempt, tools and files."""

    model_config = ConfigDict(frozen=True)

    version: Literal[1] = 1
    task: StoredText
    run_id: StoredText
    attempt: StoredSize
    token: StoredSize
    created: StoredTime = Field(description="When the backup was begun: its content is not older")
    finished: StoredTime
    source_type: SourceType
    source: dict[str, Any] = Field(description="What was backed up; never a secret")
    tools: dict[str, str] = Field(description="Versions of the programs that made it")
    files: tuple[FileEntry, ...]
    remarks: tuple[StoredRemark, ...] = Field(
        default=(), description="What is missing or different in the backup, for example files that vanished"
    )
    node: StoredText | None = Field(
        default=None, description="The member that made it; null: made before this was recorded"
    )
    identity: dict[str, str] | None = Field(
        default=None, description="Facts that identify the source; null: made before they were recorded"
    )
    lineage: str | None = Field(
        default=None,
        description="The id of the backups of one source, which `keep` counts together; null: made before lineages",
    )
    wal: WalRange | None = Field(default=None, description="Of a physical backup, the log that it needs")
    parents: tuple[ParentBackup, ...] = Field(
        default=(), description="Of an incremental backup, the backups that it needs, the full one first"
    )
    encryption: EncryptionNote | None = Field(default=None, description="To whom it is encrypted; null: to nobody")
    sealed: str | None = Field(
        default=None, description="Of an encrypted backup, its remarks: JSON, encrypted and armored as age does"
    )
    url: str = Field(default="", exclude=True, description="The URL that the manifest was read from; not stored")

    @property
    def name(self) -> str:
        """The name of the backup's folder."""
        return self.url.rpartition("/")[2]

    @property
    def size_bytes(self) -> int:
        """The size of the content in bytes."""
        return sum(file.size_bytes for file in self.files)

    @property
    def stored_bytes(self) -> int:
        """The size of the stored files in bytes."""
        return sum(file.stored_bytes for file in self.files)


def folder_name(created: datetime, token: int) -> str:
    """Return the name of a backup's folder. Sorted by name, folders are in the order of their times.

    >>> folder_name(datetime(2026, 11, 21, 3, 0, tzinfo=UTC), 42)
    '20261121T030000.000000Z-42'
    """
    return f"{created.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}-{token}"


@dataclass(frozen=True)
class Begun:
    """The parts of a backup folder's name: when the backup was begun, and the token of its attempt."""

    created: datetime
    token: int


def begun(name: str) -> Begun | None:
    """The inverse of `folder_name`; None if `folder_name` cannot have made `name`.

    >>> begun("20261121T030000.000000Z-42").token
    42
    >>> begun("20261121T030000.000000Z-42.old"), begun("photos"), begun("20261121T030000Z-042")
    (None, None, None)
    """
    time, _, token = name.partition("-")
    if not (token.isascii() and token.isdecimal()):
        return None
    try:
        found = Begun(datetime.strptime(time, "%Y%m%dT%H%M%S.%fZ").replace(tzinfo=UTC), int(token))
    except ValueError:
        return None
    return found if folder_name(found.created, found.token) == name else None


def read_manifest(place: Place) -> Manifest | None:
    """Read the manifest in the folder `place`; None if it has no manifest. Raises `NoBackup` if it cannot be read."""
    try:
        text = place.read_oldest(NAME)
    except (PermissionError, IsADirectoryError) as error:
        raise NoBackup(f"{place.url}/{NAME} cannot be read: {error.strerror or error}") from None
    if text is None:
        return None
    if not _is_unchanged(text):
        raise NoBackup(f"{place.url}/{NAME} was changed: its own checksum does not match")
    try:
        return Manifest.model_validate_json(text).model_copy(update={"url": place.url})
    except ValidationError as error:
        wrong = (
            controls_shown(", ".join(".".join(map(str, finding["loc"])) for finding in error.errors())) or "all of it"
        )
        raise NoBackup(f"{place.url}/{NAME} is not a manifest of version 1 (wrong: {wrong})") from None


def with_versions(manifest: Manifest, versions: Mapping[str, str]) -> Manifest:
    """Return the manifest as it is at a place where its files have these `versions`, by their names."""
    files = tuple(file.model_copy(update={"version": versions.get(file.name)}) for file in manifest.files)
    return manifest.model_copy(update={"files": files})


def write_manifest(place: Place, manifest: Manifest) -> None:
    """Write the manifest into `place`. This makes the folder a backup. Raises `FileExistsError` if there is one."""
    text = with_checksum(manifest.model_dump_json(indent=1).encode())
    try:
        made = place.write_new(NAME, text)
    except (OSError, NotImplementedError) as error:
        if not _is_unconditional(error):
            raise
        made = place.read(NAME) is None
        if made:
            place.write_whole(NAME, text)
    if not made:
        raise FileExistsError(f"{place.url}/{NAME} exists already: another cluster writes to the same destination")


def _is_unconditional(error: Exception) -> bool:
    """Whether a storage says that it cannot write a file only if it does not exist: exFAT, some object stores.

    No other attempt writes to the folder, as its name has the attempt's token. So there, a look before is enough.
    """
    cannot = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}
    return (
        isinstance(error, NotImplementedError)
        or (isinstance(error, OSError) and error.errno in cannot)
        or "NotImplemented" in f"{error} {error.__cause__}"
    )


def with_checksum(text: bytes) -> bytes:
    """Add, as the last field of a manifest's JSON, the SHA-256 of all that is before it."""
    before = text.removesuffix(_END)
    return before + b',\n "sha256": "%s"' % hashlib.sha256(before).hexdigest().encode() + _END


def _is_unchanged(text: bytes) -> bool:
    """Whether a manifest has its checksum; True if it has none, as those of earlier versions."""
    found = _CHECKSUM.search(text)
    return found is None or found[1] == hashlib.sha256(text[: found.start()]).hexdigest().encode()


@dataclass(frozen=True)
class Survey:
    """The folders of a task: the manifests of complete backups (newest first), and the other folders."""

    complete: tuple[Manifest, ...]
    unreadable: tuple[str, ...]
    """A sentence for each manifest that is damaged, of another version or not readable by this user."""

    without: tuple[str, ...]
    """The names of the folders without a manifest."""

    superseded: tuple[str, ...] = ()
    """The names of the folders of complete backups that do not count: a later attempt at the same run made another."""

    def newest(self, url: str) -> Manifest:
        """Return the newest complete backup. Raises `NoBackup`, whose message says what was found at `url` instead."""
        if not self.complete:
            why = "; ".join(self.unreadable) or f"{url} holds no folder with a {NAME}"
            raise NoBackup(f"{why}: give DESTINATION/TASK, or the URL of one backup")
        return self.complete[0]


def survey(place: Place, names: Sequence[str] | None = None) -> Survey:
    """Read the manifests in the folders of `place`: all folders, or those in `names`."""
    complete, unreadable, without = [], [], []
    for name in place.folders() if names is None else names:
        try:
            manifest = read_manifest(place.inside(name))
        except NoBackup as error:
            unreadable.append(str(error))
            continue
        if manifest is None:
            without.append(name)
        else:
            complete.append(manifest)
    complete.sort(key=lambda manifest: (manifest.created, manifest.token), reverse=True)
    counting = counting_backups(complete)
    superseded = tuple(manifest.url.rpartition("/")[2] for manifest in complete if manifest not in counting)
    return Survey(tuple(counting), tuple(unreadable), tuple(without), superseded)


def counting_backups(complete: Sequence[Manifest]) -> list[Manifest]:
    """Return the backups that count: of those of one run, only the latest attempt's, with the greatest token."""
    latest: dict[tuple[str, str], Manifest] = {}
    for manifest in complete:
        known = latest.get((manifest.task, manifest.run_id))
        if known is None or (manifest.attempt, manifest.token) > (known.attempt, known.token):
            latest[manifest.task, manifest.run_id] = manifest
    return [one for one in complete if one.attempt == latest[one.task, one.run_id].attempt]


def survey_url(url: str, options: dict[str, Any] | None = None) -> Survey:
    """Return the survey of a URL: that of a task's folder (`DESTINATION/TASK`), or that of one backup.

    `options` are fsspec's for that URL, with secrets resolved. Raises `NoBackup` if `url` is a backup whose manifest
    cannot be read.
    """
    place = Place(url, options)
    own = read_manifest(place)
    return survey(place) if own is None else Survey((own,), (), ())


def newest_backup(url: str, options: dict[str, Any] | None = None) -> Manifest:
    """Return the backup at `url`, or the newest one if `url` is a task's folder. Raises `NoBackup`."""
    return survey_url(url, options).newest(url)


def printable(remark: str) -> str:
    r"""Escape a remark's lone surrogates. File names may be any bytes, but JSON and msgpack refuse surrogates.

    >>> printable("caf\udce9 vanished")
    'caf\\udce9 vanished'
    """
    return remark.encode("utf-8", "backslashreplace").decode()
