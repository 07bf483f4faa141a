"""Positions in PostgreSQL's write-ahead log (pure): LSNs, segments, and the history of timelines.

A position is a timeline and an LSN, the number of a byte in the log. The log is stored in segments of equal size, each
named by its timeline and its number. A promoted server continues in a new timeline, which forks from its parent at an
LSN. The new timeline's history file lists all its ancestors ("Timelines" in PostgreSQL's manual, chapter 25.3.6).
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

SEGMENT_NAME: Final = re.compile(r"[0-9A-F]{24}")
HISTORY_NAME: Final = re.compile(r"([0-9A-F]{8})\.history")


class WalPosition(NamedTuple):
    """A position in the log. Positions compare by timeline first."""

    timeline: int
    lsn: int

    def __str__(self) -> str:
        return f"{lsn_text(self.lsn)} of timeline {self.timeline}"


class Fork(NamedTuple):
    """The end of a timeline that has a successor."""

    timeline: int
    #: The LSN at which its successor begins.
    end: int


def parse_lsn(text: str) -> int:
    """Return the number of an LSN. Raises `ValueError`.

    >>> parse_lsn("16/B374D848")
    97500059720
    """
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def lsn_text(lsn: int) -> str:
    """Return an LSN as PostgreSQL writes it.

    >>> lsn_text(97500059720)
    '16/B374D848'
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def segment_start(lsn: int, segment_bytes: int) -> int:
    """Return the LSN at which the segment that contains `lsn` begins."""
    return lsn - lsn % segment_bytes


def segment_name(timeline: int, lsn: int, segment_bytes: int) -> str:
    """Return the name of the segment that contains `lsn`.

    >>> segment_name(2, parse_lsn("16/B374D848"), 16 << 20)
    '0000000200000016000000B3'
    """
    number = lsn // segment_bytes
    each = (1 << 32) // segment_bytes
    return f"{timeline:08X}{number // each:08X}{number % each:08X}"


def segment_position(name: str, segment_bytes: int) -> WalPosition:
    """The inverse of `segment_name`: the position at which the segment begins.

    >>> segment_position("0000000200000016000000B3", 16 << 20) == (2, parse_lsn("16/B3000000"))
    True
    """
    timeline, high, low = (int(name[at : at + 8], 16) for at in (0, 8, 16))
    return WalPosition(timeline, (high * ((1 << 32) // segment_bytes) + low) * segment_bytes)


def parse_history(text: str) -> tuple[Fork, ...]:
    r"""Return the ancestors that a history file lists, the oldest first. Raises `ValueError`.

    >>> parse_history("1\t0/30B3BB0\tno recovery target specified\n\n2\t0/5000000\tbefore a drop\n")
    (Fork(timeline=1, end=51067824), Fork(timeline=2, end=83886080))
    """
    lines = (line.split("\t") for line in text.splitlines() if line.strip() and not line.startswith("#"))
    return tuple(Fork(int(fields[0]), parse_lsn(fields[1])) for fields in lines)


def next_timeline(forks: Sequence[Fork], timeline: int, newest: int) -> int:
    """Return the timeline that follows `timeline` on the way to `newest`. `forks` are the ancestors of `newest`."""
    ancestors = [*(fork.timeline for fork in forks), newest]
    return ancestors[ancestors.index(timeline) + 1]
