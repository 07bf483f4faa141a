"""What is missing of a member's history, and the portions in which other members send it.

A gap need not be filled by one member, nor be filled ever: where some of it is known to nobody any more, each stretch
that is known to somebody is fetched, and the rest given up when it would be forgotten anyway.

What changes the table of gaps is called within a transaction.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import NamedTuple

import msgpack

from node.history.file import checked, crc


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


def known(db: sqlite3.Connection) -> tuple[Gap, ...]:
    """All gaps, oldest first."""
    return tuple(gap for gap, _ in _rows(db))


def add(db: sqlite3.Connection, gaps: Iterable[Gap], noted_us: int = 0) -> None:
    """There are these gaps, noted at a time if that is known."""
    rows = [(*gap, noted_us) for gap in gaps]
    db.executemany("INSERT INTO gap VALUES (?, ?, ?, ?)", [(*row, crc(*row)) for row in rows])


def put_in_place(db: sqlite3.Connection, gap: Gap, others: Iterable[Gap]) -> None:
    """In the place of a gap there are others, as old; none if that gap has been given up meanwhile."""
    for noted_us in [noted_us for one, noted_us in _rows(db) if one == gap]:
        db.execute("DELETE FROM gap WHERE after = ? AND through = ?", gap)
        add(db, others, noted_us)


def cut(db: sqlite3.Connection, index: int) -> None:
    """Nothing after `index` is missing: there has been nothing yet."""
    for gap in known(db):
        if gap.through > index:
            put_in_place(db, gap, [Gap(gap.after, index)] if gap.after < index else [])


def give_up(db: sqlite3.Connection, at_us: int, before_us: int) -> None:
    """At `at_us`, do without the gaps in which all that ended did so before `before_us`.

    A gap that was noted before then is sure to be one. When a gap comes to be, the time may not be known: the first
    call notes it.
    Not by the times of later runs: a node whose clock was wrong, and nobody there to say so, may have stamped them.
    """
    for gap, noted_us in _rows(db):
        if not noted_us:
            put_in_place(db, gap, [])
            add(db, [gap], at_us)
        elif noted_us < before_us:
            put_in_place(db, gap, [])


def _rows(db: sqlite3.Connection) -> list[tuple[Gap, int]]:
    with closing(db.execute("SELECT after, through, noted_us, crc FROM gap ORDER BY after")) as rows:
        return [(Gap(after, through), noted_us) for after, through, noted_us in map(checked, rows)]


def pack_portion(portion: Portion) -> bytes:
    """A portion as msgpack."""
    return bytes(msgpack.packb(portion))


def unpack_portion(packed: bytes) -> Portion:
    """What `pack_portion` packed. Raises `ValueError`."""
    after, through, runs = msgpack.unpackb(packed)
    if not isinstance(after, int) or not isinstance(through, int):
        raise ValueError("a portion of history is of indexes")  # noqa: TRY004 - it came over the wire
    return Portion(after, through, tuple((entry, run) for entry, run in runs))
