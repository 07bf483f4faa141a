"""A journal whose disk is full keeps what was flushed before, and nothing after, or waits until there is space."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from node.raft.log.journal import SqliteJournal

KEPT = 20
LARGE = b"x" * 20_000


def filled(path: Path) -> SqliteJournal:
    """A journal of KEPT entries, on a disk without space for a large one."""
    journal = SqliteJournal(path)
    for index in range(1, KEPT + 1):
        journal.add(b"command", index, 1)
    journal.setCurrentTerm(7, "n2")
    [pages] = journal._db.execute("PRAGMA page_count").fetchone()
    journal._db.execute(f"PRAGMA max_page_count={pages}")
    return journal


def flushed(journal: SqliteJournal) -> None:
    journal.add(LARGE, KEPT + 1, 7)
    journal.add(LARGE, KEPT + 2, 7)
    journal.flush()


def truncated(journal: SqliteJournal) -> None:
    journal.add(LARGE, KEPT + 1, 7)
    journal.add(LARGE, KEPT + 2, 7)
    journal.deleteEntriesFrom(KEPT + 1)
    journal.flush()


def compacted(journal: SqliteJournal) -> None:
    journal.add(LARGE, KEPT + 1, 7)
    journal.add(LARGE, KEPT + 2, 7)
    journal.deleteEntriesTo(5)
    journal.flush()


@pytest.mark.parametrize("act", [flushed, truncated, compacted])
@pytest.mark.parametrize("room_again", [True, False])
def test_after_a_failed_write_nothing_more_is_written(
    tmp_path: Path, act: Callable[[SqliteJournal], None], room_again: bool
) -> None:
    journal = filled(tmp_path / "raft.sqlite")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        act(journal)
    if room_again:
        journal._db.execute("PRAGMA max_page_count=1000000")
    journal.add(b"small", KEPT + 3, 7)
    with pytest.raises(sqlite3.OperationalError, match="an earlier write of the journal failed"):
        journal.setCurrentTerm(8, "n3")
    journal.close()
    again = SqliteJournal(tmp_path / "raft.sqlite")
    assert [entry[1] for entry in again[:]] == list(range(1, KEPT + 1))
    assert (again.getCurrentTerm(), again.getVotedForNodeId()) == (7, "n2")
    again.close()


def full_of(journal: SqliteJournal) -> None:
    journal.add(LARGE, KEPT + 1, 7)
    journal.deleteEntriesFrom(10)
    journal.deleteEntriesTo(5)
    journal.add(LARGE, 11, 7)
    journal.set_note("cluster", "n1")


def test_a_full_disk_is_waited_for_and_then_everything_is_written(tmp_path: Path) -> None:
    journal = filled(tmp_path / "raft.sqlite")
    asked: list[str] = []

    def wait_for_room(error: Exception) -> bool:
        asked.append(str(error))
        if len(asked) == 3:
            journal._db.execute("PRAGMA max_page_count=1000000")
        return True

    journal.wait_for_room = wait_for_room
    full_of(journal)
    journal.flush()
    assert len(asked) == 3
    assert "full" in asked[0]
    journal.add(b"next", 12, 7)
    journal.flush()
    journal.close()
    again = SqliteJournal(tmp_path / "raft.sqlite")
    assert [entry[1] for entry in again[:]] == [*range(6, 11), 11, 12]
    assert (again.getCurrentTerm(), again.note("cluster"), again[5]) == (7, "n1", (LARGE, 11, 7))
    again.close()


def test_a_stopping_journal_does_not_wait_for_disk_space(tmp_path: Path) -> None:
    journal = filled(tmp_path / "raft.sqlite")
    waits = iter((True, True, False))
    journal.wait_for_room = lambda _error: next(waits)
    full_of(journal)
    with pytest.raises(sqlite3.OperationalError, match="full"):
        journal.flush()
    journal.close()
    again = SqliteJournal(tmp_path / "raft.sqlite")
    assert [entry[1] for entry in again[:]] == list(range(1, KEPT + 1))
    again.close()
