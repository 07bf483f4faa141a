"""Both kinds on a Spark cluster of two workers: every row once, whatever is killed or frozen meanwhile."""

import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("moto.server", reason="moto[server] is not installed")
pytest.importorskip("s3fs", reason="the extra `s3` is not installed")
pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")
pytest.importorskip("adbc_driver_postgresql", reason="the extra `spark` is not installed")

from examples.demo.postgres import Server, postgres_server
from node.cli.local import wait_for
from node.execution import process_tree
from testkit.servers.object_store import ObjectStore, object_store
from testkit.spark.cluster_work import ENDS_S, PASSWORD, Attempt, EtlWork, IngestWork, Work
from testkit.spark.spark_cluster import SparkCluster, spark_cluster

pytestmark = [pytest.mark.integration, pytest.mark.spark]

KINDS = ("ingest", "etl")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with spark_cluster(tmp_path_factory.mktemp("spark")) as running:
        yield running


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as running:
        yield running


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres_server(PASSWORD) as running:
        yield running


class Works:
    """Makes a task of a kind, with data of its own."""

    def __init__(self, folder: Path, store: ObjectStore, server: Server) -> None:
        self.folder = folder
        self.store = store
        self.server = server
        self.name = f"t{folder.name.encode().hex()[-40:]}"
        self.made: list[Work] = []

    def of(self, kind: str, **more: Any) -> Work:
        """`more` are params of an ingest."""
        work: Work
        if kind == "ingest":
            work = IngestWork(self.folder / "ingest", self.store, self.name, **more)
        else:
            work = EtlWork(self.folder / "etl", self.server, self.name)
        self.made.append(work)
        return work

    def end(self) -> None:
        """Kill the attempts that run."""
        for attempt in [attempt for work in self.made for attempt in work.attempts]:
            if attempt.process.poll() is None:
                attempt.kill()


@pytest.fixture
def works(tmp_path: Path, store: ObjectStore, server: Server, cluster: SparkCluster) -> Iterator[Works]:
    """Once the executors of earlier tests are gone."""
    wait_for("executors of earlier tests are gone", lambda: not cluster.executors(), ENDS_S)
    made = Works(tmp_path, store, server)
    try:
        yield made
    finally:
        made.end()


def succeeded(attempt: Attempt) -> None:
    assert attempt.ended() == 0, attempt.said()[-3000:]


def under_way(work: Work, attempt: Attempt, cluster: SparkCluster) -> int:
    """An executor that reads or writes rows of the attempt; waits until it does."""

    def busy() -> int | None:
        assert attempt.process.poll() is None, attempt.said()[-3000:]
        return next(filter(cluster.busy, cluster.executors()), None) if work.writes() else None

    return wait_for("an executor writes", busy, ENDS_S)


@pytest.mark.soak
def test_both_kinds_share_the_cluster_and_give_what_they_should(works: Works, cluster: SparkCluster) -> None:
    ingest, etl = works.of("ingest"), works.of("etl")
    attempts = [work.start(1, cluster.environ) for work in (ingest, etl)]
    for attempt in attempts:
        succeeded(attempt)
    assert (ingest.differs(), etl.differs()) == ("", "")


@pytest.mark.soak
@pytest.mark.parametrize(
    "more",
    [
        {"partition_by": ["part"]},
        {"schema_evolution": "widen", "columns": "n BIGINT, text STRING, amount DOUBLE, part INT, big INT"},
    ],
)
def test_executors_partition_and_widen_a_table_in_a_store(
    works: Works, cluster: SparkCluster, more: Mapping[str, Any]
) -> None:
    ingest = works.of("ingest", **more)
    succeeded(ingest.start(1, cluster.environ))
    assert ingest.differs() == ""


@pytest.mark.parametrize(
    "kind", [pytest.param("ingest", marks=pytest.mark.soak), pytest.param("etl", marks=pytest.mark.soak)]
)
def test_an_executor_that_is_killed_costs_nothing_but_time(works: Works, cluster: SparkCluster, kind: str) -> None:
    work = works.of(kind)
    attempt = work.start(1, cluster.environ)
    os.kill(under_way(work, attempt, cluster), signal.SIGKILL)
    succeeded(attempt)
    assert work.differs() == ""


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_that_is_killed_costs_nothing_but_time(works: Works, cluster: SparkCluster, kind: str) -> None:
    work = works.of(kind)
    attempt = work.start(1, cluster.environ)
    executor = under_way(work, attempt, cluster)
    [host] = [worker for worker in cluster.workers if executor in cluster.executors(worker)]
    cluster.kill_worker(host)
    cluster.add_worker()
    succeeded(attempt)
    assert work.differs() == ""


@pytest.mark.parametrize(
    "kind", [pytest.param("ingest", marks=pytest.mark.soak), pytest.param("etl", marks=pytest.mark.soak)]
)
def test_the_next_attempt_goes_on_where_one_was_killed(works: Works, cluster: SparkCluster, kind: str) -> None:
    work = works.of(kind)
    lost = work.start(1, cluster.environ)
    under_way(work, lost, cluster)
    lost.kill()
    wait_for("its executors end without it", lambda: not cluster.executors(), ENDS_S)
    succeeded(work.start(2, cluster.environ))
    assert work.differs() == ""


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_an_attempt_that_was_frozen_and_overtaken_commits_nothing(
    works: Works, cluster: SparkCluster, kind: str
) -> None:
    """It holds executors while it is frozen, and leaves enough for the other one."""
    work = works.of(kind)
    old = work.start(1, cluster.environ)
    under_way(work, old, cluster)
    stopped = process_tree.freeze(old.pid, old.pid)
    assert stopped
    old.overtaken()
    succeeded(work.start(2, cluster.environ))
    assert work.differs() == ""
    process_tree.thaw(old.pid, old.pid, stopped)
    assert old.ended() != 0
    assert "Fenced" in old.said(), old.said()[-3000:]
    assert work.differs() == ""


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
def test_an_attempt_that_was_frozen_and_not_overtaken_goes_on(works: Works, cluster: SparkCluster, kind: str) -> None:
    """What its executors did meanwhile is not lost: they have ended no connection, and it takes none for dead."""
    work = works.of(kind)
    attempt = work.start(1, cluster.environ)
    under_way(work, attempt, cluster)
    before = cluster.executors()
    stopped = process_tree.freeze(attempt.pid, attempt.pid)
    wait_for("its executors have done what they had", lambda: not any(map(_computes, cluster.executors())), ENDS_S)
    assert cluster.executors() == before
    process_tree.thaw(attempt.pid, attempt.pid, stopped)
    succeeded(attempt)
    assert work.differs() == ""


def _computes(pid: int) -> bool:
    """Whether a process or one below it is running at this moment."""
    below = process_tree.descendants([pid], process_tree.processes())
    return any(one.state == "R" for one in below)


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"PYSPARK_PYTHON": "/nowhere/python3"}, "ExecutorsUnfit: the executors have no program /nowhere/python3"),
        (
            {"PYSPARK_PYTHON": "/usr/bin/python3"},
            "ExecutorsUnfit: the executors' Python (/usr/bin/python3) has no module",
        ),
    ],
)
def test_what_executors_lack_is_named(
    works: Works, cluster: SparkCluster, given: Mapping[str, str], says: str, kind: str
) -> None:
    if not Path("/usr/bin/python3").exists():
        pytest.skip("there is no Python beside this one")
    attempt = works.of(kind).start(1, {**cluster.environ, **given})
    assert attempt.ended() != 0
    assert says in attempt.said(), attempt.said()[-3000:]
