"""Messages as zlib streams (RFC 1950), as the library sends them, but small ones stored and not compressed.

The library compresses every message, and zlib clears a quarter of a megabyte for each: 50 us where the pickling,
encrypting and sending of a heartbeat take 15, and a few of them stand one after the other in every commit. What is
made here is read by any zlib, so members that store and members that compress understand each other.
"""

import struct
import zlib
from types import SimpleNamespace
from typing import Final

from pysyncobj import tcp_connection

STORED_MAX: Final = 4096
"""Up to so many bytes are stored. One stored block holds 65,535 (RFC 1951, section 3.2.4)."""

_HEADER: Final = b"\x78\x01"  # deflate, a window of 32 KiB, no dictionary
_LAST_STORED: Final = b"\x01"


def stored(data: bytes) -> bytes:
    """A zlib stream of one block that holds up to 65,535 bytes as they are.

    >>> zlib.decompress(stored(b"a heartbeat"))
    b'a heartbeat'
    """
    lengths = struct.pack("<HH", len(data), len(data) ^ 0xFFFF)
    return b"".join((_HEADER, _LAST_STORED, lengths, data, struct.pack(">I", zlib.adler32(data))))


def compress(data: bytes, level: int) -> bytes:
    """A zlib stream of `data`: stored if it is small, compressed otherwise."""
    return stored(data) if len(data) <= STORED_MAX else zlib.compress(data, level)


def mend_connections() -> None:
    """Have the library's connections use `compress`."""
    tcp_connection.zlib = SimpleNamespace(compress=compress, decompress=zlib.decompress)
