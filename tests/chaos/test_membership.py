"""Members are removed and others added while tasks run (docs/how-to/remove-a-node.md)."""

import re
from pathlib import Path

import pytest

from node.cli.local import wait_for
from node.client import ApiProblem, path
from node.settings.values import parse_members
from testkit.cluster import Cluster, Notes
from testkit.command import Rota
from testkit.each_once import assert_each_occurrence_once

pytestmark = pytest.mark.chaos


@pytest.mark.more
def test_a_removed_member_hands_over_and_its_slot_is_reused(cluster: Cluster) -> None:
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
    assert then == owners | foretold, "the moves differ from those that /v1/plan announced"
    verdicts = {step["verdict"] for step in cluster.get("/v1/tasks/stays-0/owner", leader)["because"]}
    assert verdicts <= {"chosen", "full", "vacant"}
    run = cluster.wait_for_attempt(run_id, 2, leader)
    assert run["attempts"][0]["state"] != "orphaned", "the run was lost instead of handed over"
    assert notes.wait("begin", attempt=2)["step"] == 2
    assert not [note for note in notes.read(attempt=1) if note["at_us"] > notes.read(attempt=2)[0]["at_us"]]
    notes.let_go()
    assert cluster.wait_for_run(run_id, node=leader)["state"] == "succeeded"
    wait_for("it knows that it is out", lambda: cluster.ask("GET", "/readyz", going, fresh=False).status == 503)

    cluster.stop(going)
    cluster.lose_folder(going)
    seed = next(seed for seed in parse_members(cluster.members) if seed.id == going)
    body = {"id": going, "host": seed.host, "raft_port": seed.raft_port, "http_port": seed.http_port}
    added = cluster.ask("POST", "/v1/members", leader, json=body)
    assert (added.status, added.json["status"], added.json["reason"], added.json["slot"]) == (201, "down", "new", slot)
    cluster.restart(going)
    cluster.wait_until_whole()
    assert {task["name"]: task["owner"] for task in cluster.all("/v1/tasks", going)} == owners, (
        "the member takes exactly its own tasks"
    )


FIRST = ("node-1", "node-2", "node-3")
LATER = FOURTH, INSTEAD = ("node-4", "node-5")
EVERY_S = 0.5
DEADLINE_S = 60
"""Five nodes that start at the same time, on a busy machine, take half a minute."""


@pytest.mark.more
def test_members_are_added_replaced_and_removed_while_tasks_run(tmp_path: Path) -> None:
    """A fourth member is added, the third is lost and replaced in its slot, the second is removed."""
    env_of: dict[str, dict[str, str]] = {name: {} for name in FIRST}
    with Cluster(tmp_path, nodes=5, env_of=env_of) as cluster:
        places = dict(one.split("=", 1) for one in cluster.members.split(","))
        first = ",".join(f"{name}={places[name]}" for name in FIRST)
        env_of |= {name: {"ROTA_MEMBERS": first} for name in FIRST}
        env_of |= {
            name: {"ROTA_MEMBERS": f"{name}={places[name]}", "ROTA_JOIN": cluster.url("node-1")}
            for name in (FOURTH, INSTEAD)
        }
        cluster.start(*FIRST)
        _wait_until_up(cluster, *FIRST)
        cluster.ask("POST", "/v1/tasks", json=[{"name": f"rests-{n}", "kind": "probe"} for n in range(30)])
        often = {"schedule": {"every_s": EVERY_S}, "overlap": "allow", "catch_up": "all"}
        cluster.ask("POST", "/v1/tasks", json=[{"name": f"often-{n}", "kind": "probe", **often} for n in range(6)])
        notes = {name: cluster.notes() for name in FIRST}
        for name in FIRST:
            cluster.register(f"held-{name}", params={**notes[name].params, "steps": 2}, pin=name)
        held = {name: cluster.run(f"held-{name}") for name in FIRST}
        for name in FIRST:
            notes[name].wait("beat")

        cluster.start(FOURTH)
        _wait_until_up(cluster, *FIRST, FOURTH)
        cluster.register("pinned", pin=FOURTH)
        assert cluster.wait_for_run(cluster.run("pinned"))["node"] == FOURTH

        before, gone = _owners(cluster), "node-3"
        slot = cluster.member(gone)["slot"]
        cluster.kill(gone)
        cluster.lose_folder(gone)
        cluster.wait_for_attempt(held[gone], 2, "node-1")
        cluster.wait_for_status(gone, "down", node="node-1")
        assert cluster.ask("DELETE", path("v1", "members", gone), "node-1").status == 204
        cluster.start(INSTEAD)
        _wait_until_up(cluster, "node-1", "node-2", FOURTH, INSTEAD)
        assert cluster.member(INSTEAD)["slot"] == slot
        moved = {name: owner.replace(gone, INSTEAD) for name, owner in before.items()}
        assert _owners(cluster) == moved, "it must get exactly the tasks of the member that it replaces"

        assert cluster.ask("DELETE", "/v1/members/node-2", "node-1").status == 204
        wait_for("it ends by itself", lambda: cluster.exit_code("node-2") is not None)
        assert cluster.exit_code("node-2") == 0
        run = cluster.wait_for_attempt(held["node-2"], 2, "node-1")
        assert run["attempts"][0]["state"] != "orphaned", "the run was lost instead of handed over"
        _wait_until_up(cluster, "node-1", FOURTH, INSTEAD)
        for name in FIRST:
            notes[name].let_go()
            assert cluster.wait_for_run(held[name])["state"] == "succeeded"
            assert [note["step"] for note in notes[name].read("step")] == [0, 1], (
                "the run did not resume from its checkpoint"
            )
        assert_each_occurrence_once(cluster, [f"often-{number}" for number in range(6)])


def three_and_two(folder: Path, *asking: str) -> Cluster:
    """Five nodes as docker-compose.yml has them: the first three list themselves, the last two all five.

    Those that are `asking` ask to be let in.
    """
    env_of: dict[str, dict[str, str]] = {name: {} for name in FIRST} | {
        name: {"ROTA_AUTO_JOIN": "1"} for name in asking
    }
    cluster = Cluster(folder, nodes=5, env_of=env_of)
    for name in FIRST:
        env_of[name]["ROTA_MEMBERS"] = _three(cluster)
    return cluster


def _three(cluster: Cluster) -> str:
    return ",".join(cluster.members.split(",")[:3])


@pytest.mark.more
def test_three_members_become_five_and_three_again_while_the_three_run_on(tmp_path: Path) -> None:
    """One newcomer is let in by the command that it asks for, the other by itself."""
    by_hand, by_itself = LATER
    with three_and_two(tmp_path, by_itself) as cluster:
        cluster.start(*FIRST)
        _wait_until_up(cluster, *FIRST)
        incarnations = {name: cluster.member(name)["incarnation"] for name in FIRST}
        often = {"schedule": {"every_s": EVERY_S}, "overlap": "allow", "catch_up": "all"}
        cluster.ask("POST", "/v1/tasks", json=[{"name": f"often-{n}", "kind": "probe", **often} for n in range(6)])
        held = {name: _held(cluster, name) for name in FIRST}

        cluster.start(by_hand)

        def lacking() -> str:
            try:
                cluster.client_of(by_hand, 5).get("/readyz")
            except ApiProblem as problem:
                found = re.search(r"rota (join \S+ --id \S+ --at \S+)", problem.detail)
                return found[1] if found else ""
            return ""

        command = wait_for("it says what is lacking", lacking, DEADLINE_S)
        assert f"let it in with: rota {command}" in cluster.said(by_hand)
        assert Rota(cluster.url("node-1"))(*command.split()).code == 0
        _wait_until_up(cluster, *FIRST, by_hand)
        cluster.start(by_itself)
        _wait_until_up(cluster, *FIRST, *LATER)
        held |= {name: _held(cluster, name) for name in LATER}

        for name in reversed(LATER):
            wait_for("no change is under way", lambda name=name: _removed(cluster, name))  # type: ignore[misc]
            wait_for("it ends by itself", lambda name=name: cluster.exit_code(name) is not None)  # type: ignore[misc]
        _wait_until_up(cluster, *FIRST)
        assert {name: cluster.member(name)["incarnation"] for name in FIRST} == incarnations
        for name, (run_id, notes) in held.items():
            run = cluster.wait_for_attempt(run_id, 2 if name in LATER else 1)
            notes.let_go()
            run = cluster.wait_for_run(run_id)
            ends = [attempt["state"] for attempt in run["attempts"]]  # one that is handed over waits for the next
            assert ends == (["waiting", "succeeded"] if name in LATER else ["succeeded"])
        assert_each_occurrence_once(cluster, [f"often-{number}" for number in range(6)])


def _held(cluster: Cluster, name: str) -> tuple[str, Notes]:
    """A run on that member, which goes on until its notes let it go."""
    notes = cluster.notes()
    cluster.register(f"held-{name}", params={**notes.params, "steps": 2}, pin=name)
    run_id = cluster.run(f"held-{name}")
    notes.wait("beat")
    return run_id, notes


@pytest.mark.more
def test_five_nodes_begin_at_once_though_three_of_them_know_three(tmp_path: Path) -> None:
    """The three found the cluster and let the two in; killed in the middle of that, all come back."""
    with three_and_two(tmp_path, *LATER) as cluster:
        cluster.start()
        node = cluster.client_of("node-1", 5)
        wait_for("one of the two is let in", lambda: len(node.get("/v1/members")["items"]) > 3, DEADLINE_S)
        cluster.kill_at_once(*cluster.names)
        cluster.start()
        _wait_until_up(cluster, *FIRST, *LATER)


@pytest.mark.more
def test_a_cluster_that_five_have_founded_runs_on_with_a_list_of_three(tmp_path: Path) -> None:
    """As clusters of earlier versions do. A folder that is lost comes back from members that its list does not name."""
    env_of: dict[str, dict[str, str]] = {f"node-{number}": {} for number in range(1, 6)}
    with Cluster(tmp_path, nodes=5, env_of=env_of) as cluster:
        cluster.start()
        cluster.wait_until_whole(DEADLINE_S)
        for name in FIRST:
            env_of[name]["ROTA_MEMBERS"] = _three(cluster)
        cluster.kill_at_once(*cluster.names)
        cluster.lose_folder("node-1")
        cluster.start()
        _wait_until_up(cluster, *FIRST, *LATER)
        cluster.kill("node-2")
        cluster.lose_folder("node-2")
        cluster.kill("node-3")
        cluster.start("node-2")  # node-1, node-4 and node-5 are a majority; it lists one of them
        cluster.wait_until_ready("node-1", "node-2", *LATER, deadline_s=DEADLINE_S)


def _removed(cluster: Cluster, name: str) -> bool:
    """Request a change; while another one is unfinished the answer is 409."""
    return cluster.ask("DELETE", path("v1", "members", name), "node-1").status in (204, 404)


def _wait_until_up(cluster: Cluster, *names: str) -> None:
    """Wait until these are the members, and each is ready and up."""
    cluster.wait_until_ready(*names, deadline_s=DEADLINE_S)
    up = dict.fromkeys(names, "up")
    for name in names:
        wait_for(
            f"{name} sees all up",
            lambda name=name: (  # type: ignore[misc]
                {member["id"]: member["status"] for member in cluster.get("/v1/members", name)["items"]} == up
            ),
            DEADLINE_S,
        )


def _owners(cluster: Cluster) -> dict[str, str]:
    """The owner of each task that is not pinned."""
    tasks = cluster.all("/v1/tasks", consistent="true")
    return {task["name"]: task["owner"] for task in tasks if task["name"].startswith(("rests-", "often-"))}
