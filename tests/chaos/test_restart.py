"""Nodes stop and start again on their folders: nothing that was acknowledged is lost (docs/explanation/promises.md)."""

from typing import Any

import pytest

from node.cli.local import wait_for
from testkit.cluster import Cluster
from testkit.compaction import compact

pytestmark = pytest.mark.chaos


@pytest.mark.more
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_full_restart_loses_nothing(cluster: Cluster, how: str) -> None:
    done, held = cluster.notes(), cluster.notes()
    done.let_go()
    cluster.register(f"{how}-done", params={**done.params, "steps": 2}, weight=3)
    cluster.register(f"{how}-held", params={**held.params, "steps": 2}, schedule={"every_s": 86_400})
    over = cluster.wait_for_run(cluster.run(f"{how}-done"))
    run_id = cluster.run(f"{how}-held")
    held.wait("beat")
    before = {task["name"]: task for task in cluster.all("/v1/tasks")}
    settings = cluster.ask("PATCH", "/v1/settings", json={"history_days": 11}).json

    if how == "stopped":
        cluster.stop()
        assert [cluster.exit_code(name) for name in cluster.names] == [0, 0, 0]
    else:
        for name in cluster.names:
            cluster.kill(name)
        wait_for("no worker outlives its node", lambda: not _workers(cluster))
    assert not _workers(cluster)
    cluster.mend()

    for name in cluster.names:
        assert {task["name"]: _definition(task) for task in cluster.all("/v1/tasks", name)} == {
            task: _definition(told) for task, told in before.items()
        }
        assert cluster.run_of(over["run_id"], name) == over
        assert cluster.get("/v1/settings", name) == settings
    run = cluster.wait_for_attempt(run_id, 2)
    assert held.wait("begin", attempt=2)["step"] == 2, "the run did not resume from its checkpoint"
    held.let_go()
    assert cluster.wait_for_run(run_id)["token"] == run["token"]


def _workers(cluster: Cluster) -> list[int]:
    return [pid for name in cluster.names for pid in cluster.workers(name)]


def _definition(task: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in task.items() if name not in ("owner", "next_fire_at", "last")}


@pytest.mark.more
def test_a_node_with_an_empty_folder_recovers_state_and_history(cluster: Cluster) -> None:
    """A snapshot holds no finished runs: those are fetched from the other members."""
    notes = cluster.notes()
    notes.let_go()
    cluster.register("history", params=notes.params)
    over = [cluster.wait_for_run(cluster.run("history")) for _ in range(5)]
    victim = cluster.others(cluster.wait_for_leader())[0]
    cluster.kill(victim)
    others = cluster.others(victim)
    compact(cluster, *others)
    late = cluster.wait_for_run(cluster.run("history"))

    cluster.lose_folder(victim)
    cluster.restart(victim)
    expected = {run["run_id"]: run for run in [*over, late]}

    def all_there() -> bool:
        return {run["run_id"]: run for run in cluster.all("/v1/tasks/history/runs", victim)} == expected

    wait_for("the finished runs are there", all_there)
    assert cluster.all("/v1/tasks", victim) == cluster.all("/v1/tasks", others[0])
    cluster.wait_until_whole()
    cluster.register("pinned", params=notes.params, pin=victim)
    assert cluster.wait_for_run(cluster.run("pinned"))["node"] == victim
