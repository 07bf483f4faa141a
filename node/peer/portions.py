"""Portions of history that one member requests from another, and the gaps that they fill. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

import msgpack


class Gap(NamedTuple):
    """The indexes `after < i <= through`, of which a member may lack finished runs."""

    after: int
    through: int


class Portion(NamedTuple):
    """All runs that ended at log indexes `after < i <= through`, each with its index, packed for sending."""

    after: int
    through: int
    runs: tuple[tuple[int, bytes], ...]


def first_held(asked: Gap, written: int, missing: Sequence[Gap]) -> Gap | None:
    """Return the first range of another member's gap, `asked`, of which this member has every run, or None.

    This member has written up to the index `written`, except for its own gaps `missing`, in order.

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


def remaining(gap: Gap, portion: Portion) -> tuple[Gap, ...]:
    """Return the gaps that remain once a portion is added. Raises `ValueError` if the portion is outside of the gap.

    >>> remaining(Gap(0, 9), Portion(3, 6, ()))
    (Gap(after=0, through=3), Gap(after=6, through=9))
    """
    if not gap.after <= portion.after < portion.through <= gap.through:
        raise ValueError(f"the portion {portion[:2]} is outside of the requested gap {gap}")
    rest = Gap(gap.after, portion.after), Gap(portion.through, gap.through)
    return tuple(one for one in rest if one.after < one.through)


def pack_portion(portion: Portion) -> bytes:
    """Return a portion as msgpack."""
    return bytes(msgpack.packb(portion))


def unpack_portion(packed: bytes) -> Portion:
    """Return the portion that `pack_portion` packed. Raises `ValueError`."""
    after, through, runs = msgpack.unpackb(packed)
    if not isinstance(after, int) or not isinstance(through, int):
        raise ValueError("the bounds of a portion must be indexes")  # noqa: TRY004 - it came over the wire
    return Portion(after, through, tuple((entry, run) for entry, run in runs))
