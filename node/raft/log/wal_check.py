"""Checks the write-ahead log of an SQLite file for damage, before SQLite opens it.

SQLite ends recovery silently at the first frame with a wrong checksum. This is right after a power cut, when the last
write is torn. It is wrong if the disk has lost synced data, since Raft would forget acknowledged entries. With
synchronous=FULL, a transaction begins only once the last one is on the disk. So one commit beyond the first bad frame
may be a torn write, but two mean damage. (`flush_counter` detects a log that is cut off; this check also works after a
power cut, when that counter may be too low. https://sqlite.org/fileformat2.html#walformat)
"""

import struct
from pathlib import Path
from typing import BinaryIO

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MAGIC = 0x377F0682
_MASK = 0xFFFFFFFF


def lost_commits(path: Path) -> int:
    """Count the commits in the log at `path` that SQLite would drop although they were on the disk.

    Returns 0 if the log is intact, ends in a torn commit, is empty or does not exist; 1 if its header is damaged.
    """
    try:
        with path.open("rb") as file:
            return _lost_commits(file)
    except FileNotFoundError:
        return 0


def _lost_commits(file: BinaryIO) -> int:
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return 0
    magic, _, page_bytes, _, *salts, first, second = _HEADER.unpack(header)
    order = ">" if magic & 1 else "<"
    sums = _checksum(header[:24], (0, 0), order)
    if magic & ~1 != _MAGIC or sums != (first, second):
        return 1 if file.read(1) else 0
    beyond = 0
    broken = False
    while len(frame := file.read(_FRAME.size + page_bytes)) == _FRAME.size + page_bytes:
        _, size_after_commit, *own_salts, first, second = _FRAME.unpack_from(frame)
        if not broken:
            sums = _checksum(frame[_FRAME.size :], _checksum(frame[:8], sums, order), order)
            broken = own_salts != salts or sums != (first, second)
        if broken and own_salts == salts and size_after_commit:
            beyond += 1
    return max(0, beyond - 1)


def _checksum(data: bytes, sums: tuple[int, int], order: str) -> tuple[int, int]:
    one, other = sums
    words = iter(struct.unpack(f"{order}{len(data) // 4}I", data))
    for word in words:
        one = one + word + other & _MASK
        other = other + next(words) + one & _MASK
    return one, other
