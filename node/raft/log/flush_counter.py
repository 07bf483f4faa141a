"""Counts the journal's flushes in a file beside it, so that a journal that has lost its end is detected.

A journal that is cut off between two writes, an older copy and an empty file all look intact; only a second file shows
the loss. The count is written after each flush and not synced: after a power cut it may be too low, but never higher
than the flushes on the disk. The file also shows that this member has had a journal before.
"""

import os
import struct
import zlib
from pathlib import Path

from tasks.places.fsync import sync

_MAGIC = b"ROTAFLU1"
_NUMBER = struct.Struct("<8sQ")
_CRC = struct.Struct("<I")
SIZE_BYTES = _NUMBER.size + _CRC.size


class FlushCounter:
    """The file at `path`. flushes: the number in it; None if the file does not exist or is damaged.

    begun: whether the file existed at construction. Raises `OSError`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.flushes: int | None = None
        self._file: int | None = None
        self.begun = path.exists()
        if self.begun:
            self.flushes = _read(path.read_bytes())

    def write(self, flushes: int) -> None:
        """Store the number of flushes that are on the disk. Raises `OSError`."""
        if self._file is None:
            self._begin()
        assert self._file is not None
        number = _NUMBER.pack(_MAGIC, flushes)
        os.pwrite(self._file, number + _CRC.pack(zlib.crc32(number)), 0)
        self.flushes = flushes

    def _begin(self) -> None:
        new = not self.path.exists()
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._file, SIZE_BYTES)
        if new:
            sync(self.path.parent)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _read(content: bytes) -> int | None:
    if len(content) != SIZE_BYTES:
        return None
    magic, flushes = _NUMBER.unpack_from(content)
    [crc] = _CRC.unpack_from(content, _NUMBER.size)
    return int(flushes) if magic == _MAGIC and crc == zlib.crc32(content[: _NUMBER.size]) else None
