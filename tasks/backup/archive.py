"""Compresses a stream of bytes into a file, and unpacks it, in constant memory and with checksums.

Two checksums are computed on the way: one of the file as stored, as `sha256sum` does, and one of the content. The file
is one zstd frame with its own checksum, and `zstd -d` can unpack it.
"""

import hashlib
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import zstandard
from typing_extensions import Buffer

from tasks.backup.manifest import FileEntry
from tasks.places.place import Place

CHUNK_BYTES = 1 << 20

Progress = Callable[[int], None]
"""A callback that gets the number of bytes of content that were processed so far."""


def quiet(done_bytes: int) -> None:
    """A `Progress` that does nothing."""


class TargetExists(Exception):
    """The target of a restore exists, and `overwrite` was not given."""


class Damaged(Exception):
    """A stored file does not match its manifest."""


class Writer:
    """The file-like object that a source writes to. Compresses the content into a file; computes size and checksums."""

    def __init__(self, name: str, file: IO[bytes], level: int, progress: Progress) -> None:
        self._name = name
        self._file = file
        self._packer = zstandard.ZstdCompressor(level=level, write_checksum=True).compressobj()
        self._progress = progress
        self._stored_sum, self._content_sum = hashlib.sha256(), hashlib.sha256()
        self._stored_bytes = 0
        self._about: dict[str, Any] = {}
        self._entry: FileEntry | None = None
        self.size_bytes = 0

    def write(self, content: bytes) -> int:
        """Write the next piece of content, all of it."""
        self._content_sum.update(content)
        self.size_bytes += len(content)
        self._store(self._packer.compress(content))
        self._progress(self.size_bytes)
        return len(content)

    def _store(self, packed: bytes) -> None:
        self._stored_sum.update(packed)
        self._stored_bytes += len(packed)
        self._file.write(packed)

    def about(self, **fields: Any) -> None:
        """Add fields of `FileEntry` to the file's entry, such as its `remarks`."""
        self._about |= fields

    def finish(self) -> None:
        """End the archive."""
        self._store(self._packer.flush())
        self._entry = FileEntry(
            name=self._name,
            size_bytes=self.size_bytes,
            stored_bytes=self._stored_bytes,
            sha256=self._stored_sum.hexdigest(),
            content_sha256=self._content_sum.hexdigest(),
            **self._about,
        )

    @property
    def entry(self) -> FileEntry:
        """The file's entry for the manifest, once the archive has ended."""
        assert self._entry is not None, "the archive has not ended"
        return self._entry


@contextmanager
def storing(place: Place, name: str, level: int, progress: Progress) -> Iterator[Writer]:
    """Compress what the block writes into the file `name` in `place`. The writer's `entry` is there afterwards."""
    with place.writing(name) as file:
        writer = Writer(name, file, level, progress)
        yield writer
        writer.finish()


class _Summed(io.RawIOBase):
    """A file that counts the bytes that are read from it, and computes their checksum."""

    def __init__(self, file: IO[bytes]) -> None:
        self.sum = hashlib.sha256()
        self.size_bytes = 0
        self._file = file

    def readable(self) -> bool:
        """Return True: the file can be read."""
        return True

    def readinto(self, buffer: Buffer) -> int:
        """Fill `buffer` with the next bytes. Returns their number, 0 at the end."""
        target = memoryview(buffer).cast("B")
        data = self._file.read(len(target))
        target[: len(data)] = data
        self.sum.update(data)
        self.size_bytes += len(data)
        return len(data)


def stored_content(place: Place, entry: FileEntry, progress: Progress) -> Iterator[bytes]:
    """Yield the content of a stored file, and check it. Raises `Damaged`.

    The last chunk is yielded only after every checksum has matched, so that no caller reads a damaged file to its end
    without an error.
    """
    held = b""
    for chunk in _unpacked(place, entry, progress):
        if held:
            yield held
        held = chunk
    yield held


class Content(io.RawIOBase):
    """The chunks of `stored_content` as a readable file. `read` raises `Damaged`."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Return True: the file can be read."""
        return True

    def readinto(self, buffer: Buffer) -> int:
        """Fill `buffer` with the next bytes. Returns their number, 0 at the end."""
        target = memoryview(buffer).cast("B")
        if not self._rest:
            self._rest = memoryview(next(self._chunks, b""))
        taken = min(len(target), len(self._rest))
        target[:taken] = self._rest[:taken]
        self._rest = self._rest[taken:]
        return taken

    def drain(self) -> None:
        """Read to the end, so that every checksum is checked."""
        while self.read(CHUNK_BYTES):
            pass


def _unpacked(place: Place, entry: FileEntry, progress: Progress) -> Iterator[bytes]:
    content_sum, size_bytes = hashlib.sha256(), 0
    try:
        with place.reading(entry.name) as file:
            stored = _Summed(file)
            # Read by pieces of unpacked content, not of the file: a megabyte of it may unpack to gigabytes.
            buffered = io.BufferedReader(stored, CHUNK_BYTES)
            reader = zstandard.ZstdDecompressor().stream_reader(buffered)
            while chunk := reader.read(CHUNK_BYTES):
                content_sum.update(chunk)
                size_bytes += len(chunk)
                if size_bytes > entry.size_bytes:
                    said = f"the {entry.size_bytes} bytes in its manifest"
                    raise Damaged(f"{place.url}/{entry.name} unpacks to more than {said}")
                progress(size_bytes)
                yield chunk
            while buffered.read(CHUNK_BYTES):
                pass
    except FileNotFoundError:
        raise Damaged(f"{place.url}/{entry.name} is missing") from None
    except zstandard.ZstdError as error:
        raise Damaged(f"{place.url}/{entry.name}: {error}") from None
    if (stored.size_bytes, stored.sum.hexdigest()) != (entry.stored_bytes, entry.sha256):
        raise Damaged(
            f"{place.url}/{entry.name} has {stored.size_bytes} bytes with the checksum {stored.sum.hexdigest()[:12]}; "
            f"the manifest says {entry.stored_bytes} bytes with {entry.sha256[:12]}"
        )
    if (size_bytes, content_sum.hexdigest()) != (entry.size_bytes, entry.content_sha256):
        raise Damaged(f"{place.url}/{entry.name}: the content differs from what was backed up")
