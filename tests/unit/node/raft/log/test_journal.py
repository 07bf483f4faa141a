"""The journal keeps what was flushed, and detects damage."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from node.raft.errors import DamagedData
from node.raft.log.journal import CUT_ROWS, PROBE_TIMER_S, SqliteJournal

NAME = "raft.sqlite"


def filled(path: Path, count: int = 20) -> SqliteJournal:
    journal = SqliteJournal(path)
    for index in range(1, count + 1):
        journal.add(b"command %d" % index, index, 1 + index // 10)
    journal.setCurrentTerm(7, "n2")
    return journal


def test_flushed_entries_are_read_after_reopening(tmp_path: Path) -> None:
    journal = filled(tmp_path / NAME)
    journal.setRaftCommitIndex(18)
    journal.close()
    again = SqliteJournal(tmp_path / NAME)
    assert again[:] == journal[:]
    assert (again.getCurrentTerm(), again.getVotedForNodeId(), again.getRaftCommitIndex()) == (7, "n2", 18)
    assert again.bytes == sum(len(entry[0]) for entry in again[:])
    again.close()


def test_a_vote_is_synced_on_return_and_entries_on_flush(tmp_path: Path) -> None:
    journal = filled(tmp_path / NAME)
    journal.add(b"flushed", 21, 3)
    journal.flush()
    journal.add(b"not flushed", 22, 3)
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in tmp_path.glob(NAME + "*"):  # as a crash leaves it
        (copy / file.name).write_bytes(file.read_bytes())
    found = SqliteJournal(copy / NAME)
    assert (found.last_index, found.getVotedForNodeId()) == (21, "n2")
    found.close()
    journal.close()


def test_a_leader_flushes_before_counting_itself_towards_a_commit(tmp_path: Path) -> None:
    journal = filled(tmp_path / NAME)
    journal.add(b"proposed", 21, 7)
    journal.setRaftCommitIndex(21)
    assert not journal._added
    journal.close()


def test_an_idle_journal_is_written_now_and_then_so_that_a_hung_disk_is_noticed(tmp_path: Path) -> None:
    journal = filled(tmp_path / NAME)
    flushes = []
    for _ in range(3 * PROBE_TIMER_S):
        journal.onOneSecondTimer()
        flushes.append(journal.flushes)
    assert flushes[0] == flushes[PROBE_TIMER_S - 2] < flushes[PROBE_TIMER_S] < flushes[-1] == flushes[0] + 2
    journal.close()


def test_removals_at_both_ends_are_persisted(tmp_path: Path) -> None:
    journal = filled(tmp_path / NAME)
    told: list[int] = []
    journal.on_truncate = lambda entries: told.extend(entry[1] for entry in entries)
    journal.deleteEntriesFrom(15)
    journal.deleteEntriesTo(5)
    journal.add(b"another", 16, 4)
    journal.close()
    assert told == [16, 17, 18, 19, 20]
    again = SqliteJournal(tmp_path / NAME)
    assert (again.first_index, again.last_index, again.term_at(16), len(again)) == (6, 16, 4, 11)
    again.close()


def test_compacted_entries_are_deleted_in_batches_with_each_flush(tmp_path: Path) -> None:
    def rows() -> int:
        return int(journal._db.execute("SELECT count(*) FROM entries").fetchone()[0])

    journal = SqliteJournal(tmp_path / NAME)
    for index in range(1, 3 * CUT_ROWS + 11):
        journal.add(b"command", index, 1)
    journal.setCurrentTerm(1, None)
    journal.deleteEntriesTo(3 * CUT_ROWS)
    assert (len(journal), rows()) == (10, 3 * CUT_ROWS + 10)
    journal.flush()
    assert rows() == 2 * CUT_ROWS + 10
    journal._db.close()
    journal = SqliteJournal(tmp_path / NAME)
    assert (journal.first_index, len(journal)) == (3 * CUT_ROWS + 1, 10)
    for left in (CUT_ROWS + 10, 10, 10):
        journal.onOneSecondTimer()
        assert rows() == left
    assert journal.flushes == 5
    journal.close()


def test_the_entries_kept_before_a_snapshot_are_limited_in_count_and_bytes(tmp_path: Path) -> None:
    journal = filled(tmp_path / NAME)
    assert journal.reaching_back(15, 4, 1_000) == 11
    assert journal.reaching_back(15, 100, 25) == 13
    assert journal.reaching_back(15, 100, 10_000) == 1
    journal.close()


def spoil(sql: str) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        db = sqlite3.connect(path)
        db.execute(sql)
        db.commit()
        db.close()

    return change


def overwrite(start: int, data: bytes) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[start : start + len(data)] = data
        path.write_bytes(content)

    return change


@pytest.mark.parametrize(
    "change",
    [
        spoil("UPDATE entries SET command = x'00' WHERE idx = 7"),
        spoil("UPDATE entries SET term = 9 WHERE idx = 7"),
        spoil("UPDATE meta SET value = '3' WHERE key = 'term'"),
        spoil("DELETE FROM entries WHERE idx = 7"),
        spoil("DELETE FROM meta WHERE key = 'term'"),
        overwrite(0, b"not a database at all"),
        overwrite(4096, bytes(4096)),
        overwrite(36, b"\0\0\0\7"),  # how many pages are free: found when they are to be used, if not before
        lambda path: path.write_bytes(path.read_bytes()[:5000]),
    ],
)
def test_a_damaged_journal_is_refused_and_the_error_says_what_to_do(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    filled(tmp_path / NAME).close()
    change(tmp_path / NAME)
    with pytest.raises(DamagedData, match=r"raft\.sqlite.*put back a copy"):
        SqliteJournal(tmp_path / NAME).close()
