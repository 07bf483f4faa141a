"""The manifest: what a backup is. A backup without one is not a backup.

A backup is a folder of its own, `DESTINATION/TASK/CREATED-TOKEN/`. The token is the attempt's, which no other
attempt has: one that was taken over and writes late writes beside the good backup, never over it. The manifest is
written last, once everything it names is there.
"""

from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from tasks.backup.destination import Place

NAME = "manifest.json"

SourceType = Literal["postgres", "sqlite", "folder"]


class NoBackup(Exception):
    """There is no complete backup at that URL."""


class FileEntry(BaseModel):
    """A file of a backup: as it is stored, and as it was."""

    name: str
    size_bytes: int = Field(description="Of the content")
    stored_bytes: int = Field(description="Of the file as stored, compressed")
    sha256: str = Field(description="Of the file as stored, in hex")
    content_sha256: str = Field(description="Of the content, in hex")
    mode: int | None = Field(default=None, description="Permissions of the database's file; null: not of a file")
    uid: int | None = Field(default=None, description="Its owner")
    gid: int | None = Field(default=None, description="Its group")


class Manifest(BaseModel):
    """What was backed up, when, by whom and with what, and the files that make it up."""

    model_config = ConfigDict(frozen=True)

    version: Literal[1] = 1
    task: str
    run_id: str
    attempt: int
    token: int
    created: AwareDatetime = Field(description="When the backup was begun: what it holds is no older")
    finished: AwareDatetime
    source_type: SourceType
    source: dict[str, Any] = Field(description="What was backed up; never a secret")
    tools: dict[str, str] = Field(description="Versions of what made it")
    files: tuple[FileEntry, ...]
    remarks: tuple[str, ...] = Field(
        default=(), description="What is not in it as one might expect: files that vanished"
    )
    url: str = Field(default="", exclude=True, description="Where this was read from; not stored")

    @property
    def size_bytes(self) -> int:
        """The size of the content."""
        return sum(file.size_bytes for file in self.files)

    @property
    def stored_bytes(self) -> int:
        """The size as stored."""
        return sum(file.stored_bytes for file in self.files)


def folder_name(created: datetime, token: int) -> str:
    """What a backup's folder is called. Names sort by their time.

    >>> folder_name(datetime(2026, 11, 21, 3, 0, tzinfo=UTC), 42)
    '20261121T030000.000000Z-42'
    """
    return f"{created.astimezone(UTC):%Y%m%dT%H%M%S.%fZ}-{token}"


def read(place: Place) -> Manifest | None:
    """The manifest in the folder `place`; None if there is none. Raises `NoBackup` for one that cannot be read."""
    text = place.read(NAME)
    if text is None:
        return None
    try:
        return Manifest.model_validate_json(text).model_copy(update={"url": place.url})
    except ValidationError as error:
        wrong = ", ".join(".".join(map(str, finding["loc"])) for finding in error.errors()) or "all of it"
        raise NoBackup(f"{place.url}/{NAME} is not a manifest of version 1 (wrong: {wrong})") from None


def write(place: Place, manifest: Manifest) -> None:
    """Make what is in `place` a backup."""
    place.write_whole(NAME, manifest.model_dump_json(indent=1).encode())


def complete(place: Place) -> list[Manifest]:
    """The complete backups in the folders of `place`, the newest first. Unreadable manifests are passed over."""
    found = []
    for name in place.folders():
        try:
            manifest = read(place.inside(name))
        except NoBackup:
            continue
        if manifest is not None:
            found.append(manifest)
    return sorted(found, key=lambda manifest: (manifest.created, manifest.token), reverse=True)


def list_backups(url: str, options: dict[str, Any] | None = None) -> list[Manifest]:
    """The complete backups at `url`, the newest first: of one task (`DESTINATION/TASK`), or the one that `url` is.

    `options` are fsspec's for that URL, secrets resolved.
    """
    place = Place(url, options)
    own = read(place)
    return complete(place) if own is None else [own]


def newest(url: str, options: dict[str, Any] | None = None) -> Manifest:
    """The backup that `url` is, or the newest of the task whose folder it is. Raises `NoBackup`."""
    found = list_backups(url, options)
    if not found:
        raise NoBackup(f"{url} holds no folder with a {NAME}: give DESTINATION/TASK, or the URL of one backup")
    return found[0]
