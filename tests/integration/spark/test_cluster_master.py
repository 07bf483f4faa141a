"""A Spark master that is away, silent or wrong, and a cluster without executors: one sentence, in bounded time."""

import socket
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

from node.cli.ports import free_ports
from spark_tasks.ingest.kind import Ingest
from spark_tasks.spark.cluster import on_cluster
from spark_tasks.spark.master import REGISTRATION_S, MasterUnfit, SparkAway, own_address
from spark_tasks.spark.session import MASTER, spark_session
from testkit.spark.cluster_work import started
from testkit.spark.ingests import House

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def test_a_master_that_is_away_fails_the_attempt_before_a_jvm_is_started(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.put_csv(0)
    [port] = free_ports(1)
    monkeypatch.setenv(MASTER, f"spark://127.0.0.1:{port}")
    with pytest.raises(
        SparkAway, match=rf"spark://127.0.0.1:{port} does not answer \(127.0.0.1:{port}: Connection refu"
    ):
        Ingest().run(house.attempt())
    monkeypatch.setenv(MASTER, "sc://127.0.0.1:15002")
    with pytest.raises(MasterUnfit, match="a Spark Connect server cannot be used"):
        Ingest().run(house.attempt())
    assert not any(house.folder.glob("scratch-*/log4j2.properties"))
    assert not house.table.exists()


def test_a_master_that_takes_no_connection_is_given_up_soon() -> None:
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for one in (first, second):  # fill the queue of connections, which nobody takes
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        began_s = time.monotonic()
        with pytest.raises(SparkAway, match="timed out"):
            own_address(f"spark://127.0.0.1:{listener.getsockname()[1]}", connect_s=0.2)
        assert time.monotonic() - began_s < 5


def test_the_address_towards_the_master_is_the_drivers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        [away] = free_ports(1)
        assert own_address(f"spark://127.0.0.1:{away},127.0.0.1:{port}") == "127.0.0.1"
    assert own_address("yarn") is None


@pytest.mark.more
def test_a_job_without_executors_is_ended(tmp_path: Path) -> None:
    """A session on this machine has none of a cluster's executors."""
    with (
        spark_session("alone", tmp_path) as spark,
        pytest.raises(SparkAway, match=r"gave this attempt no executor for 0.3 s"),
        on_cluster(spark, "spark://somewhere:7077", checks_max=3, check_s=0.1),
    ):
        spark.range(10**13).selectExpr("sum(hash(id))").collect()


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["ingest", "etl"])
def test_a_master_that_is_silent_is_given_up_after_a_minute(house: House, kind: str) -> None:
    house.put_csv(0)
    files = {"format": "csv", "columns": "n INT, text STRING"}
    tasks: dict[str, tuple[str, dict[str, Any]]] = {
        "ingest": (
            "spark_tasks.ingest.kind:Ingest",
            {"source": f"{house.folder}/in/*.csv", "table": str(house.table)} | files,
        ),
        "etl": (
            "spark_tasks.etl.kind:Etl",
            {
                "source": {"type": "files", "files": f"{house.folder}/in/*.csv", "shared": True} | files,
                "sink": {"type": "delta", "table": str(house.table), "mode": "append", "shared": True},
            },
        ),
    }
    target, params = tasks[kind]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        master = f"spark://127.0.0.1:{listener.getsockname()[1]}"
        began_s = time.monotonic()
        attempt = started(house.folder, target, params, {}, 1, {MASTER: master})
        assert attempt.ended() != 0
        assert REGISTRATION_S < time.monotonic() - began_s < 3 * REGISTRATION_S
    assert f"SparkAway: the Spark master {master} has not answered for 60 s" in attempt.said(), attempt.said()[-3000:]
