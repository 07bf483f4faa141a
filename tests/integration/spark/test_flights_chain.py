"""The chain of examples/flights on three nodes: each of its four steps loses its node, and every row is there once."""

import csv
import os
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
pytest.importorskip("deltalake", reason="the extra `spark` is not installed")

import pyspark
from deltalake import DeltaTable

from node.cli.local import wait_for
from spark_tasks.spark.class_cache import cache_file, using
from spark_tasks.spark.java import find_java
from spark_tasks.spark.session import JVM_OPTIONS
from tasks.definition.run import FINAL, HELD
from testkit.cluster import Cluster
from tests.integration.howto.conftest import TOKEN, reader_of

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.more]

STEPS: Final = ("flights-ingest", "flights-join", "flights-delays", "flights-backup")
FILES_BEFORE: Final = 8
"""How many files the ingest has in the table before it loses its node: two batches of eight."""

BYTES_PER_S: Final = 100_000
"""So slowly are the tables read for the backup, of which there is a megabyte, that its node is lost midway."""

STEP_S: Final = 300.0
"""How long a step may take to get to work: seconds, but minutes on a machine with much else to do."""

Row = tuple[str, ...]


def test_each_step_of_the_chain_survives_its_node(tmp_path: Path) -> None:
    (token_file := tmp_path / "token").write_text(TOKEN)
    for name in ("nodes", "reader"):
        (tmp_path / name).mkdir()
    env = {"ROTA_TOKEN_FILE": str(token_file), "ROTA_SPARK_MASTER": "local[2]", "ROTA_SPARK_MEMORY": "1g"}
    # Most of an attempt's time is the start of its JVM, and most of that is compiling what is soon killed.
    java = find_java(os.environ)
    env[JVM_OPTIONS] = shlex.join([*using(java, cache_file(java, pyspark.__version__)), "-XX:TieredStopAtLevel=1"])
    lost: dict[str, str] = {}
    with Cluster(tmp_path / "nodes", env=env) as cluster:
        cluster.start()
        cluster.wait_until_whole()

        def stage(_words: str) -> None:
            lost.update((step, _lose_its_node(cluster, step)) for step in STEPS)

        with reader_of(cluster, tmp_path / "reader", stage) as read:
            slower = tmp_path / "reader" / "examples" / "flights" / "chain.yaml"
            slower.write_text(slower.read_text().replace("50000000", str(BYTES_PER_S)))
            read("../examples/flights/README.md", FLIGHTS=str(tmp_path / "flights"))
        _each_succeeded_once(cluster, lost)
        cluster.check()
    months = _flights(tmp_path / "flights" / "in")
    for folder in (tmp_path / "flights" / "tables", tmp_path / "flights" / "restored"):
        _as_by_plain_python(folder, months)


def _lose_its_node(cluster: Cluster, step: str) -> str:
    """Kill the node that runs a step while it is at work, and start it again once another has taken over."""

    def at_work() -> Any:
        [*runs] = cluster.all(f"/v1/tasks/{step}/runs")
        assert all(run["state"] not in FINAL for run in runs), f"{step} has ended before its node was killed: {runs}"
        return next((run for run in runs if run["state"] == "running" and _is_midway(run)), None)

    run = wait_for(f"{step} is at work", at_work, STEP_S)
    victim: str = run["node"]
    cluster.kill(victim)

    def taken_over() -> bool:
        now = cluster.run_of(run["run_id"])
        return now["state"] in HELD and now["node"] != victim and now["token"] > run["token"]

    wait_for(f"another node than {victim} has taken over {step}", taken_over, STEP_S)
    cluster.start(victim)
    cluster.wait_until_whole(deadline_s=STEP_S)
    return victim


def _is_midway(run: Mapping[str, Any]) -> bool:
    """Whether a step has noted how far it is: files in the table, the batch that it reads, the backup that it began."""
    checkpoint = run["checkpoint"]
    match run["task"], checkpoint:
        case "flights-ingest", {"files": int(files)}:
            return files >= FILES_BEFORE
        case (("flights-join" | "flights-delays"), {"batch": batch, "plan": plan}):
            return bool(batch or plan)
        case "flights-backup", _:
            return bool(checkpoint)
    return False


def _each_succeeded_once(cluster: Cluster, lost: Mapping[str, str]) -> None:
    runs = cluster.all("/v1/runs")
    assert sorted((run["task"], run["state"]) for run in runs) == sorted((step, "succeeded") for step in STEPS)
    for run in runs:
        first, second = run["attempts"]
        assert (first["node"], first["state"]) == (lost[run["task"]], "orphaned"), run
        assert (second["node"] != first["node"], second["state"]) == (True, "succeeded"), run
        print(f"{run['task']} was lost on {first['node']}, and succeeded on {second['node']}")


def _flights(folder: Path) -> list[dict[str, str]]:
    """The flights of the files, with the names of their airlines, by plain Python."""
    with (folder / "airlines.csv").open(newline="") as lines:
        names = {row["carrier"]: row["name"] for row in csv.DictReader(lines)}
    found = []
    for file in sorted(folder.glob("flights-2013-*.csv")):
        with file.open(newline="") as lines:
            found += [{**row, "airline": names.get(row["carrier"], "NA")} for row in csv.DictReader(lines)]
    assert len(found) == 27_004
    return found


def _as_by_plain_python(folder: Path, flights: list[dict[str, str]]) -> None:
    columns = [name for name in flights[0] if name != "airline"]
    for table, names in (("flights", columns), ("flights_named", [*columns, "airline"])):
        expected = Counter(tuple(_plain(name, row[name]) for name in names) for row in flights)
        assert Counter(_rows(folder / table, names)) == expected, table
    sums: dict[Row, list[list[int]]] = {}
    for row in flights:
        kept = sums.setdefault((row["year"], row["month"], row["airline"]), [[], [], []])
        for values, name in zip(kept, ("dep_time", "arr_delay", "dep_delay"), strict=True):
            values += [int(row[name])] if row[name] != "NA" else []
    expected = Counter(
        (*key, str(sum(row["airline"] == key[2] for row in flights)), *_summed(*kept)) for key, kept in sums.items()
    )
    names = ["year", "month", "airline", "flights", "departed", "arr_delay", "longest"]
    assert Counter(_rows(folder / "delays", names)) == expected


def _summed(departed: list[int], arr_delay: list[int], dep_delay: list[int]) -> Row:
    return (
        str(len(departed)),
        str(sum(arr_delay)) if arr_delay else "NA",
        str(max(dep_delay)) if dep_delay else "NA",
    )


def _rows(table: Path, names: list[str]) -> Iterator[Row]:
    columns = DeltaTable(table).to_pyarrow_table().select(names).to_pydict()
    yield from zip(*([_shown(value) for value in columns[name]] for name in names), strict=True)


def _shown(value: object) -> str:
    if value is None:
        return "NA"
    return str(value.timestamp()) if isinstance(value, datetime) else str(value)


def _plain(name: str, text: str) -> str:
    return str(datetime.fromisoformat(text).timestamp()) if name == "time_hour" else text
