"""The store of finished runs."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from node.cli.local import wait_for
from node.duty.digests import RunTally
from node.history.database import DELETE_BATCH, TALLY_BATCH
from node.history.file import DamagedHistory, RunPosition, conditions
from node.history.store import HistoryStore
from node.peer.portions import Gap
from node.state.value import Attempt, EndedRun, Run, Series
from tasks.definition.spec import Spec

PACKED = Spec.model_validate({"name": "orders", "kind": "command"}).pack()


def ended(number: int, task: str = "orders", node: str = "a", state: str = "succeeded") -> EndedRun:
    attempt = Attempt(1, node, 1, number, "running", number)
    run = Run(f"{task}~{number}", task, "manual", number, PACKED, "running", number, attempts=(attempt,))
    return EndedRun(run, state, number + 1, {"rows": number})  # type: ignore[arg-type]


@pytest.fixture
def history(tmp_path: Path) -> Iterator[HistoryStore]:
    opened = HistoryStore(tmp_path / "history.db")
    yield opened
    opened.close()


def ids(found: object) -> list[str]:
    return [one.run.run_id for one in found]  # type: ignore[attr-defined]


def test_recorded_runs_are_read_at_once_newest_first(history: HistoryStore) -> None:
    history.record(3, [(1, ended(1)), (2, ended(2)), (3, ended(3))])
    assert ids(history.runs(None, None, None, None, 10)) == ["orders~3", "orders~2", "orders~1"]
    assert history.run("orders~2") == ended(2)
    assert history.run("orders~9") is None


def test_lists_are_filtered_and_continue_from_a_position(history: HistoryStore) -> None:
    history.record(4, [(1, ended(1)), (2, ended(2, "other")), (3, ended(3, state="failed")), (4, ended(4, node="b"))])
    assert ids(history.runs("orders", None, None, None, 10)) == ["orders~4", "orders~3", "orders~1"]
    assert ids(history.runs(None, "failed", None, None, 10)) == ["orders~3"]
    assert ids(history.runs(None, None, "b", None, 10)) == ["orders~4"]
    assert ids(history.runs(None, None, None, RunPosition(3, "orders~3"), 1)) == ["other~2"]


def test_a_tally_counts_what_entries_after_an_index_ended(history: HistoryStore) -> None:
    past = ended(4)
    past = replace(past, run=replace(past.run, backfill=3))
    action = ended(5)
    action = replace(action, run=replace(action.run, action="preview"))
    failed = [(6, ended(6, "other", state="failed")), (6, ended(7, "other", state="failed"))]
    history.record(6, [(1, ended(1)), (2, ended(2)), (3, ended(3)), (4, past), (5, action), *failed])
    found = history.tally(1, 0)
    assert found.ends == {("orders", "succeeded"): 3, ("other", "failed"): 2}
    assert (found.through, found.backfilled, found.complete) == (6, 1, True)
    assert history.tally(6, 0).ends == {}
    history.jumped(9)
    assert (history.tally(6, 0).complete, history.tally(9, 0).complete) == (False, True)
    assert history.tally(20, 0) == RunTally(20, {}, complete=False), "this member is behind"


def test_a_tally_reads_many_runs_in_portions(history: HistoryStore) -> None:
    many = 2 * TALLY_BATCH + 7
    # Entries that end several runs are cut between portions.
    history.record(many, [(number // 3 + 1, ended(number)) for number in range(many)])
    assert history.tally(0, 0).ends == {("orders", "succeeded"): many}


def test_a_tally_counts_occurrences_that_were_passed_over(history: HistoryStore) -> None:
    history.record(9, [series(1, 5)])
    [(_, passed)] = [series(1, 5)]
    assert passed.series is not None
    assert history.tally(0, 0).ends == {(passed.run.task, passed.state): passed.series.count}


def test_replayed_entries_change_nothing(tmp_path: Path) -> None:
    for _ in range(2):
        history = HistoryStore(tmp_path / "history.db")
        history.record(2, [(1, ended(1)), (2, ended(2))])
        history.close()
    history = HistoryStore(tmp_path / "history.db")
    assert history.written == 2
    assert ids(history.runs(None, None, None, None, 10)) == ["orders~2", "orders~1"]
    assert history.gaps() == ()
    history.close()


def test_old_runs_are_deleted(history: HistoryStore) -> None:
    history.record(2, [(1, ended(1)), (2, ended(100))])
    history.flush()
    history.delete_older(60, 50)
    assert ids(history.runs(None, None, None, None, 10)) == ["orders~100"]


def test_a_damaged_file_is_set_aside_and_its_content_is_a_gap(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rubbish = b"no database at all, and long enough to be read as one" * 100
    (tmp_path / "history.db").write_bytes(rubbish)
    history = HistoryStore(tmp_path / "history.db")
    assert (tmp_path / "history.db.damaged-1").read_bytes() == rubbish
    assert "kept as history.db.damaged-1; its runs are fetched from the other members" in caplog.text
    history.jumped(7)  # what Raft has in its snapshot
    assert history.gaps() == (Gap(0, 7),)
    history.close()


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE ended SET packed = CAST(substr(packed, 1, length(packed) - 1) || x'00' AS BLOB) WHERE entry = 2",
        "UPDATE gap SET after = 1",
        "UPDATE written SET entry = 99",
        "DELETE FROM written",
    ],
)
def test_a_changed_row_is_found_when_it_is_read(tmp_path: Path, sql: str) -> None:
    failures: list[Exception] = []
    history = HistoryStore(tmp_path / "history.db", failures.append)
    history.record(3, [(1, ended(1)), (2, ended(2))])
    history.jumped(5)
    history.close()
    with closing(sqlite3.connect(tmp_path / "history.db")) as db:
        db.execute(sql)
        db.commit()
    history = HistoryStore(tmp_path / "history.db", failures.append)
    if not (tmp_path / "history.db.damaged-1").exists():  # found at the start: how far it reaches
        with pytest.raises(sqlite3.DatabaseError, match="a row differs from what was written"):
            history.gaps(), history.runs(None, None, None, None, 10)
        assert ["kept as history.db.damaged-1: restart this node" in str(error) for error in failures] == [True]
    history.close()
    history = HistoryStore(tmp_path / "history.db", failures.append)
    assert (history.written, history.gaps(), history.runs(None, None, None, None, 10)) == (0, (), [])
    history.close()


def damage_a_page_number(path: Path) -> None:
    """Let the root of the runs name a page that no file has, for the runs that ended first."""
    with closing(sqlite3.connect(path)) as db:
        [(root,)] = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'ended'").fetchall()
        page_bytes = db.execute("PRAGMA page_size").fetchone()[0]
    with path.open("r+b") as file:
        file.seek((root - 1) * page_bytes + 12)  # the place of the first cell, after the header
        file.seek((root - 1) * page_bytes + int.from_bytes(file.read(2), "big"))
        file.write(b"\xc8\x59\x7a\xdd")


@pytest.mark.parametrize("damaged", [True, False])
def test_an_error_of_a_full_disk_where_the_disk_has_room_is_damage_if_the_file_is_damaged(
    tmp_path: Path, damaged: bool
) -> None:
    """SQLite reports a full disk also for a damaged page number that is greater than any may be."""
    path, failures = tmp_path / "history.db", list[Exception]()
    history = HistoryStore(path)
    history.record(500, [(number, ended(number)) for number in range(1, 500)])
    history.close()
    if damaged:
        damage_a_page_number(path)
    history = HistoryStore(path, failures.append)
    database = history._database
    with database.lock:
        pages = database.connection.execute("PRAGMA page_count").fetchone()[0]
        database.connection.execute(f"PRAGMA max_page_count={pages}")
    history.record(1000, [(number, ended(number)) for number in range(501, 1000)])
    if damaged:
        wait_for("the damage is reported", lambda: failures)
        assert "is damaged (database or disk is full), and is kept as history.db.damaged-1: res" in str(failures[0])
    else:
        assert ids(history.runs(None, None, None, None, 1)) == ["orders~999"], "it is read from memory"
        assert failures == []
    history.close()


def test_a_damaged_file_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    failures: list[Exception] = []
    history = HistoryStore(tmp_path / "history.db", failures.append)
    history._report(sqlite3.DatabaseError("database disk image is malformed"))
    history._database.connection.close()
    history._database.connection = sqlite3.connect(":memory:")  # where nothing can be written
    history.record(1, [(1, ended(1))])
    history.close()
    assert len(failures) == 1
    assert "could not be written" not in caplog.text


def test_a_file_that_cannot_be_opened_is_not_set_aside(tmp_path: Path) -> None:
    (tmp_path / "history.db").mkdir()
    with pytest.raises(DamagedHistory, match="check the free space on its disk, and its permissions"):
        HistoryStore(tmp_path / "history.db")
    assert (tmp_path / "history.db").is_dir()


class Failing:
    """A connection whose disk can be full."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.full = True

    def executemany(self, *args: object) -> object:
        if self.full:
            raise sqlite3.OperationalError("database or disk is full")
        return self._db.executemany(*args)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> object:
        return getattr(self._db, name)


def test_runs_that_cannot_be_written_are_kept_in_memory(history: HistoryStore) -> None:
    history._database.connection = disk = Failing(history._database.connection)  # type: ignore[assignment]
    with history._database.lock:  # not the thread's turn
        history.record(1, [(1, ended(1))])
    with pytest.raises(sqlite3.OperationalError):
        history.flush()
    disk.full = False
    history.record(2, [(2, ended(2))])
    assert ids(history.runs(None, None, None, None, 10)) == ["orders~2", "orders~1"]
    assert history.written == 2


@contextmanager
def no_room(history: HistoryStore) -> Iterator[None]:
    """A full disk, as SQLite sees it: the file may get no further pages."""
    history.flush()
    try:
        with history._database.lock:
            pages = history._database.connection.execute("PRAGMA page_count").fetchone()[0]
            history._database.connection.execute(f"PRAGMA max_page_count={pages}")
        yield
    finally:
        with history._database.lock:
            history._database.connection.execute("PRAGMA max_page_count=1000000")


MANY = 2000
"""More runs than fit into the pages of the file."""


def test_recorded_runs_are_read_while_the_disk_is_full(history: HistoryStore, caplog: pytest.LogCaptureFixture) -> None:
    history.record(2, [series(1, 1), (2, ended(2))])
    with no_room(history):
        history.record(MANY + 1, [series(3, 4), *((number, ended(number)) for number in range(4, MANY))])
        history.record(MANY + 2, [(MANY + 1, ended(MANY + 1, "other", "b", "failed"))])
        history.jumped(MANY + 9)
        with pytest.raises(sqlite3.OperationalError, match="full"):
            history.flush()
        assert ids(history.runs(None, None, None, None, 2)) == [f"other~{MANY + 1}", f"orders~{MANY - 1}"]
        assert ids(history.runs("orders", None, "a", RunPosition(6, "orders~6"), 10)) == [
            "orders~5",
            "orders~4",
            "orders~2",
        ]
        assert ids(history.runs(None, "failed", None, None, 10)) == ids(history.runs(None, None, "b", None, 10))
        assert counts(history) == [(3, 4)]
        assert history.run("orders~2") == ended(2)
        assert history.run("orders~7") == ended(7)
        assert history.run("none") is None
        assert history.gaps() == ()
        sent = history.export(Gap(0, MANY))
        assert sent is not None
        assert sent.through == 2, "runs that are not written here are not exported"
        whole = ids(history.runs(None, None, None, None, 2 * MANY))
        wait_for("the writer thread logs it", lambda: "they are kept in memory until they can" in caplog.text)
        assert "Delete something on the file system of ROTA_DATA" in caplog.text
    assert ids(history.runs(None, None, None, None, 2 * MANY)) == whole
    assert len(whole) == MANY - 1
    assert history.written == MANY + 9


def test_a_gap_is_recorded_in_order_without_waiting_for_the_disk(history: HistoryStore) -> None:
    history.record(3, [(3, ended(3))])
    with history._database.lock:  # the disk is busy
        history.jumped(7)
        history.record(8, [(8, ended(8))])
    assert history.gaps() == (Gap(3, 7),)
    assert ids(history.runs(None, None, None, None, 10)) == ["orders~8", "orders~3"]


FILTERS = [
    (task, state, node)
    for task in (None, "orders", "other", "none")
    for state in (None, "succeeded", "failed", "cancelled")
    for node in (None, "a", "b", "z")
]


def test_every_filter_finds_its_runs_by_an_index(history: HistoryStore, tmp_path: Path) -> None:
    every = [
        ended(
            number,
            "orders" if number % 3 else "other",
            "a" if number % 2 else "b",
            "failed" if number % 5 else "succeeded",
        )
        for number in range(1, 60)
    ]
    history.record(len(every), list(enumerate(every, 1)))
    for task, state, node in FILTERS:
        expected = [
            one.run.run_id
            for one in reversed(every)
            if task in (None, one.run.task) and state in (None, one.state) and node in (None, one.run.attempts[0].node)
        ]
        assert ids(history.runs(task, state, node, None, 100)) == expected, (task, state, node)
    # Where none is left to be found, SQLite must not go through all there are.
    with sqlite3.connect(tmp_path / "history.db") as db:
        for task, state, node in FILTERS:
            where = " AND ".join(conditions(task, state, node)) or "1"
            query = (
                f"EXPLAIN QUERY PLAN SELECT packed FROM ended WHERE {where} ORDER BY created_at_us DESC, run_id DESC"
            )
            [plan] = db.execute(query, {"task": task, "state": state, "node": node}).fetchall()
            assert " INDEX ended_by_" in plan[3], (task, state, node, plan[3])
            if (task, node) != (None, None) or state not in (None, "succeeded"):
                assert plan[3].startswith("SEARCH"), (task, state, node, plan[3])


def test_many_old_runs_are_deleted_and_the_others_kept(history: HistoryStore) -> None:
    count = 2 * DELETE_BATCH + 5
    history.record(count, [(number, ended(number)) for number in range(1, count + 1)])
    history.flush()
    history.delete_older(count, count - 1)  # what finished before then; each finishes a microsecond after it was made
    assert ids(history.runs(None, None, None, None, 10)) == [f"orders~{count - number}" for number in range(3)]


def series(entry: int, count: int, task: str = "orders") -> tuple[int, EndedRun]:
    """The record of a continued series, from one entry."""
    run = Run(f"{task}~first", task, "schedule", 5, PACKED, "skipped", 7)
    return entry, EndedRun(run, "skipped", entry, series=Series("skipped", 7, 5, entry, count, "orders~1"))


def counts(history: HistoryStore) -> list[tuple[int, int]]:
    return [
        (one.finished_at_us, one.series.count)
        for one in history.runs(None, "skipped", None, None, 10)
        if one.series is not None
    ]


def test_a_continued_series_stays_one_record(history: HistoryStore) -> None:
    history.record(30, [series(10, 1), series(11, 2), (12, ended(12))])
    assert counts(history) == [(11, 2)]
    history.record(40, [series(31, 3), series(32, 1, "other")])
    assert counts(history) == [(32, 1), (31, 3)]
    assert history.run("orders~first") == series(31, 3)[1]
    assert len(history.runs(None, None, None, None, 10)) == 3


def test_another_members_record_of_a_series_does_not_replace_a_newer_one(tmp_path: Path) -> None:
    mine, others = HistoryStore(tmp_path / "mine.db"), HistoryStore(tmp_path / "others.db")
    others.record(10, [series(10, 1)])
    asked = Gap(0, 20)
    old = others.export(asked)
    assert old is not None
    mine.jumped(20)
    mine.record(30, [series(30, 5)])
    mine.flush()
    mine.fill(asked, old)
    assert counts(mine) == [(30, 5)]
    others.record(40, [series(35, 9)])
    new = others.export(Gap(30, 40))
    assert new is not None
    mine.jumped(40)
    mine.flush()
    mine.fill(Gap(30, 40), new)
    assert counts(mine) == [(35, 9)]
    mine.close()
    others.close()


def test_trimming_deletes_the_oldest_runs_and_shrinks_the_file(tmp_path: Path) -> None:
    history = HistoryStore(tmp_path / "history.db")
    history.record(5000, [(number, ended(number)) for number in range(1, 5001)])
    history.flush()
    full = history.used_bytes
    assert history.trim(full) == (0, 0)
    cut, through_us = history.trim(full // 2)
    assert cut % DELETE_BATCH == 0
    assert through_us == cut + 1
    assert history.used_bytes < full // 2
    assert ids(history.runs(None, None, None, None, 1)) == ["orders~5000"]
    assert history.run(f"orders~{cut}") is None
    assert history.run(f"orders~{cut + 1}") is not None
    history.close()
    assert (tmp_path / "history.db").stat().st_size < full // 2 + 100_000
