"""The objects of one backup: the compressed files that an attempt writes, and that a restore reads.

Most sources write one object. Some write several, each of which is whole by itself, such as the databases of a server.
For such an object a record is stored beside it once it is complete. If the attempt dies, the next attempt at the run
takes it over by this record, and does not make it again.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from tasks.backup.archive import Content, Damaged, ObjectSink, Progress, Writer, quiet, stored_content, storing
from tasks.backup.chain import chain_of
from tasks.backup.encryption import BackupKeys, Encryption, Identities, unsealed
from tasks.backup.manifest import ENCRYPTED, NAME, FileEntry, Manifest, read_manifest
from tasks.backup.pace import ReadingPace
from tasks.places.place import Place

_RECORD: Final = ".whole.json"
"""The suffix of the record of a whole object. Its content is a `_Record`."""


_STEP_S: Final = 0.25


class _Record(BaseModel):
    """The content of the record of a whole object."""

    entry: FileEntry
    recipients: tuple[str, ...] = ()
    """To whom the object is encrypted; empty: it is not encrypted."""


class NewObjects:
    """The objects that an attempt writes to the folder of its backup. Several threads may write at once.

    `sink` is what they are written to; None: `place` alone.
    `threads` compress each object (`archive.storing`). `pace` limits how fast the content is read.
    """

    def __init__(
        self,
        place: Place,
        level: int,
        progress: Progress,
        encryption: Encryption | None = None,
        sink: ObjectSink | None = None,
        threads: int = 0,
        pace: ReadingPace | None = None,
    ) -> None:
        self._place = place
        self._sink = sink or place
        self._level = level
        self._encryption = encryption
        self._threads = threads
        self._progress = progress
        self._pace = pace
        self._lock = threading.Lock()
        self._done_bytes: dict[str, int] = {}
        self._written: dict[str, FileEntry] = {}
        self._kept: dict[str, FileEntry] = {}

    @property
    def kept(self) -> Mapping[str, FileEntry]:
        """The whole objects of earlier attempts, by their names, that are in this backup's folder and not yet used."""
        return self._kept

    @property
    def entries(self) -> tuple[FileEntry, ...]:
        """The entries of all objects that the backup consists of so far, in the order of their names."""
        return tuple(self._written[name] for name in sorted(self._written))

    @contextmanager
    def writing(self, name: str, *, whole: bool = False, for_next: bool = False) -> Iterator[Writer]:
        """Write the object `name`, which is complete when the block ends.

        `whole`: the object is of use without the others, so another attempt at the run may use it. `for_next`: the next
        backup has to read the object, so it is encrypted to the key that members which back up hold, too.
        An object of that name in `kept` is replaced.
        """
        if (old := self._kept.pop(name, None)) is not None:
            self._place.remove(f"{old.name}{_RECORD}")
        encryption = self._encryption
        keys = None if encryption is None else encryption.keys(for_next=for_next)
        stored_name = name if encryption is None else f"{name}{ENCRYPTED}"
        advance = partial(self._advance_paced, name)
        with storing(self._sink, stored_name, self._level, advance, keys, self._threads) as writer:
            yield writer
        with self._lock:
            self._written[name] = writer.entry
        if whole:
            self.note_whole(name)

    def note_whole(self, name: str) -> None:
        """Note that an object which was written is of use without the others (`whole` of `writing`)."""
        # What is locked cannot be moved, so another attempt could not use it.
        if self._place.lock is None and self._place.removes:
            entry = self._written[name]
            record = _Record(entry=self._sealed(entry), recipients=self._recipients)
            self._place.write_whole(f"{entry.name}{_RECORD}", record.model_dump_json().encode())

    @property
    def _recipients(self) -> tuple[str, ...]:
        return () if self._encryption is None else self._encryption.recipients

    def _sealed(self, entry: FileEntry) -> FileEntry:
        return entry if self._encryption is None else self._encryption.seal_entry(entry)

    def keep(self, name: str) -> FileEntry:
        """Make an object of `kept` a part of this backup. Returns its entry."""
        with self._lock:
            entry = self._written[name] = self._kept.pop(name)
        self._advance(name, entry.size_bytes)
        return entry

    def read_kept(self, name: str) -> bytes:
        """Return the content of a small object of `kept`, which was written `for_next`. Raises `Damaged`."""
        identities = None if self._encryption is None else self._encryption.metadata
        if identities is None and self._encryption is not None:
            raise Damaged(f"{self._place.url}/{name} cannot be read: this member holds no `metadata` key")
        return Content(stored_content(self._place, self._kept[name], quiet, identities)).readall()

    def adopt(self, folders: Sequence[Place]) -> None:
        """Move the whole objects of earlier attempts from their `folders`, the newest last, into this one."""
        for folder in folders:
            records = [name for name in folder.names("") if name.endswith(_RECORD)]
            for record, text in folder.read_many(records).items():
                try:
                    found = _Record.model_validate_json(text)
                except ValidationError:
                    continue  # a later version wrote it; the object is made again
                entry = found.entry
                if found.recipients != self._recipients:
                    continue  # the task's recipients have changed since
                if f"{entry.name}{_RECORD}" == record and _is_complete(folder, entry):
                    folder.move(entry.name, entry.name, into=self._place)
                    folder.move(record, record, into=self._place)
                    self._kept[entry.plain_name] = entry

    def _advance_paced(self, name: str, size_bytes: int) -> None:
        before = self._done_bytes.get(name, 0)
        self._advance(name, size_bytes)
        if self._pace is None:
            return
        self._pace.take(size_bytes - before)
        while (wait_s := self._pace.wait_s()) > 0:
            time.sleep(min(wait_s, _STEP_S))
            self._advance(name, size_bytes)  # an attempt that was asked to stop raises here

    def _advance(self, name: str, size_bytes: int) -> None:
        with self._lock:
            self._done_bytes[name] = size_bytes
            total = sum(self._done_bytes.values())
        self._progress(total)


def remove_unnamed(place: Place, files: Iterable[FileEntry]) -> None:
    """Remove what is in the folder of a backup beside its `files` and its manifest.

    It is records of whole objects, and objects of earlier attempts that were not used.
    """
    named = {NAME, *(entry.name for entry in files)}
    for name in place.names(""):
        if name not in named:
            place.remove(name)


def _is_complete(folder: Place, entry: FileEntry) -> bool:
    try:
        return folder.size_bytes(entry.name) in {None, entry.stored_bytes}
    except FileNotFoundError:
        return False


def _unheard(what: object) -> None:
    """Ignore what a restore tells."""


@dataclass(frozen=True)
class RestoreWatch:
    """What is told while a backup is restored or checked. Each function may raise, to stop it."""

    #: Gets the number of bytes of content that were read so far.
    advance: Progress = quiet
    #: Gets what is done now, as a few words.
    doing: Callable[[str], None] = _unheard
    #: Gets the number of bytes that will have been read at the end; None: it is not known.
    expect: Callable[[int | None], None] = _unheard


class StoredObjects:
    """The objects of a complete backup. `watch` is told how it is read.

    `keys` open an encrypted backup. `manifest` is then complete, with all that is sealed in the stored one. Raises
    `NoIdentity` and `BadIdentity` if they do not fit.
    """

    def __init__(
        self,
        manifest: Manifest,
        options: dict[str, Any] | None,
        watch: RestoreWatch,
        keys: BackupKeys | None = None,
    ) -> None:
        self._identities: Identities | None = None
        if manifest.encryption is not None:
            self._identities = (keys or BackupKeys()).identities_for(manifest)
            manifest = unsealed(manifest, self._identities)
        self.manifest = manifest
        self._options = options
        self._keys = keys
        self._place = Place(manifest.url, options)
        self._watch = watch
        self._before_bytes = 0

    def content(self, entry: FileEntry) -> Content:
        """Return the checked content of an object. Read it before that of the next one. Reading raises `Damaged`."""
        before, self._before_bytes = self._before_bytes, self._before_bytes + entry.size_bytes
        progress = partial(_advance_from, before, self._watch.advance)
        self.doing(f"reading {entry.plain_name}")
        return Content(stored_content(self._place, entry, progress, self._identities))

    def skip(self, entry: FileEntry) -> None:
        """Count an object as read."""
        self._before_bytes += entry.size_bytes
        self._watch.advance(self._before_bytes)

    def doing(self, what: str) -> None:
        """Tell what is done now."""
        self._watch.doing(what)

    def expect(self, entries: Iterable[FileEntry]) -> None:
        """Tell that these objects will be read from now on, and no others."""
        self._watch.expect(self._before_bytes + sum(entry.size_bytes for entry in entries))

    def chain(self) -> "list[StoredObjects]":
        """Return the backups that restoring this one needs: the full one first, this one last. Read them in that order.

        Raises `BrokenChain`.
        """
        needed = needed_by_restore(self.manifest, self._options)
        found = [StoredObjects(manifest, self._options, self._watch, self._keys) for manifest in needed[:-1]]
        for before, each in pairwise([*found, self]):
            each._before_bytes = before._before_bytes + before.manifest.size_bytes
        return [*found, self]

    def only(self) -> Content:
        """Return the checked content of a backup that has one object. Raises `Damaged` if it has not."""
        entries = self.manifest.files
        if len(entries) != 1:
            raise Damaged(f"{self.manifest.url} has {len(entries)} objects; a backup like it has one object")
        return self.content(entries[0])


def _advance_from(before_bytes: int, progress: Progress, done_bytes: int) -> None:
    progress(before_bytes + done_bytes)


def needed_by_restore(manifest: Manifest, options: dict[str, Any] | None) -> tuple[Manifest, ...]:
    """Return the backups that restoring one needs, the full one first, itself last. Raises `BrokenChain`."""
    folder = manifest.url.rpartition("/")[0]
    return chain_of(manifest, lambda name: read_manifest(Place(f"{folder}/{name}", options)))
