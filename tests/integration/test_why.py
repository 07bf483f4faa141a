"""Why does a task not run? Each reason is provoked really, on three nodes, and asked for at any of them."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from node.cli.local import NotInTime, wait_for
from node.client import path
from testkit import cluster_kinds
from testkit.cluster import Cluster
from testkit.faults.descriptors import starved

pytestmark = [pytest.mark.integration, pytest.mark.more]

NEVER = {"every_s": 86_400}
PATIENT = {"attempts": 3, "backoff_s": 600}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes with room for two attempts each, one of them of an engine. The third runs no commands, and its
    tzdata knows no time zone but UTC.
    """
    folder = tmp_path_factory.mktemp("cluster")
    python_path = cluster_kinds.install(folder / "kinds")
    older = folder / "older" / "tzdata"
    older.mkdir(parents=True)
    (older / "__init__.py").touch()
    (older / "zones").write_text("UTC\n")
    env = {"ROTA_MAX_RUNS": "2", "ROTA_ENGINES": "1", "PYTHONPATH": python_path}
    third = {"ROTA_ALLOW_COMMAND": "0", "PYTHONPATH": f"{older.parent}{os.pathsep}{python_path}"}
    with Cluster(folder, env=env, env_of={"node-3": third}) as made:
        made.start()
        made.wait_until_whole()
        yield made


def why(cluster: Cluster, task: str, code: str, node: str | None = None, run_id: str | None = None) -> Any:
    """The answer, once it has this code."""

    def asked() -> Any:
        answer = cluster.get(path("v1", "tasks", task, "why"), node, run_id=run_id)
        seen.append(answer["code"])
        return answer if answer["code"] == code else None

    seen: list[str] = []
    try:
        answer = wait_for(f"{task} is held: {code}", asked)
    except NotInTime:
        raise AssertionError(f"{task}: {seen}") from None
    assert answer["sentence"].startswith(f"{task} {'runs' if code == 'running' else 'does not run'}: ")
    assert [step["ends"] for step in answer["steps"]] == [False] * (len(answer["steps"]) - 1) + [True]
    return answer


def on(node: str) -> dict[str, Any]:
    """A task's fields that bind it to a node."""
    return {"group": {"node": node}}


def held(cluster: Cluster) -> dict[str, str]:
    """What is unexpectedly held, by task, as a list of all tasks says."""
    return {task["name"]: task["held"]["code"] for task in cluster.all("/v1/tasks") if task["held"] is not None}


def test_what_its_definition_its_schedule_and_the_members_hold(cluster: Cluster) -> None:
    cluster.register("off", schedule=NEVER, enabled=False)
    cluster.register("paused", schedule=NEVER)
    cluster.ask("POST", "/v1/tasks/paused/pause")
    cluster.register("past", schedule={"at": "2020-01-01T00:00:00Z"})
    cluster.register("hand")
    cluster.register("later", schedule=NEVER)
    cluster.register("on-tape", schedule=NEVER, group={"disk": "tape"})
    cluster.register("command", "command", params={"argv": ["true"]}, **on("node-3"))
    cluster.register("elsewhere", **on("node-2"))
    assert cluster.ask("POST", "/v1/members/node-2/drain").status == 200
    why(cluster, "off", "disabled")
    assert "rota resume paused" in why(cluster, "paused", "paused")["sentence"]
    why(cluster, "past", "over")
    why(cluster, "hand", "by_hand")
    assert why(cluster, "later", "not_due")["until"] is not None
    assert "no member has the label disk=tape" in why(cluster, "on-tape", "no_label")["detail"]
    for node in cluster.names:
        found = why(cluster, "command", "no_kind", node)
        assert "(node-3: its ROTA_ALLOW_COMMAND is not 1)" in found["detail"]
    assert "node-2 is draining" in why(cluster, "elsewhere", "members_draining")["detail"]
    unexpected = {"on-tape": "no_label", "command": "no_kind", "elsewhere": "members_draining"}
    assert held(cluster) == unexpected
    cluster.ask("POST", "/v1/members/node-2/undrain")
    cluster.wait_for_status("node-2", "up")
    why(cluster, "elsewhere", "by_hand")


def test_a_schedule_that_its_owner_cannot_evaluate(cluster: Cluster) -> None:
    schedule = {"cron": "* * * * * *", "timezone": "Europe/Paris"}
    cluster.register("foreign", node="node-1", schedule=schedule, **on("node-3"))
    for node, words in (("node-1", "node-3 cannot evaluate its schedule: "), ("node-3", "this member cannot evaluate")):
        found = why(cluster, "foreign", "unreadable", node)
        assert (found["member"], words in found["detail"]) == ("node-3", True)
        assert "'Europe/Paris' is not a time zone" in found["detail"]
        assert "install a newer tzdata on node-3" in found["sentence"]
    cluster.ask("DELETE", "/v1/tasks/foreign")


def test_what_its_runs_hold(cluster: Cluster) -> None:
    notes = cluster.notes()
    cluster.register("queued", params=notes.params, overlap="queue", **on("node-2"))
    first, second = cluster.run("queued"), cluster.run("queued")
    cluster.wait_for_attempt(first, 1)
    found = why(cluster, "queued", "behind")
    assert (found["run_id"], found["member"], found["runs"]) == (second, "node-2", [first])
    found = why(cluster, "queued", "running", run_id=first)
    assert (found["run_id"], found["member"]) == (first, "node-2")
    notes.let_go()
    cluster.wait_for_run(second)
    cluster.register("fails", params={"fail_attempts": 9}, retry=PATIENT)
    run_id = cluster.run("fails")
    found = why(cluster, "fails", "backing_off")
    assert (found["run_id"], found["until"] is not None) == (run_id, True)
    assert "after 1 failed attempt: RuntimeError: attempt 1 was told to fail" in found["detail"]
    needs = cluster.notes()
    cluster.register("patient", params={"needs": needs.params["gate"]})
    cluster.run("patient")
    assert "since a service that it needs does not answer: Away: " in why(cluster, "patient", "backing_off")["detail"]
    assert {"fails": "backing_off", "patient": "backing_off"}.items() <= held(cluster).items()


def test_a_secret_that_its_owner_lacks(cluster: Cluster) -> None:
    cluster.register("guarded", params={"secret": {"secret": "absent"}}, **on("node-2"))
    cluster.wait_for_run(cluster.run("guarded"), "failed")
    for node in ("node-1", "node-2"):
        found = why(cluster, "guarded", "secret", node)
        assert found["member"] == "node-2"
        assert "secret 'absent': cannot read" in found["detail"]
    (cluster.secrets_dir / "absent").write_text("hunter2")
    found = why(cluster, "guarded", "by_hand")
    assert found["detail"].endswith("(node-2 has the secrets that it names)")
    assert "hunter2" not in str(found)
    cluster.wait_for_run(cluster.run("guarded"), "succeeded")


def test_its_owner_has_no_place_for_it(cluster: Cluster) -> None:
    notes, gate = cluster.notes(), cluster.notes()
    tasks = ["place-1", "place-2", "place-3"]
    for name in tasks:
        cluster.register(name, params=notes.params, **on("node-2"))
    taken = [cluster.run(name) for name in tasks[:2]]
    for run_id in taken:
        cluster.wait_for_attempt(run_id, 1)
    waits = cluster.run("place-3")
    for node in cluster.names:
        found = why(cluster, "place-3", "max_runs", node)
        assert (found["run_id"], found["member"], found["runs"]) == (waits, "node-2", sorted(taken))
        assert "node-2 runs 2 attempts already (ROTA_MAX_RUNS)" in found["detail"]
    engines = ["engine-1", "engine-2"]
    for name in engines:
        cluster.register(name, "engine", params={"gate": gate.params["gate"]}, **on("node-1"))
    has_it = cluster.run("engine-1")
    cluster.wait_for_attempt(has_it, 1)
    cluster.run("engine-2")
    found = why(cluster, "engine-2", "bound", "node-3")
    assert (found["member"], found["runs"]) == ("node-1", [has_it])
    assert "(ROTA_ENGINES)" in found["detail"]

    def listed() -> bool:
        return {"place-3": "max_runs", "engine-2": "bound"}.items() <= held(cluster).items()

    wait_for("both have waited for a second", lambda: listed() or None)
    assert not {"place-1", "engine-1"} & held(cluster).keys(), "they run"
    for place in (notes, gate):
        place.let_go()
    cluster.wait_for_run(waits)


def test_its_owner_stands_aside_until_it_can_start_attempts(cluster: Cluster) -> None:
    """As with a full disk, the reason is the member's own."""
    cluster.register("starved", schedule={"every_s": 1}, **on("node-2"))
    wait_for("it runs", lambda: cluster.get("/v1/tasks/starved", "node-1")["last"])
    with starved(cluster.pid("node-2")):
        found = why(cluster, "starved", "members_draining", "node-1")
        assert "node-2 is draining (attempts cannot be started here " in found["detail"]
    cluster.wait_for_status("node-2", "up", node="node-1", deadline_s=60)
    cluster.ask("DELETE", "/v1/tasks/starved")


def test_the_members_that_it_needs_are_away(cluster: Cluster) -> None:
    """The last test: it ends with one node of three."""
    leader = cluster.wait_for_leader()
    lost, left = cluster.others(leader)
    notes = cluster.notes()
    cluster.register("bound", **on(lost))
    cluster.register("taken-over", params=notes.params, pin=lost, failover={"grace_s": 600})
    orphan = cluster.run("taken-over")
    cluster.wait_for_attempt(orphan, 1)
    cluster.pause(lost)
    cluster.run("bound", leader)
    found = why(cluster, "bound", "owner_away", leader)
    assert (found["member"], "does not answer" in found["detail"]) == (lost, True)
    found = why(cluster, "bound", "members_down", leader)
    assert f"{lost} is down" in found["detail"]
    found = why(cluster, "taken-over", "backing_off", leader)
    assert (found["run_id"], "grace period" in found["detail"]) == (orphan, True)
    stays = cluster.notes()
    cluster.register("stays", node=leader, params=stays.params, **on(left))
    cluster.wait_for_attempt(cluster.run("stays", leader), 1, node=leader)
    cluster.kill(lost)
    cluster.kill(leader)
    found = why(cluster, "bound", "no_quorum", left)
    assert (found["member"], len(found["steps"])) == (left, 1)

    def frozen() -> bool:
        return f"on {left} is frozen since " in why(cluster, "stays", "no_quorum", left)["detail"]

    wait_for("its attempt is frozen, for want of a lease", lambda: frozen() or None)
