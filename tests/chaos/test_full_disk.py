"""A task fills the disk: its run fails, and every node stays up, keeps its log and accepts work again."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node.cli.local import wait_for
from testkit.cluster import Cluster

pytestmark = pytest.mark.chaos

DISK_MIB = 14
NODES = ("node-1", "node-2", "node-3")
FILL = "while :; do head -c 262144 /dev/zero >> fill 2>/dev/null; done"
"""It never ends by itself, and does not care whether there was room."""


def mounted(folder: Path) -> str | None:
    """Mount a file system of this size at `folder`; returns why that failed, or None."""
    if shutil.which("mount") is None:
        return "there is no mount here"
    folder.mkdir(parents=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m,mode=0700", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    return None if done.returncode == 0 else f"a small file system cannot be mounted here: {done.stderr.strip()}"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The folder of a cluster whose nodes have a disk of 14 MB each."""
    made: list[Path] = []
    try:
        for name in NODES:
            if (reason := mounted(tmp_path / name)) is not None:
                pytest.skip(reason)
            made.append(tmp_path / name)
        yield tmp_path
    finally:
        for each in made:
            subprocess.run(["umount", "--lazy", str(each)], check=False)


@pytest.fixture
def cluster(folder: Path) -> Iterator[Cluster]:
    with Cluster(folder) as made:
        made.mend()
        yield made
        made.check()


@pytest.mark.more
def test_a_task_that_fills_the_disk_fails_and_every_node_stays_up(cluster: Cluster) -> None:
    assert cluster.wait_for_leader()
    pids = {name: cluster.pid(name) for name in NODES}
    cluster.register("steady", "command", params={"argv": ["true"]}, schedule={"every_s": 1}, overlap="allow")
    cluster.register(
        "filler", "command", params={"argv": ["sh", "-c", FILL]}, retry={"attempts": 3, "backoff_s": 1, "factor": 1}
    )
    run = cluster.wait_for_run(cluster.run("filler"), deadline_s=90)
    assert run["state"] == "failed"
    assert len(run["attempts"]) == 3
    for attempt in run["attempts"]:
        assert attempt["state"] == "failed"
        # By the watch of the disk, or by that of the attempt's limits.
        assert attempt["error"].startswith((f"no room on {attempt['node']}: ", "over its limit of scratch: "))
    assert {name: cluster.pid(name) for name in NODES} == pids, "a node has ended"
    wait_for("every node takes on work again", lambda: all(one["status"] == "up" for one in members(cluster)))
    assert all(one["incarnation"] == 1 for one in members(cluster)), "a node was marked down"
    cluster.wait_for_run(cluster.run("steady"), "succeeded")


@pytest.mark.more
def test_a_task_that_floods_its_log_leaves_disk_space_for_others(cluster: Cluster) -> None:
    pids = {name: cluster.pid(name) for name in NODES}
    cluster.register("flood", "command", params={"argv": ["sh", "-c", "yes | head -c 100000000"]})
    runs = [cluster.wait_for_run(cluster.run("flood"), deadline_s=60) for _ in range(6)]
    assert {run["state"] for run in runs} == {"succeeded"}
    assert all(run["attempts"][-1]["log_truncated"] for run in runs), "a log is truncated without a notice"
    assert {name: cluster.pid(name) for name in NODES} == pids, "a node has ended"
    assert all(one["incarnation"] == 1 for one in members(cluster)), "a node was marked down"


@pytest.mark.more
def test_a_node_waits_for_space_on_a_full_disk_and_then_continues(cluster: Cluster) -> None:
    full = cluster.wait_for_leader()
    pid = cluster.pid(full)
    stuffing = cluster.folder / full / "something else"
    cluster.register("early", "command", params={"argv": ["true"]})
    early = cluster.wait_for_run(cluster.run("early"), "succeeded")["run_id"]

    def early_is_listed() -> bool:
        return early in {run["run_id"] for run in cluster.get("/v1/runs", full)["items"]}

    wait_for("the run is in its history", early_is_listed)
    wait_for("the node keeps some room back", (cluster.folder / full / "raft" / "reserve").exists)
    with stuffing.open("wb", buffering=0) as file:

        def stuffed() -> bool:
            """Take all free disk space, and all that is freed later."""
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                return "this node commits nothing until there is free space" in cluster.said(full)

        other = next(name for name in NODES if name != full)
        cluster.register("before", "command", node=other, params={"argv": ["true"]}, schedule={"every_s": 0.2})
        wait_for("it has no room for its log", stuffed)
        assert early_is_listed(), "finished runs cannot be read while none can be written"
    leader = cluster.wait_for_leader(full, node=other)
    cluster.register("meanwhile", "command", node=leader, params={"argv": ["true"]})
    assert cluster.wait_for_run(cluster.run("meanwhile", leader), "succeeded", node=leader)["node"] != full
    stuffing.unlink()
    cluster.wait_until_whole()
    assert cluster.pid(full) == pid
    assert cluster.get("/v1/tasks/meanwhile", full)["name"] == "meanwhile"


def members(cluster: Cluster) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = cluster.get("/v1/members")["items"]
    return items
