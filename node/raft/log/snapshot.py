"""The snapshot file: a sequence of frames that hold a header, the pieces of the state, and a trailer.

It is written to a temporary file, synced and renamed, so that a reader finds a complete file or none. A frame has its
length and its CRC-32 (little-endian, 4 bytes each), then its bytes. The first frame is the header; the last is empty,
and its CRC is that of the bytes of all frames before it.
"""

import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgpack

from node.raft.errors import DamagedData
from node.raft.log.append_filter import Entry

MAGIC = b"ROTASNP1"
PIECE_LIMIT = 64 << 20
_FRAME = struct.Struct("<II")


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a snapshot of all entries up to `last`. prev: the entry before `last`. cluster: the members as of
    `last`, each as "id host port".

    After the snapshot is loaded, the library's log begins with these two entries.
    """

    last: Entry
    prev: Entry
    cluster: tuple[str, ...]

    @property
    def index(self) -> int:
        """The index of the last entry that the snapshot covers."""
        return self.last[1]


def write_snapshot(path: Path, header: Header, pieces: Iterable[bytes]) -> int:
    """Write a snapshot to `path` and wait until it is on the disk. Returns its size in bytes."""
    with path.open("wb") as file:
        file.write(MAGIC)
        total = 0
        packed = msgpack.packb({"last": header.last, "prev": header.prev, "cluster": header.cluster})
        for piece in _first(packed, pieces):
            if not piece:
                continue
            total = zlib.crc32(piece, total)
            file.write(_FRAME.pack(len(piece), zlib.crc32(piece)))
            file.write(piece)
        file.write(_FRAME.pack(0, total))
        file.flush()
        os.fsync(file.fileno())
        return file.tell()


def _first(piece: bytes, pieces: Iterable[bytes]) -> Iterator[bytes]:
    yield piece
    yield from pieces


def check_snapshot(path: Path) -> Header:
    """Read and check the whole file. Returns the header. Raises DamagedData."""
    with path.open("rb") as file:
        frames = _frames(file, path)
        header = _header(next(frames), path)
        for _ in frames:
            pass
        return header


def pieces(path: Path) -> Iterator[bytes]:
    """Yield the state's pieces. Raises DamagedData, at the latest after the last piece."""
    with path.open("rb") as file:
        frames = _frames(file, path)
        next(frames)
        yield from frames


def _header(packed: bytes, path: Path) -> Header:
    try:
        fields = msgpack.unpackb(packed)
        last, prev = tuple(fields["last"]), tuple(fields["prev"])
        header = Header((bytes(last[0]), int(last[1]), int(last[2])), (bytes(prev[0]), int(prev[1]), int(prev[2])), ())
        return Header(header.last, header.prev, tuple(str(member) for member in fields["cluster"]))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise DamagedData(f"the snapshot {path} has a header of another kind ({error})") from error


def _frames(file: BinaryIO, path: Path) -> Iterator[bytes]:
    if file.read(len(MAGIC)) != MAGIC:
        raise DamagedData(f"{path} is not a snapshot, or one of another version")
    total = 0
    count = 0
    while True:
        head = file.read(_FRAME.size)
        if len(head) < _FRAME.size:
            raise _short(path)
        size, crc = _FRAME.unpack(head)
        if size == 0:
            if crc != total or file.read(1) or count == 0:
                raise DamagedData(f"the snapshot {path} does not end as it should")
            return
        if size > PIECE_LIMIT:
            raise DamagedData(f"the snapshot {path} has a piece of {size} bytes")
        piece = file.read(size)
        if len(piece) < size:
            raise _short(path)
        if zlib.crc32(piece) != crc:
            raise DamagedData(f"the snapshot {path} has a piece whose checksum does not match")
        total = zlib.crc32(piece, total)
        count += 1
        yield piece


def _short(path: Path) -> DamagedData:
    return DamagedData(f"the snapshot {path} is cut short")
