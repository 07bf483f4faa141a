"""The 64-bit hash of a task's key, and the step from one hash to the next."""

from hashlib import blake2b
from typing import Final

MASK64: Final = 0xFFFF_FFFF_FFFF_FFFF


def key64(text: str) -> int:
    """Return the 64-bit hash of a task's key, or of its name if it has no key.

    The hash is BLAKE2b with digest_size=8 over the UTF-8 of `text`, read as a big-endian integer. The text is not
    normalized, so two Unicode spellings of one letter are two keys. Raises `UnicodeEncodeError` for a lone surrogate,
    which has no UTF-8.

    >>> hex(key64("orders"))
    '0xd5acebe867b47f4d'
    """
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def mix(h: int) -> int:
    """Return the output of one step of SplitMix64 (Steele, Lea and Flood 2014) from the state `h`, both of 64 bits.

    >>> hex(mix(0))
    '0xe220a8397b1dcdaf'
    """
    z = (h + 0x9E37_79B9_7F4A_7C15) & MASK64
    z = ((z ^ z >> 30) * 0xBF58_476D_1CE4_E5B9) & MASK64
    z = ((z ^ z >> 27) * 0x94D0_49BB_1331_11EB) & MASK64
    return z ^ z >> 31
