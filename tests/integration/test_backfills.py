"""A backfill of a chain on real nodes, whose leader is killed meanwhile: each occurrence once, in order."""

from pathlib import Path
from typing import Any

import pytest

from node.cli.local import wait_for
from testkit.cluster import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.more]

TIMES = 30
FROM, TO = "2026-01-01T00:00:00Z", "2026-01-01T00:30:00Z"


def _register(cluster: Cluster, name: str, *argv: str, **spec: Any) -> None:
    cluster.register(name, "command", params={"argv": list(argv)}, **spec)


def _backfill(cluster: Cluster, number: int, node: str) -> Any:
    return cluster.get(f"/v1/backfills/{number}", node)


def test_each_occurrence_of_a_chain_once_in_order_though_the_leader_is_killed(tmp_path: Path) -> None:
    with Cluster(tmp_path, 3) as cluster:
        cluster.start()
        cluster.wait_until_whole()
        _register(cluster, "root", "true", schedule={"cron": "* * * * *"}, overlap="queue")
        _register(cluster, "join", "true", after=["root"])
        _register(cluster, "report", "true", after=["join"])
        cluster.ask("POST", "/v1/tasks/root/pause")
        begun = cluster.ask(
            "POST", "/v1/tasks/root/backfills", json={"from": FROM, "to": TO, "downstream": True, "parallel": 2}
        )
        assert (begun.status, begun.json["total"]) == (202, TIMES), begun.json
        number = begun.json["number"]
        leader = cluster.wait_for_leader()
        left = cluster.others(leader)[0]
        wait_for("the first ones", lambda: _backfill(cluster, number, left)["succeeded"] >= 5, 60)
        cluster.kill(leader)
        wait_for("its end", lambda: _backfill(cluster, number, left)["status"] == "done", 120)
        found = _backfill(cluster, number, left)
        assert (found["succeeded"], found["failed"], found["skipped"], found["left"]) == (TIMES, 0, 0, 0)
        for task in ("root", "join", "report"):
            runs = [run for run in cluster.all(f"/v1/tasks/{task}/runs", left) if run["backfill"] == number]
            assert [run["state"] for run in runs] == ["succeeded"] * TIMES
            # Tokens rise from claim to claim. A claim's attempt may never have started: the leader may have held it.
            begun_in_order = [run["fire_at"] for run in sorted(runs, key=lambda run: run["attempts"][0]["token"])]
            assert begun_in_order == sorted(set(begun_in_order)), f"{task}: each once, the oldest first"
            assert cluster.get(f"/v1/tasks/{task}", left)["last"] is None, "none of them is the task's last one"
