"""Compresses a stream of bytes into a file, and unpacks it, in constant memory and with checksums.

A checksum of the file as stored is computed on the way, as `sha256sum` does. The file is one zstd frame, which has a
checksum of its content, and `zstd -d` can unpack it. An encrypted file is such a frame, encrypted: `age -d` and then
`zstd -d`. A SHA-256 of the content, too, would say no more, and took a tenth of the time of a backup.
"""

import hashlib
import io
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from typing import IO, Any, Final, Protocol

import zstandard
from typing_extensions import Buffer

from tasks.backup.encryption import Altered, Identities, NoIdentity, WrongKey, decrypting, encrypt
from tasks.backup.flow import Flow
from tasks.backup.manifest import FileEntry
from tasks.errors import Failed
from tasks.places.place import Place

CHUNK_BYTES = 1 << 20

_JOB_BYTES: Final = 512 << 10
"""The content that a thread compresses at a time: the least that zstd takes. 2 MiB would take 13 MB more for 0.2 %."""

_OVERLAP_LOG: Final = 4
"""How much of the job before a thread reads first, to refer to it: 1/32 of the window, or 64 KiB. zstd's own choice of
1/8 takes a tenth of the time where jobs are so small, and makes files of text smaller by 1 %.
"""

Progress = Callable[[int], None]
"""A callback that gets the number of bytes of content that were processed so far."""


def quiet(done_bytes: int) -> None:
    """A `Progress` that does nothing."""


class ObjectSink(Protocol):
    """Where stored files are written: a `Place`, or several at once."""

    def writing(self, name: str) -> AbstractContextManager[IO[bytes]]:
        """Open a file for writing as a stream, as `Place.writing` does."""


class TargetExists(Exception):
    """There is something at the target of a restore. `flag` is the option that lets it be replaced; None: none does."""

    def __init__(self, found: str, other: str = "name another target", flag: str | None = "--overwrite") -> None:
        super().__init__(f"{found}: {other}" + (f", or give {flag} to replace it" if flag else ""))
        self.found = found
        """What is there, as the beginning of a sentence."""
        self.other = other
        """What else to do, as its end."""


class Damaged(Exception):
    """A stored file does not match its manifest."""


class PlaceFailed(Failed):
    """A stored file cannot be read: its storage does not answer, or refuses."""


class Writer:
    """The file-like object that a source writes to. Compresses the content; a thread of its own stores the result.

    `keys`: the recipients to which the stored file is encrypted; None: it is not encrypted. `threads`: the number of
    threads that compress; 0: the thread that writes does.
    """

    def __init__(
        self,
        name: str,
        file: IO[bytes],
        level: int,
        progress: Progress,
        keys: Sequence[Any] | None = None,
        threads: int = 0,
    ) -> None:
        self._name = name
        self._packer = _compressor(level, threads).compressobj()
        self._progress = progress
        self._keys = keys
        self._stored = _Stored(file)
        self._flow = Flow()
        self._thread = threading.Thread(target=self._store, name=f"store {name}", daemon=True)
        self._about: dict[str, Any] = {}
        self._entry: FileEntry | None = None
        self.size_bytes = 0
        self._thread.start()

    def write(self, content: bytes) -> int:
        """Write the next piece of content, all of it. Raises the storage's errors."""
        self.size_bytes += len(content)
        self._flow.write(self._packer.compress(content))
        self._progress(self.size_bytes)
        return len(content)

    def _store(self) -> None:
        try:
            if self._keys is not None:
                encrypt(self._flow, self._stored, self._keys)
            else:
                while packed := self._flow.chunk():
                    self._stored.write(packed)
        except BaseException as error:  # noqa: BLE001  the thread that writes gets the error
            self._flow.abandon(error)

    def about(self, **fields: Any) -> None:
        """Add fields of `FileEntry` to the file's entry, such as its `remarks`."""
        self._about |= fields

    def finish(self) -> None:
        """End the archive. Raises the storage's errors."""
        self._flow.write(self._packer.flush())
        self._flow.end()
        self._thread.join()
        self._flow.check()
        self._entry = FileEntry(
            name=self._name,
            size_bytes=self.size_bytes,
            stored_bytes=self._stored.size_bytes,
            sha256=self._stored.sum.hexdigest(),
            **self._about,
        )

    def abandon(self) -> None:
        """End without a complete archive."""
        self._flow.end(Abandoned("the archive was not completed"))
        self._thread.join()

    @property
    def entry(self) -> FileEntry:
        """The file's entry for the manifest, once the archive has ended."""
        assert self._entry is not None, "the archive has not ended"
        return self._entry


class Abandoned(Exception):
    """A source failed before its archive was complete."""


class _Stored:
    """The file as stored. Counts the bytes that are written to it, and computes their checksum."""

    def __init__(self, file: IO[bytes]) -> None:
        self.sum = hashlib.sha256()
        self.size_bytes = 0
        self._file = file

    def write(self, data: bytes) -> int:
        self.sum.update(data)
        self.size_bytes += len(data)
        self._file.write(data)
        return len(data)


def _compressor(level: int, threads: int) -> zstandard.ZstdCompressor:
    if threads == 0:
        return zstandard.ZstdCompressor(level=level, write_checksum=True)
    # zstd's own choice of 8 MiB and more for each thread would take much memory where there are many threads.
    found = zstandard.ZstdCompressionParameters.from_level(
        level, threads=threads, job_size=_JOB_BYTES, overlap_log=_OVERLAP_LOG, write_checksum=True
    )
    return zstandard.ZstdCompressor(compression_params=found)


@contextmanager
def storing(
    place: ObjectSink,
    name: str,
    level: int,
    progress: Progress,
    keys: Sequence[Any] | None = None,
    threads: int = 0,
) -> Iterator[Writer]:
    """Compress what the block writes into the file `name` in `place`. The writer's `entry` is there afterwards.

    `keys`: recipients (`Encryption.keys`) to which the file is encrypted; None: it is not encrypted. `threads`: how
    many threads compress; 0: the thread that writes does.
    """
    with place.writing(name) as file:
        writer = Writer(name, file, level, progress, keys, threads)
        try:
            yield writer
            writer.finish()
        except BaseException:
            writer.abandon()
            raise


class _Summed(io.RawIOBase):
    """A file that counts the bytes that are read from it, and computes their checksum. Reading raises `PlaceFailed`."""

    def __init__(self, file: IO[bytes], url: str) -> None:
        self.sum = hashlib.sha256()
        self.size_bytes = 0
        self._file = file
        self._url = url

    def readable(self) -> bool:
        """Return True: the file can be read."""
        return True

    def readinto(self, buffer: Buffer) -> int:
        """Fill `buffer` with the next bytes. Returns their number, 0 at the end."""
        target = memoryview(buffer).cast("B")
        with _failure_named(self._url):
            data = self._file.read(len(target))
        target[: len(data)] = data
        self.sum.update(data)
        self.size_bytes += len(data)
        return len(data)

    def drain(self, progress: Progress) -> None:
        """Read the rest of the file."""
        while self.read(CHUNK_BYTES):
            progress(self.size_bytes)

    def check(self, place: Place, entry: FileEntry) -> None:
        """Raise `Damaged` if what was read is not what the entry says."""
        if (self.size_bytes, self.sum.hexdigest()) != (entry.stored_bytes, entry.sha256):
            raise Damaged(
                f"{place.url}/{entry.name} has {self.size_bytes} bytes with the checksum "
                f"{self.sum.hexdigest()[:12]}; the manifest says {entry.stored_bytes} bytes with {entry.sha256[:12]}"
            )


def stored_content(
    place: Place, entry: FileEntry, progress: Progress, identities: Identities | None = None
) -> Iterator[bytes]:
    """Yield the content of a stored file, and check it. Raises `Damaged`, and `NoIdentity` for an encrypted file.

    The last chunk is yielded only after every checksum has matched, so that no caller reads a damaged file to its end
    without an error. `identities` decrypt an encrypted file.
    """
    held = b""
    with closing(_unpacked(place, entry, progress, identities)) as chunks:
        for chunk in chunks:
            if held:
                yield held
            held = chunk
        yield held


def check_stored(place: Place, entry: FileEntry, progress: Progress) -> None:
    """Read a file as it is stored, without its content, and compare it with its entry. Raises `Damaged`."""
    with _reading(place, entry) as stored:
        stored.drain(progress)
    stored.check(place, entry)


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


def _unpacked(
    place: Place, entry: FileEntry, progress: Progress, identities: Identities | None
) -> Generator[bytes, None, None]:
    # zstd checks the content by the checksum in its frame; backups of earlier builds bear another one.
    content_sum = None if entry.content_sha256 is None else hashlib.sha256()
    size_bytes = 0
    with _reading(place, entry) as stored:
        # Read by pieces of unpacked content, not of the file: a megabyte of it may unpack to gigabytes.
        buffered = io.BufferedReader(stored, CHUNK_BYTES)
        try:
            with _decrypted(buffered, entry, identities) as packed:
                reader = zstandard.ZstdDecompressor().stream_reader(packed, read_size=CHUNK_BYTES)
                while chunk := reader.read(CHUNK_BYTES):
                    if content_sum is not None:
                        content_sum.update(chunk)
                    size_bytes += len(chunk)
                    if size_bytes > entry.size_bytes:
                        said = f"the {entry.size_bytes} bytes in its manifest"
                        raise Damaged(f"{place.url}/{entry.name} unpacks to more than {said}")
                    progress(size_bytes)
                    yield chunk
                while packed.read(CHUNK_BYTES):
                    pass
        except WrongKey as error:
            # Damage to the head of the file looks like another key, too. The checksum tells which it is.
            stored.drain(quiet)
            stored.check(place, entry)
            raise NoIdentity(
                f"{place.url}/{entry.name} cannot be decrypted by the identity that was given: {error}"
            ) from None
    stored.check(place, entry)
    found_sum = None if content_sum is None else content_sum.hexdigest()
    if (size_bytes, found_sum) != (entry.size_bytes, entry.content_sha256):
        raise Damaged(f"{place.url}/{entry.name}: the content differs from what was backed up")


@contextmanager
def _decrypted(file: IO[bytes], entry: FileEntry, identities: Identities | None) -> Iterator[Any]:
    """Yield a readable file with what zstd has written."""
    if not entry.encrypted:
        yield file
        return
    if identities is None:
        raise NoIdentity(f"{entry.name} is encrypted: give an identity that decrypts it")
    with decrypting(file, identities) as content:
        yield content


@contextmanager
def _failure_named(url: str) -> Iterator[None]:
    """Raise `PlaceFailed` for an error of a storage's library, but let a missing file's error pass."""
    try:
        yield
    except FileNotFoundError:
        raise
    except Exception as error:
        raise PlaceFailed(f"{url} cannot be read: {type(error).__name__}: {error}") from error


@contextmanager
def _reading(place: Place, entry: FileEntry) -> Iterator[_Summed]:
    """Open a stored file. Raises `Damaged` if it is missing, or if the block finds that it cannot be unpacked."""
    url = f"{place.url}/{entry.name}"
    try:
        with ExitStack() as stack:
            with _failure_named(url):
                file = stack.enter_context(place.reading(entry.name, entry.version))
            yield _Summed(file, url)
    except FileNotFoundError:
        raise Damaged(f"{place.url}/{entry.name} is missing") from None
    except (zstandard.ZstdError, Altered) as error:
        raise Damaged(f"{place.url}/{entry.name}: {error}") from None
