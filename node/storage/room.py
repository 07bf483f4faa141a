"""Decides what a node does when its disk has little space left. Pure.

The thresholds are multiples of the space reserved for the node's own records. With less than twice the reserve free,
the node claims no new runs, until three times the reserve is free again. With less than the reserve free, attempts that
hold space here are stopped, the largest first.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

Key = TypeVar("Key")

MIB: Final = 1024 * 1024
GIB: Final = 1024 * MIB

POLL_S: Final = 0.5
"""The longest interval between two measurements while attempts run on the node."""

POLL_S_MIN: Final = 0.05

IDLE_POLL_S: Final = 2.0
"""The longest interval between two measurements while no attempt runs here and there is ample space."""

_FILLED_BYTES_PER_S: Final = GIB
"""The bytes that one attempt can write in a second on a fast disk. The less space is free, the sooner to measure."""

_FILES_KEPT: Final = 1000
"""A file system with fewer free inodes than this counts as full, however many bytes are free."""

_HELD_BYTES_MIN: Final = 64 * 1024
"""An attempt that holds fewer bytes than this is not stopped to free space."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The configured limits on a node's use of its disk, in bytes. `on` adapts them to the size of a file system."""

    #: The space reserved for the node's own records.
    reserve_bytes: int = 256 * MIB
    #: The limit on the scratch folder of one attempt; 0: half of the file system.
    scratch_bytes: int = 0
    #: The limit on the log of one attempt.
    log_bytes: int = 64 * MIB
    #: The limit on the logs of all attempts together.
    logs_bytes: int = 16 * GIB
    #: The limit on the history.
    history_bytes: int = 4 * GIB

    def on(self, total_bytes: int) -> "Bounds":
        """Return the limits on a file system of this size: each is at most a certain fraction of it.

        >>> Bounds().on(16 * MIB) == Bounds(MIB, 8 * MIB, MIB, 2 * MIB, 4 * MIB)
        True
        """
        return Bounds(
            min(self.reserve_bytes, total_bytes // 16),
            self.scratch_bytes or total_bytes // 2,
            min(self.log_bytes, total_bytes // 16),
            min(self.logs_bytes, total_bytes // 8),
            min(self.history_bytes, total_bytes // 4),
        )


@dataclass(frozen=True, slots=True)
class Space:
    """The size and free space of a file system. `files_*` are its inodes; 0 if it does not count inodes."""

    total_bytes: int
    free_bytes: int
    files_total: int = 0
    files_free: int = 0


class Level(Enum):
    """How much space is left."""

    AMPLE = 0
    LOW = 1
    CRITICAL = 2


def level(space: Space, reserve_bytes: int, before: Level) -> Level:
    """Return the level now, given the level `before`. The way back from LOW to AMPLE needs a margin.

    >>> steps = [Space(1600, free) for free in (201, 199, 299, 99, 150, 300)]
    >>> found = [Level.AMPLE]
    >>> for space in steps:
    ...     found.append(level(space, 100, found[-1]))
    >>> [one.name for one in found[1:]]
    ['AMPLE', 'LOW', 'LOW', 'CRITICAL', 'LOW', 'AMPLE']
    """
    times = _times(space.free_bytes, reserve_bytes)
    if space.files_total:
        times = min(times, _times(space.files_free, min(_FILES_KEPT, space.files_total // 16)))
    if times < 1:
        return Level.CRITICAL
    if times < 2 or (before is not Level.AMPLE and times < 3):
        return Level.LOW
    return Level.AMPLE


def _times(free: int, kept: int) -> float:
    return free / kept if kept else 4.0


def poll_s(space: Space, reserve_bytes: int, *, idle: bool = False) -> float:
    """Return the seconds until the next measurement. `idle`: no attempt runs here, and there is ample space.

    Even an attempt that starts meanwhile and writes as fast as it can is noticed before it has used up the reserve.

    >>> poll_s(Space(10 * GIB, 5 * GIB), 0), poll_s(Space(GIB, 0), MIB)
    (0.5, 0.05)
    >>> poll_s(Space(10 * GIB, 5 * GIB), 0, idle=True), poll_s(Space(10 * GIB, GIB), 0, idle=True)
    (2.0, 1.0)
    """
    longest_s = IDLE_POLL_S if idle else POLL_S
    return max(POLL_S_MIN, min(longest_s, (space.free_bytes - reserve_bytes) / _FILLED_BYTES_PER_S))


def to_stop(held: Mapping[Key, int], missing_bytes: int) -> list[Key]:
    """Return the attempts to stop to free `missing_bytes`, the largest first. `held`: the bytes that each one holds.

    >>> to_stop({"a": 10**6, "b": 10**8, "c": 10**7, "d": 10}, 105 * 10**6)
    ['b', 'c']
    """
    chosen: list[Key] = []
    for key in sorted(held, key=lambda key: -held[key]):
        if missing_bytes <= 0 or held[key] < _HELD_BYTES_MIN:
            break
        chosen.append(key)
        missing_bytes -= held[key]
    return chosen


def size(count_bytes: float) -> str:
    """Format a number of bytes for display.

    >>> size(0), size(15 * 1024), size(14 * MIB), size(3 * GIB // 2)
    ('0 B', '15 KiB', '14 MiB', '1.5 GiB')
    """
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (1024, "KiB")):
        if count_bytes >= unit:
            return f"{count_bytes / unit:.3g} {name}"
    return f"{count_bytes:.0f} B"
