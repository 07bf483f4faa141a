"""What an attempt takes of a Spark cluster, and where it puts files for the executors."""

from pathlib import Path

import pytest

from spark_tasks.spark.exchange import exchange_folder, sweep_exchange
from spark_tasks.spark.master import MasterUnfit, standalone_masters
from spark_tasks.spark.session import ENVIRONMENT, attempt_configuration
from spark_tasks.spark.standalone import variables

CLUSTER = {"RUN_SPARK_MASTER": "spark://spark:7077"}


def test_an_attempt_takes_a_part_of_a_cluster(tmp_path: Path) -> None:
    chosen = attempt_configuration(CLUSTER, tmp_path)
    assert chosen["spark.cores.max"] == "2"
    assert "spark.executor.memory" not in chosen
    more = {"RUN_SPARK_CORES": "8", "RUN_SPARK_EXECUTOR_MEMORY": "4g"}
    chosen = attempt_configuration(CLUSTER | more, tmp_path)
    assert (chosen["spark.cores.max"], chosen["spark.executor.memory"]) == ("8", "4g")
    assert "spark.cores.max" not in attempt_configuration(more, tmp_path)


def test_executors_bear_with_a_frozen_driver_for_an_hour_and_not_for_ever(tmp_path: Path) -> None:
    chosen = attempt_configuration(CLUSTER, tmp_path)
    every_s = int(chosen["spark.executor.heartbeatInterval"].removesuffix("s"))
    assert every_s * int(chosen["spark.executor.heartbeat.maxFailures"]) == 3600


@pytest.mark.parametrize("master", ["spark://", "spark://spark", "spark://:7077", "spark://a:7077,b", "spark://a:0"])
def test_a_master_without_host_or_port_is_refused(master: str) -> None:
    with pytest.raises(MasterUnfit, match="it must be spark://HOST:PORT"):
        standalone_masters(master)


def test_files_for_executors_are_in_the_shared_folder_of_a_cluster_and_nowhere_else(tmp_path: Path) -> None:
    scratch, shared = tmp_path / "scratch", tmp_path / "shared"
    given = CLUSTER | {"RUN_SPARK_SHARED": str(shared)}
    assert exchange_folder({"RUN_SPARK_SHARED": str(shared)}, scratch, "task", 7) == scratch
    assert exchange_folder(CLUSTER, scratch, "task", 7) == scratch
    assert exchange_folder(given, scratch, "task", 7) == shared / "task" / "7"


def test_what_earlier_attempts_left_in_the_shared_folder_is_removed(tmp_path: Path) -> None:
    given = CLUSTER | {"RUN_SPARK_SHARED": str(tmp_path)}
    kept = [tmp_path / "task" / "7", tmp_path / "task" / "8", tmp_path / "task" / "own", tmp_path / "other" / "1"]
    lost = tmp_path / "task" / "6"
    for folder in (*kept, lost):
        folder.mkdir(parents=True)
        (folder / "file").touch()
    sweep_exchange(given, "task", 7)
    assert all((folder / "file").exists() for folder in kept)
    assert not lost.exists()


def test_workers_get_all_settings_of_a_cluster() -> None:
    assert {"RUN_SPARK_MASTER", "RUN_SPARK_CORES", "RUN_SPARK_EXECUTOR_MEMORY", "RUN_SPARK_SHARED"} <= set(ENVIRONMENT)


def test_a_daemon_keeps_what_is_set_and_writes_to_its_folder(tmp_path: Path) -> None:
    given = {"SPARK_DAEMON_MEMORY": "1g", "JAVA_TOOL_OPTIONS": "-Dx=y", "PATH": "/usr/bin:/bin"}
    found = variables(given, tmp_path, Path("/spark"))
    assert (found["SPARK_DAEMON_MEMORY"], found["SPARK_HOME"]) == ("1g", "/spark")
    assert found["JAVA_TOOL_OPTIONS"] == f"-Dx=y -Djava.io.tmpdir={tmp_path}/tmp"
    assert found["SPARK_WORKER_DIR"] == str(tmp_path / "work")
