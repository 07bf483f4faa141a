"""What Raft's thread does when the disk is full."""

import logging
import sqlite3

import pytest

from node.storage.disk_full import is_full
from node.storage.reserve import LOG_AGAIN_S, RETRY_S, WaitForRoom

FULL = sqlite3.OperationalError("database or disk is full")


def test_the_reserve_is_released_first_and_then_it_waits_and_logs_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept, clock = [True], [100.0]
    told: list[int] = []
    slept: list[float] = []
    wait = WaitForRoom(
        lambda: kept.pop() if kept else False, lambda: told.append(1), slept.append, now_s=lambda: clock[0]
    )
    with caplog.at_level(logging.WARNING):
        assert wait(FULL)
        assert slept == []
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        for _ in range(3):
            assert wait(FULL)
        clock[0] += LOG_AGAIN_S
        assert wait(FULL)
    assert slept == [RETRY_S] * 4
    assert len(told) == 5
    assert [record.levelname for record in caplog.records] == ["WARNING", "ERROR", "ERROR"]


def test_a_full_database_is_told_from_a_broken_one() -> None:
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE t (x BLOB)")
    db.execute("PRAGMA max_page_count=2")
    with pytest.raises(sqlite3.OperationalError) as full:
        db.execute("INSERT INTO t VALUES (zeroblob(100000))")
    with pytest.raises(sqlite3.OperationalError) as other:
        db.execute("INSERT INTO nowhere VALUES (1)")
    assert (is_full(full.value), is_full(other.value), is_full(KeyError())) == (True, False, False)
