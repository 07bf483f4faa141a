"""Finished runs: DESIGN.md, section 5."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from node.cli.local import wait_for
from node.history.file import DamagedHistory
from node.history.filters import terms
from node.history.store import FORGET_AT_ONCE, Before, HistoryStore
from node.peer.portions import Gap
from node.state.value import Attempt, EndedRun, Run, Series
from tasks.spec import Spec

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


def test_what_was_recorded_is_read_at_once_newest_first(history: HistoryStore) -> None:
    history.record(3, [(1, ended(1)), (2, ended(2)), (3, ended(3))])
    assert ids(history.runs(None, None, None, None, 10)) == ["orders~3", "orders~2", "orders~1"]
    assert history.run("orders~2") == ended(2)
    assert history.run("orders~9") is None


def test_lists_are_filtered_and_go_on_from_a_place(history: HistoryStore) -> None:
    history.record(4, [(1, ended(1)), (2, ended(2, "other")), (3, ended(3, state="failed")), (4, ended(4, node="b"))])
    assert ids(history.runs("orders", None, None, None, 10)) == ["orders~4", "orders~3", "orders~1"]
    assert ids(history.runs(None, "failed", None, None, 10)) == ["orders~3"]
    assert ids(history.runs(None, None, "b", None, 10)) == ["orders~4"]
    assert ids(history.runs(None, None, None, Before(3, "orders~3"), 1)) == ["other~2"]


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


def test_what_is_too_old_is_forgotten(history: HistoryStore) -> None:
    history.record(2, [(1, ended(1)), (2, ended(100))])
    history.flush()
    history.forget(60, 50)
    assert ids(history.runs(None, None, None, None, 10)) == ["orders~100"]


def test_a_damaged_file_is_set_aside_and_what_was_in_it_is_a_gap(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rubbish = b"no database at all, and long enough to be read as one" * 100
    (tmp_path / "history.db").write_bytes(rubbish)
    history = HistoryStore(tmp_path / "history.db")
    assert (tmp_path / "history.db.damaged-1").read_bytes() == rubbish
    assert "kept as history.db.damaged-1; the other members are asked" in caplog.text
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
def test_a_row_that_is_not_what_was_written_is_found_when_it_is_read(tmp_path: Path, sql: str) -> None:
    told: list[Exception] = []
    history = HistoryStore(tmp_path / "history.db", told.append)
    history.record(3, [(1, ended(1)), (2, ended(2))])
    history.jumped(5)
    history.close()
    with closing(sqlite3.connect(tmp_path / "history.db")) as db:
        db.execute(sql)
        db.commit()
    history = HistoryStore(tmp_path / "history.db", told.append)
    if not (tmp_path / "history.db.damaged-1").exists():  # found at the start: how far it reaches
        with pytest.raises(sqlite3.DatabaseError, match="a row is not what was written"):
            history.gaps(), history.runs(None, None, None, None, 10)
        assert ["kept as history.db.damaged-1: start this node again" in str(error) for error in told] == [True]
    history.close()
    history = HistoryStore(tmp_path / "history.db", told.append)
    assert (history.written, history.gaps(), history.runs(None, None, None, None, 10)) == (0, (), [])
    history.close()


def test_what_is_known_to_be_damaged_is_not_told_of_again_at_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Exception] = []
    history = HistoryStore(tmp_path / "history.db", told.append)
    history._found_damaged(sqlite3.DatabaseError("database disk image is malformed"))
    history._db.close()
    history._db = sqlite3.connect(":memory:")  # where nothing can be written
    history.record(1, [(1, ended(1))])
    history.close()
    assert len(told) == 1
    assert "could not be written" not in caplog.text


def test_a_file_that_cannot_be_opened_is_not_taken_for_a_damaged_one(tmp_path: Path) -> None:
    (tmp_path / "history.db").mkdir()
    with pytest.raises(DamagedHistory, match="see to the room on its disk, and to its permissions"):
        HistoryStore(tmp_path / "history.db")
    assert (tmp_path / "history.db").is_dir()


class Failing:
    """A disk that can be full: stands in for the connection that writes."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.full = True

    def executemany(self, *args: object) -> object:
        if self.full:
            raise sqlite3.OperationalError("database or disk is full")
        return self._db.executemany(*args)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> object:
        return getattr(self._db, name)


def test_what_cannot_be_written_is_kept_until_it_can(history: HistoryStore) -> None:
    history._db = disk = Failing(history._db)  # type: ignore[assignment]
    with history._file:  # not the thread's turn
        history.record(1, [(1, ended(1))])
    with pytest.raises(sqlite3.OperationalError):
        history.flush()
    disk.full = False
    history.record(2, [(2, ended(2))])
    assert ids(history.runs(None, None, None, None, 10)) == ["orders~2", "orders~1"]
    assert history.written == 2


@contextmanager
def no_room(history: HistoryStore) -> Iterator[None]:
    """A disk that is full, as SQLite sees it: the file may hold no page more than it does."""
    history.flush()
    try:
        with history._file:
            pages = history._db.execute("PRAGMA page_count").fetchone()[0]
            history._db.execute(f"PRAGMA max_page_count={pages}")
        yield
    finally:
        with history._file:
            history._db.execute("PRAGMA max_page_count=1000000")


MANY = 2000
"""Of so many runs not all find room in the pages that there are."""


def test_while_there_is_no_room_what_was_recorded_is_read_all_the_same(
    history: HistoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    history.record(2, [series(1, 1), (2, ended(2))])
    with no_room(history):
        history.record(MANY + 1, [series(3, 4), *((number, ended(number)) for number in range(4, MANY))])
        history.record(MANY + 2, [(MANY + 1, ended(MANY + 1, "other", "b", "failed"))])
        history.jumped(MANY + 9)
        with pytest.raises(sqlite3.OperationalError, match="full"):
            history.flush()
        assert ids(history.runs(None, None, None, None, 2)) == [f"other~{MANY + 1}", f"orders~{MANY - 1}"]
        assert ids(history.runs("orders", None, "a", Before(6, "orders~6"), 10)) == ["orders~5", "orders~4", "orders~2"]
        assert ids(history.runs(None, "failed", None, None, 10)) == ids(history.runs(None, None, "b", None, 10))
        assert counts(history) == [(3, 4)]
        assert history.run("orders~2") == ended(2)
        assert history.run("orders~7") == ended(7)
        assert history.run("none") is None
        assert history.gaps() == ()
        sent = history.export(Gap(0, MANY))
        assert sent is not None
        assert sent.through == 2, "what is not written down here is not told to others as all that there is"
        whole = ids(history.runs(None, None, None, None, 2 * MANY))
        wait_for("the thread that writes says so", lambda: "they are kept in memory until they can" in caplog.text)
        assert "Delete something on the file system of ROTA_DATA" in caplog.text
    assert ids(history.runs(None, None, None, None, 2 * MANY)) == whole
    assert len(whole) == MANY - 1
    assert history.written == MANY + 9


def test_a_jump_is_noted_in_its_place_without_waiting_for_the_disk(history: HistoryStore) -> None:
    history.record(3, [(3, ended(3))])
    with history._file:  # the disk is busy
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


def test_every_filter_finds_what_it_names_and_goes_by_an_index(history: HistoryStore, tmp_path: Path) -> None:
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
            where = " AND ".join(terms(task, state, node)) or "1"
            query = (
                f"EXPLAIN QUERY PLAN SELECT packed FROM ended WHERE {where} ORDER BY created_at_us DESC, run_id DESC"
            )
            [plan] = db.execute(query, {"task": task, "state": state, "node": node}).fetchall()
            assert " INDEX ended_by_" in plan[3], (task, state, node, plan[3])
            if (task, node) != (None, None) or state not in (None, "succeeded"):
                assert plan[3].startswith("SEARCH"), (task, state, node, plan[3])


def test_many_runs_are_forgotten_and_the_others_stay(history: HistoryStore) -> None:
    count = 2 * FORGET_AT_ONCE + 5
    history.record(count, [(number, ended(number)) for number in range(1, count + 1)])
    history.flush()
    history.forget(count, count - 1)  # what finished before then; each finishes a microsecond after it was made
    assert ids(history.runs(None, None, None, None, 10)) == [f"orders~{count - number}" for number in range(3)]


def series(entry: int, count: int, task: str = "orders") -> tuple[int, EndedRun]:
    """A series that goes on, as an entry told it."""
    run = Run(f"{task}~first", task, "schedule", 5, PACKED, "skipped", 7)
    return entry, EndedRun(run, "skipped", entry, series=Series("skipped", 7, 5, entry, count, "orders~1"))


def counts(history: HistoryStore) -> list[tuple[int, int]]:
    return [
        (one.finished_at_us, one.series.count)
        for one in history.runs(None, "skipped", None, None, 10)
        if one.series is not None
    ]


def test_a_series_that_goes_on_stays_one_record(history: HistoryStore) -> None:
    history.record(30, [series(10, 1), series(11, 2), (12, ended(12))])
    assert counts(history) == [(11, 2)]
    history.record(40, [series(31, 3), series(32, 1, "other")])
    assert counts(history) == [(32, 1), (31, 3)]
    assert history.run("orders~first") == series(31, 3)[1]
    assert len(history.runs(None, None, None, None, 10)) == 3


def test_what_another_member_sends_of_a_series_never_takes_the_place_of_what_is_newer(tmp_path: Path) -> None:
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


def test_what_takes_too_much_room_goes_oldest_first_and_the_file_gets_smaller(tmp_path: Path) -> None:
    history = HistoryStore(tmp_path / "history.db")
    history.record(5000, [(number, ended(number)) for number in range(1, 5001)])
    history.flush()
    full = history.held_bytes
    assert history.trim(full) == (0, 0)
    cut, through_us = history.trim(full // 2)
    assert cut % FORGET_AT_ONCE == 0
    assert through_us == cut + 1
    assert history.held_bytes < full // 2
    assert ids(history.runs(None, None, None, None, 1)) == ["orders~5000"]
    assert history.run(f"orders~{cut}") is None
    assert history.run(f"orders~{cut + 1}") is not None
    history.close()
    assert (tmp_path / "history.db").stat().st_size < full // 2 + 100_000
