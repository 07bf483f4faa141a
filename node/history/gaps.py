"""The table of gaps in a member's history. Other members send the missing runs in portions (`node.peer.portions`).

Several members may fill one gap. A part that no member has any more is given up when its runs would be deleted anyway.

Functions that change the table are called within a transaction.
"""

import sqlite3
from collections.abc import Iterable
from contextlib import closing

from node.history.file import crc, verified_row
from node.peer.portions import Gap


def all_gaps(db: sqlite3.Connection) -> tuple[Gap, ...]:
    """Return all gaps, oldest first."""
    return tuple(gap for gap, _ in _rows(db))


def add(db: sqlite3.Connection, gaps: Iterable[Gap], noted_us: int = 0) -> None:
    """Add gaps. `noted_us`: when they were found, in microseconds; 0: the time is unknown."""
    rows = [(*gap, noted_us) for gap in gaps]
    db.executemany("INSERT INTO gap VALUES (?, ?, ?, ?)", [(*row, crc(*row)) for row in rows])


def replace_gap(db: sqlite3.Connection, gap: Gap, others: Iterable[Gap]) -> None:
    """Replace a gap by others of the same age. If that gap has been given up meanwhile, add no gap."""
    for noted_us in [noted_us for one, noted_us in _rows(db) if one == gap]:
        db.execute("DELETE FROM gap WHERE after = ? AND through = ?", gap)
        add(db, others, noted_us)


def truncate_after(db: sqlite3.Connection, index: int) -> None:
    """Delete the gaps after `index`, because the log ends there."""
    for gap in all_gaps(db):
        if gap.through > index:
            replace_gap(db, gap, [Gap(gap.after, index)] if gap.after < index else [])


def give_up(db: sqlite3.Connection, at_us: int, before_us: int) -> None:
    """At `at_us`, delete the gaps noted before `before_us`, since all their runs ended before that time.

    If it is not known when a gap was found, the first call notes `at_us` for it. The times of later runs are not used,
    since a member with a wrong clock may have set them.
    """
    for gap, noted_us in _rows(db):
        if not noted_us:
            replace_gap(db, gap, [])
            add(db, [gap], at_us)
        elif noted_us < before_us:
            replace_gap(db, gap, [])


def _rows(db: sqlite3.Connection) -> list[tuple[Gap, int]]:
    with closing(db.execute("SELECT after, through, noted_us, crc FROM gap ORDER BY after")) as rows:
        return [(Gap(after, through), noted_us) for after, through, noted_us in map(verified_row, rows)]
