"""A node that is busy, or whose event loop is blocked, is not marked down (docs/explanation/leases-and-claims.md).

A short form of `python -m bench.load`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from node.cli.local import wait_for
from node.client import path
from testkit.cluster import Cluster
from testkit.faults.pressure import pressure

pytestmark = pytest.mark.chaos

OCCURRENCES = 8
"""So many occurrences of each task begin while there is load: ten seconds, about, on two cores."""

BLOCKS_S = (0.5,) * 5 + (3.5,)
"""How long a loop stands still, time and again; the last is longer than a lease and its margin."""


def standing(cluster: Cluster, names: list[str]) -> dict[str, Any]:
    """What load must not change: who is a member since when, the epoch, who owns what, and what runs where."""
    members = cluster.get("/v1/members")["items"]
    return {
        "incarnations": {member["id"]: (member["status"], member["incarnation"]) for member in members},
        "epoch": cluster.get("/v1/cluster")["epoch"],
        "owners": {name: cluster.owner_of(name) for name in names},
    }


def suspected(cluster: Cluster) -> list[str]:
    return [line for name in cluster.names for line in cluster.said(name).splitlines() if "taken to be down" in line]


@contextmanager
def nobody_is_taken_for_dead(cluster: Cluster) -> Iterator[list[str]]:
    """A task pinned to each node at work, and one that falls due again and again; nothing of it is moved or lost."""
    notes = cluster.notes()
    long = [f"busy-long-{name}" for name in cluster.names]
    for task, name in zip(long, cluster.names, strict=True):
        cluster.register(task, params=notes.params, pin=name)
    short = [f"busy-short-{name}" for name in cluster.names]
    for task, name in zip(short, cluster.names, strict=True):
        cluster.register(task, pin=name, schedule={"every_s": 1}, overlap="queue")
    runs = [cluster.run(task) for task in long]
    for run_id in runs:
        cluster.wait_for_run(run_id, "running")
    before, said = standing(cluster, long + short), suspected(cluster)
    yield short
    assert standing(cluster, long + short) == before
    assert suspected(cluster) == said
    notes.let_go()
    for run_id in runs:
        run = cluster.wait_for_run(run_id)
        assert (run["state"], run["attempt"]) == ("succeeded", 1), "an attempt was lost"
    for task in short:
        assert cluster.ask("DELETE", path("v1", "tasks", task)).status == 204


@pytest.mark.alone
@pytest.mark.more
def test_no_node_is_marked_down_at_eightfold_cpu_load(cluster: Cluster, tmp_path: Path) -> None:
    with nobody_is_taken_for_dead(cluster) as short, pressure(tmp_path, memory_mib=256, disk_mib=64) as look:
        already = {task: len(cluster.all(path("v1", "tasks", task, "runs"))) for task in short}

        def begun() -> bool:
            return all(
                len(cluster.all(path("v1", "tasks", task, "runs"))) >= already[task] + OCCURRENCES for task in short
            )

        wait_for("work goes on under load", begun, deadline_s=60)
        look()  # the load ran until the end


@pytest.mark.more
@pytest.mark.parametrize("which", ["leader", "follower"])
def test_no_node_is_marked_down_while_an_event_loop_is_blocked(cluster: Cluster, which: str) -> None:
    with nobody_is_taken_for_dead(cluster):
        leader = cluster.wait_for_leader()
        still = leader if which == "leader" else cluster.others(leader)[0]
        for number, block_s in enumerate(BLOCKS_S):
            spec = {"name": "blocks", "kind": "blocking", "params": {"block_s": block_s, "number": number}}
            reply = cluster.ask("POST", "/v1/tasks", still, json=[spec], dry_run="true")
            assert reply.status == 200, reply.body
        assert cluster.wait_for_leader() == leader
        text = cluster.ask("GET", "/metrics", still).body.decode()
        [late] = [line.split()[1] for line in text.splitlines() if line.startswith("rota_loop_lateness_seconds ")]
        assert float(late) > max(BLOCKS_S) / 2, "the event loop was never blocked"
