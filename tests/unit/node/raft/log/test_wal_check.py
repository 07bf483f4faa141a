"""The write-ahead log's own check, against files that SQLite wrote."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from node.raft.errors import DamagedData
from node.raft.log.journal import SqliteJournal
from node.raft.log.wal_check import lost_commits

FRAME = 24 + 4096
HEADER = 32


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of an older generation, partly overwritten by a newer one, as a killed process leaves it."""
    made, left = tmp_path / "made.sqlite", tmp_path / "left.sqlite"
    with closing(sqlite3.connect(made, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE t (x)")
        for generation in (40, 20):
            for _ in range(generation):
                db.execute("INSERT INTO t VALUES (zeroblob(100))")
            for suffix in ("", "-wal"):
                (tmp_path / f"left.sqlite{suffix}").write_bytes((tmp_path / f"made.sqlite{suffix}").read_bytes())
            db.execute("PRAGMA wal_checkpoint(RESTART)")
    return left.with_name("left.sqlite-wal")


def rows(log: Path) -> int:
    with closing(sqlite3.connect(log.with_name("left.sqlite"))) as db:
        [[count]] = db.execute("SELECT count(*) FROM t")
    return int(count)


def damage(log: Path, offset: int, data: bytes) -> None:
    with log.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def test_a_wal_left_by_a_killed_process_is_valid(log: Path, tmp_path: Path) -> None:
    assert lost_commits(log) == 0
    assert rows(log) == 60
    assert lost_commits(tmp_path / "none-wal") == 0
    (tmp_path / "empty-wal").touch()
    assert lost_commits(tmp_path / "empty-wal") == 0


@pytest.mark.parametrize("offset", [0, 4, 16, 100])
def test_a_damaged_frame_before_the_last_commit_is_detected(log: Path, offset: int) -> None:
    """The 11th of 20 commits: SQLite would drop it and the nine after it; the first may have been torn."""
    damage(log, HEADER + 10 * FRAME + offset, b"\xff\xfe\xfd\xfc")
    lost = lost_commits(log)
    assert rows(log) == 50, "this is what SQLite does with it"
    assert lost >= 8


@pytest.mark.parametrize("offset", [0, 9, 16, 26])
def test_a_damaged_header_is_detected(log: Path, offset: int) -> None:
    damage(log, offset, b"\xff\xfe")
    assert lost_commits(log) == 1
    assert rows(log) == 40


def test_a_torn_last_commit_is_accepted_as_a_power_cut(log: Path) -> None:
    damage(log, HEADER + 19 * FRAME + 50, b"\xff\xfe")
    assert lost_commits(log) == 0
    whole = HEADER + 19 * FRAME
    with log.open("r+b") as file:
        file.truncate(whole + 77)
    assert lost_commits(log) == 0


def test_a_journal_with_a_damaged_wal_is_refused_at_every_open(tmp_path: Path) -> None:
    """It is refused every time: opening the file must not drop the damage."""
    made = SqliteJournal(tmp_path / "j")
    for index in range(1, 21):
        made.add(b"x" * 100, index, 1)
        made.setCurrentTerm(index, None)
    for suffix in ("", "-wal"):
        (tmp_path / f"left{suffix}").write_bytes((tmp_path / f"j{suffix}").read_bytes())
    made.close()
    with (tmp_path / "left-wal").open("r+b") as file:
        file.seek((tmp_path / "left-wal").stat().st_size // 2)
        file.write(b"\xff" * 16)
    for _ in range(2):
        with pytest.raises(DamagedData, match="writes would be lost"):
            SqliteJournal(tmp_path / "left")
