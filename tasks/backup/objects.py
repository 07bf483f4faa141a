"""The objects of one backup: the compressed files that an attempt writes, and that a restore reads.

Most sources write one object. Some write several, each of which is whole by itself, such as the databases of a server.
For such an object a record is stored beside it once it is complete. If the attempt dies, the next attempt at the run
takes it over by this record, and does not make it again.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from pydantic import ValidationError

from tasks.backup.archive import Content, Progress, Writer, stored_content, storing
from tasks.backup.manifest import FileEntry, Manifest
from tasks.places.place import Place

_RECORD: Final = ".whole.json"
"""The suffix of the record of a whole object. Its content is the object's `FileEntry`."""


class NewObjects:
    """The objects that an attempt writes to the folder of its backup. Several threads may write at once."""

    def __init__(self, place: Place, level: int, progress: Progress) -> None:
        self._place = place
        self._level = level
        self._progress = progress
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
    def writing(self, name: str, *, whole: bool = False) -> Iterator[Writer]:
        """Write the object `name`, which is complete when the block ends.

        `whole`: the object is of use without the others, so another attempt at the run may use it.
        """
        with storing(self._place, name, self._level, lambda size_bytes: self._advance(name, size_bytes)) as writer:
            yield writer
        if whole:
            self._place.write_whole(f"{name}{_RECORD}", writer.entry.model_dump_json().encode())
        with self._lock:
            self._written[name] = writer.entry

    def keep(self, name: str) -> FileEntry:
        """Make an object of `kept` a part of this backup. Returns its entry."""
        with self._lock:
            entry = self._written[name] = self._kept.pop(name)
        self._advance(name, entry.size_bytes)
        return entry

    def adopt(self, folders: Sequence[Place]) -> None:
        """Move the whole objects of earlier attempts from their `folders`, the newest last, into this one."""
        for folder in folders:
            records = [name for name in folder.names("") if name.endswith(_RECORD)]
            for record, text in folder.read_many(records).items():
                try:
                    entry = FileEntry.model_validate_json(text)
                except ValidationError:
                    continue  # a later version wrote it; the object is made again
                if f"{entry.name}{_RECORD}" == record and _is_complete(folder, entry):
                    folder.move(entry.name, entry.name, into=self._place)
                    folder.move(record, record, into=self._place)
                    self._kept[entry.name] = entry

    def tidy(self) -> None:
        """Remove the records, and the objects of earlier attempts that were not used. The manifest can follow."""
        for name in self._kept:
            self._place.remove(name)
        for name in self._place.names(""):
            if name.endswith(_RECORD):
                self._place.remove(name)

    def _advance(self, name: str, size_bytes: int) -> None:
        with self._lock:
            self._done_bytes[name] = size_bytes
            total = sum(self._done_bytes.values())
        self._progress(total)


def _is_complete(folder: Place, entry: FileEntry) -> bool:
    try:
        return folder.size_bytes(entry.name) in {None, entry.stored_bytes}
    except FileNotFoundError:
        return False


class StoredObjects:
    """The objects of a complete backup. `progress` is told how many bytes of their content were read."""

    def __init__(self, manifest: Manifest, options: dict[str, Any] | None, progress: Progress) -> None:
        self.manifest = manifest
        self._place = Place(manifest.url, options)
        self._progress = progress
        self._before_bytes = 0

    def content(self, entry: FileEntry) -> Content:
        """Return the checked content of an object. Read it before that of the next one. Reading raises `Damaged`."""
        before, self._before_bytes = self._before_bytes, self._before_bytes + entry.size_bytes
        return Content(stored_content(self._place, entry, lambda done: self._progress(before + done)))

    def only(self) -> Content:
        """Return the checked content of a backup that has one object."""
        (entry,) = self.manifest.files
        return self.content(entry)
