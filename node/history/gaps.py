"""What is missing of a member's history: the table of gaps. Other members send it in portions (`node.peer.portions`).

A gap need not be filled by one member, nor be filled ever: where some of it is known to nobody any more, each stretch
that is known to somebody is fetched, and the rest given up when it would be forgotten anyway.

What changes the table of gaps is called within a transaction.
"""

import sqlite3
from collections.abc import Iterable
from contextlib import closing

from node.history.file import checked, crc
from node.peer.portions import Gap


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
