"""A node is lost during a run (docs/explanation/leases-and-claims.md): exactly one other node resumes it."""

import gzip
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from node.cli.local import wait_for
from testkit.cluster import Cluster, Notes
from testkit.command import Rota
from testkit.processes import process_state

pytestmark = pytest.mark.chaos

STEPS = 5
ROOT = Path(__file__).parents[2]


@dataclass
class Underway:
    """A run whose first attempt has committed all its checkpoints, and waits at a gate of the test."""

    run_id: str
    owner: str
    notes: Notes
    worker: int
    token: int


def underway(cluster: Cluster, name: str, owner: str, **spec: Any) -> Underway:
    notes = cluster.notes()
    cluster.register(name, params={**notes.params, "steps": STEPS}, pin=owner, **spec)
    run_id = cluster.run(name)
    worker = notes.wait("beat")["pid"]
    run = cluster.run_of(run_id, owner)  # which had applied the checkpoints before it told the worker
    assert (run["node"], run["attempt"], run["checkpoint"]) == (owner, 1, STEPS)
    return Underway(run_id, owner, notes, worker, run["token"])


def assert_taken_over(cluster: Cluster, lost: Underway, node: str) -> Any:
    """A second attempt goes on from the checkpoint, elsewhere, and the first did nothing after it was claimed."""
    run = cluster.wait_for_attempt(lost.run_id, 2, node)
    assert run["node"] != lost.owner
    assert run["token"] > lost.token
    assert run["attempts"][0]["state"] == "orphaned"
    assert lost.notes.wait("begin", attempt=2)["step"] == STEPS
    last_us = lost.notes.read(attempt=1)[-1]["at_us"]
    begun_us = lost.notes.read(attempt=2)[0]["at_us"]
    assert last_us < begun_us, "the first attempt still ran when the second started"
    return run


def assert_finished_once(cluster: Cluster, lost: Underway) -> None:
    """The second attempt ends the run, and every member reports the same."""
    lost.notes.let_go()
    run = cluster.wait_for_run(lost.run_id)
    assert (run["state"], run["attempt"], run["result"]) == ("succeeded", 2, {"begun_at": STEPS, "steps": STEPS})
    steps = [note["step"] for note in lost.notes.read("step")]
    assert steps == list(range(STEPS)), "a step was run twice"
    assert len(lost.notes.read("end")) == 1
    cluster.mend()
    for name in cluster.names:
        assert cluster.wait_for_run(lost.run_id, node=name) == run


def test_a_killed_owners_run_resumes_from_its_checkpoint_on_another_node(cluster: Cluster) -> None:
    leader = cluster.wait_for_leader()
    owner, other = cluster.others(leader)
    bystander = underway(cluster, "kill-bystander", other)
    lost = underway(cluster, "kill-owner", owner)
    cluster.kill(owner)
    assert_taken_over(cluster, lost, leader)
    member = cluster.member(owner, leader)
    assert (member["status"], member["reason"]) == ("down", "gone")
    assert process_state(lost.worker) in ("", "Z"), "a worker still runs after its node ended"
    log = cluster.ask("GET", f"/v1/runs/{lost.run_id}/log", leader, attempt=1)
    assert (log.status, log.problem, log.json["member"]) == (503, "member-away", owner)
    assert_finished_once(cluster, lost)
    assert cluster.run_of(bystander.run_id)["attempt"] == 1, "a run was moved though its node kept its lease"
    bystander.notes.let_go()
    assert cluster.wait_for_run(bystander.run_id)["state"] == "succeeded"


def test_a_killed_leaders_run_resumes_from_its_checkpoint_on_another_node(cluster: Cluster) -> None:
    leader = cluster.wait_for_leader()
    other = cluster.others(leader)[0]
    bystander = underway(cluster, "kill-leader-bystander", other)
    lost = underway(cluster, "kill-leader", leader)
    cluster.kill(leader)
    assert_taken_over(cluster, lost, other)
    assert cluster.wait_for_leader(leader, node=other) in cluster.others(leader)
    assert_finished_once(cluster, lost)
    assert cluster.run_of(bystander.run_id)["attempt"] == 1, "an election ended a run"
    bystander.notes.let_go()
    assert cluster.wait_for_run(bystander.run_id)["state"] == "succeeded"


@pytest.mark.parametrize("which", ["leader", "follower"])
def test_a_stopped_nodes_worker_is_frozen_before_another_attempt_starts(cluster: Cluster, which: str) -> None:
    """The supervisor keeps the deadline whether or not the node answers."""
    leader = cluster.wait_for_leader()
    owner = leader if which == "leader" else cluster.others(leader)[0]
    other = cluster.others(leader, owner)[0]
    incarnation = cluster.member(owner)["incarnation"]
    lost = underway(cluster, f"stop-{which}", owner)
    cluster.pause(owner)
    run = assert_taken_over(cluster, lost, other)
    assert process_state(lost.worker) == "T"
    assert cluster.member(owner, other)["reason"] == "silent"
    cluster.resume(owner)
    wait_for("the frozen worker is killed", lambda: process_state(lost.worker) in ("", "Z"))
    cluster.wait_until_whole()
    assert cluster.member(owner)["incarnation"] == incarnation + 1
    assert cluster.run_of(lost.run_id) == run | {"progress": cluster.run_of(lost.run_id)["progress"]}
    assert_finished_once(cluster, lost)
    first_us = lost.notes.read(attempt=2)[0]["at_us"]
    assert all(note["at_us"] < first_us for note in lost.notes.read(attempt=1)), "the resumed worker continued"


def test_a_node_that_stops_gracefully_hands_over_at_once(cluster: Cluster) -> None:
    leader = cluster.wait_for_leader()
    owner = cluster.others(leader)[0]
    notes = cluster.notes()
    cluster.register("stop-hand-over", params={**notes.params, "steps": STEPS}, pin=owner)
    run_id = cluster.run("stop-hand-over")
    notes.wait("beat")
    cluster.stop(owner)
    assert cluster.exit_code(owner) == 0
    run = cluster.wait_for_attempt(run_id, 2, leader)
    assert cluster.member(owner, leader)["reason"] == "stopped"
    assert run["attempts"][0]["state"] != "orphaned", "the run was lost instead of handed over"
    assert notes.read("left", attempt=1), "the worker was not asked to stop"
    assert notes.wait("begin", attempt=2)["step"] == STEPS
    notes.let_go()
    assert cluster.wait_for_run(run_id)["state"] == "succeeded"
    cluster.restart(owner)
    assert cluster.wait_for_status(owner, "up")["reason"] is None


def test_a_frozen_run_is_thawed_if_the_quorum_returns_in_time(cluster: Cluster) -> None:
    """A lease lapse freezes, it does not kill. Both other nodes are away for longer than a lease."""
    leader = cluster.wait_for_leader()
    owner, other = cluster.others(leader)
    kept = underway(cluster, "thaw", owner)
    for name in (leader, other):
        cluster.pause(name)
    wait_for("the worker is frozen", lambda: process_state(kept.worker) == "T")
    assert cluster.get("/v1/cluster", owner, fresh=False)["quorum"] is False
    wait_for("the run says so", lambda: cluster.run_of(kept.run_id, owner, fresh=False)["frozen_since"])
    for name in (leader, other):
        cluster.resume(name)
    beats = len(kept.notes.read("beat"))
    wait_for("the worker goes on", lambda: len(kept.notes.read("beat")) > beats)
    wait_for("every node says so", lambda: cluster.run_of(kept.run_id, other)["frozen_since"] is None)
    kept.notes.let_go()
    run = cluster.wait_for_run(kept.run_id)
    assert (run["state"], run["attempt"]) == ("succeeded", 1)


def test_a_script_resumes_from_its_checkpoint_on_another_node(cluster: Cluster, tmp_path: Path) -> None:
    logs, archive = tmp_path / "logs", tmp_path / "archive"
    logs.mkdir()
    archive.mkdir()
    for number in range(3):
        (logs / f"{number}.log").write_text(f"line {number}\n")
    os.mkfifo(logs / "3.log")  # the script waits here until somebody writes
    argv = [str(ROOT / "examples/scripts/compress.sh"), str(logs), str(archive)]
    cluster.register("compress", kind="command", params={"argv": argv}, pin="node-2")
    run_id = cluster.run("compress")
    wait_for("three files are compressed", lambda: cluster.run_of(run_id, "node-2")["checkpoint"] == 3)

    with Rota(f"{cluster.url('node-1')},{cluster.url('node-3')}").running("log", "-f", run_id) as follows:
        wait_for("its log is followed", lambda: follows.out().count("compressed") == 3)
        cluster.kill("node-2")
        run = cluster.wait_for_attempt(run_id, 2, "node-1")
        assert run["node"] != "node-2"
        wait_for("the second attempt reads", lambda: _written(logs / "3.log", b"the last one\n"))
        assert follows.process.wait(30) == 0
        told = follows.out()
    first, _, second = told.partition(f"==> attempt 2 on {run['node']} <==\n")
    assert first.startswith("".join(f"compressed {logs}/{number}.log\n" for number in range(3)))
    assert "rota: the log of attempt 1 on node-2 cannot be read" in first
    assert second == f"compressed {logs}/3.log\n"
    lost = f"compress: attempt 1 on node-2 was lost: node-2 was lost; taken over at once (run {run_id})"
    tellers = wait_for("it is in the log", lambda: [one for one in cluster.names if lost in cluster.said(one)])
    assert len(tellers) == 1, "only the leader logs the decision"
    run = cluster.wait_for_run(run_id, node="node-1")
    assert (run["state"], run["attempt"], run["checkpoint"]) == ("succeeded", 2, 4), run["error"]
    assert run["result"] == {"files": 4, "resumed_at": 3, "exit_code": 0}
    read = {one.name: gzip.decompress(one.read_bytes()).decode() for one in archive.glob("*.gz")}
    assert read == {**{f"{number}.log.gz": f"line {number}\n" for number in range(3)}, "3.log.gz": "the last one\n"}


def _written(fifo: Path, content: bytes) -> bool:
    """Write to the gate; False if no process reads it."""
    try:
        end = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    with os.fdopen(end, "wb") as file:
        file.write(content)
    return True
