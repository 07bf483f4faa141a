"""Portions of history that one member asks another for: which stretch, and what came of it (pure)."""

from collections.abc import Sequence
from typing import NamedTuple

import msgpack


class Gap(NamedTuple):
    """The indexes `after < i <= through`, of which this member may have missed what ended."""

    after: int
    through: int


class Portion(NamedTuple):
    """All runs that ended under the indexes `after < i <= through`, each with its index, packed to be sent."""

    after: int
    through: int
    runs: tuple[tuple[int, bytes], ...]


def first_held(asked: Gap, written: int, missing: Sequence[Gap]) -> Gap | None:
    """The first stretch of somebody else's gap, `asked`, that a member knows whole; None if there is none.

    The member has written up to `written`, and itself lacks `missing`, in order.

    >>> first_held(Gap(0, 9), 7, [Gap(0, 2), Gap(2, 3), Gap(6, 8)])
    Gap(after=3, through=6)
    >>> first_held(Gap(0, 9), 7, []), first_held(Gap(0, 2), 7, [Gap(0, 5)])
    (Gap(after=0, through=7), None)
    """
    after, through = asked.after, min(asked.through, written)
    for own in missing:
        if own.after > after:
            through = min(through, own.after)
            break
        after = max(after, own.through)
    return Gap(after, through) if after < through else None


def left_of(gap: Gap, portion: Portion) -> tuple[Gap, ...]:
    """What is missing still once a portion is there. Raises `ValueError` if it is none of that gap.

    >>> left_of(Gap(0, 9), Portion(3, 6, ()))
    (Gap(after=0, through=3), Gap(after=6, through=9))
    """
    if not gap.after <= portion.after < portion.through <= gap.through:
        raise ValueError(f"{portion[:2]} is nothing of {gap}, which was asked for")
    rest = Gap(gap.after, portion.after), Gap(portion.through, gap.through)
    return tuple(one for one in rest if one.after < one.through)


def pack_portion(portion: Portion) -> bytes:
    """A portion as msgpack."""
    return bytes(msgpack.packb(portion))


def unpack_portion(packed: bytes) -> Portion:
    """What `pack_portion` packed. Raises `ValueError`."""
    after, through, runs = msgpack.unpackb(packed)
    if not isinstance(after, int) or not isinstance(through, int):
        raise ValueError("a portion of history is of indexes")  # noqa: TRY004 - it came over the wire
    return Portion(after, through, tuple((entry, run) for entry, run in runs))
