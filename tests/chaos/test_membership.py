"""A member goes for good, with work on it, and one comes in its place (DESIGN.md, sections 4 and 9)."""

import shutil

import pytest

from node.cli.local import wait_for
from node.client import path
from node.config import parse_members
from tests.cluster import Cluster

pytestmark = pytest.mark.chaos


def test_a_removed_member_hands_over_and_its_slot_is_taken_by_the_next(cluster: Cluster) -> None:
    leader = cluster.wait_for_leader()
    going = cluster.others(leader)[0]
    slot = cluster.member(going)["slot"]
    cluster.ask("POST", "/v1/tasks", json=[{"name": f"stays-{n}", "kind": "probe"} for n in range(30)])
    notes = cluster.notes()
    cluster.register("going", params={**notes.params, "steps": 2}, pin=going)
    owners = {task["name"]: task["owner"] for task in cluster.all("/v1/tasks")}
    foretold = {move["task"]: move["to"] for move in cluster.get("/v1/plan", without=going)["moves"]}
    run_id = cluster.run("going")
    notes.wait("beat")

    assert cluster.ask("DELETE", path("v1", "members", going), leader).status == 204
    assert [member["id"] for member in cluster.get("/v1/members", leader)["items"]] == cluster.others(going)
    then = {task["name"]: task["owner"] for task in cluster.all("/v1/tasks", leader)}
    assert then == owners | foretold, "not what /v1/plan had foretold"
    verdicts = {step["verdict"] for step in cluster.get("/v1/tasks/stays-0/owner", leader)["because"]}
    assert verdicts <= {"chosen", "full", "vacant"}
    run = cluster.wait_for_attempt(run_id, 2, leader)
    assert run["attempts"][0]["state"] != "orphaned", "it was lost, not handed over"
    assert notes.wait("begin", attempt=2)["step"] == 2
    assert not [note for note in notes.read(attempt=1) if note["at_us"] > notes.read(attempt=2)[0]["at_us"]]
    notes.let_go()
    assert cluster.wait_for_run(run_id, node=leader)["state"] == "succeeded"
    wait_for("it knows that it is out", lambda: cluster.ask("GET", "/readyz", going, fresh=False).status == 503)

    cluster.stop(going)
    shutil.rmtree(cluster.folder / going)
    seed = next(seed for seed in parse_members(cluster.members) if seed.id == going)
    body = {"id": going, "host": seed.host, "raft_port": seed.raft_port, "http_port": seed.http_port}
    added = cluster.ask("POST", "/v1/members", leader, json=body)
    assert (added.status, added.json["status"], added.json["reason"], added.json["slot"]) == (201, "down", "new", slot)
    cluster.restart(going)
    cluster.wait_until_whole()
    assert {task["name"]: task["owner"] for task in cluster.all("/v1/tasks", going)} == owners, (
        "it takes exactly its own"
    )
