"""Reads untrusted tar archives as a stream, by tarfile in a version whose `extractall` has filters."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Final

from typing_extensions import Buffer

from tasks.backup.archive import Damaged

if sys.version_info >= (3, 12):
    import tarfile
else:  # Debian 12 has Python 3.11.2, whose tarfile cannot check members as it unpacks them
    from backports import tarfile

__all__ = ["archive_in", "tarfile"]

_READ_BYTES: Final = 64 << 10
"""How much tarfile reads at a time. At each header it copies what it has not used of it: a megabyte took a third of the
time of restoring small files."""

_EMPTY_READS_MAX: Final = 16
"""How often tarfile reads at the end of a sound archive, or one that was cut short, at most."""


class _Ending(io.RawIOBase):
    """A file that is not read on and on behind its end: tarfile would look there for a member of exabytes."""

    def __init__(self, file: io.RawIOBase) -> None:
        self._file = file
        self._empty = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        read = self._file.readinto(buffer) or 0
        self._empty += read == 0
        if self._empty > _EMPTY_READS_MAX:
            raise tarfile.ReadError("it ends within a member")
        return read


@contextmanager
def archive_in(content: io.RawIOBase) -> Iterator["tarfile.TarFile"]:
    """Read an archive as a stream in the block. Raises `Damaged`, whatever tarfile makes of headers that are wrong."""
    file: IO[bytes] = _Ending(content)  # type: ignore[assignment]
    try:
        with tarfile.open(fileobj=file, mode="r|", bufsize=_READ_BYTES) as archive:
            yield archive
    except (tarfile.TarError, ValueError, OverflowError) as error:
        raise Damaged(f"the archive cannot be unpacked: {error}") from error
