"""A task that runs on each member, on three real nodes, of which one is killed and removed meanwhile."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from node.cli.local import wait_for
from node.cli.main import rota
from tasks.definition.run import ACTIVE
from testkit.cluster import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.more]


def test_each_member_has_a_run_of_its_own_which_nobody_takes_over(tmp_path: Path) -> None:
    with Cluster(tmp_path, 3) as cluster:
        cluster.start()
        cluster.wait_until_whole()
        work = 'echo "$ROTA_TASK $ROTA_RUN_ID" >> "$HERE"; while [ ! -e "$HERE.go" ]; do sleep 0.05; done'
        (folder := tmp_path / "work").mkdir()
        argv = ["sh", "-c", work.replace("$HERE", str(folder / "began"))]
        cluster.register("clean", "command", params={"argv": argv}, each=True, failover={"max": 3})
        cluster.register("report", "command", params={"argv": ["true"]}, after=["clean"])
        started = cluster.ask("POST", "/v1/tasks/clean/runs", json={"downstream": True}).json
        assert [run_id.partition("@")[2] for run_id in started["run_ids"]] == ["node-1", "node-2", "node-3"]
        wait_for("all to work", lambda: _states(cluster, "clean") == ["running"] * 3, 30)
        began = [f"clean {run_id}" for run_id in started["run_ids"]]
        wait_for("all to begin", lambda: sorted(_lines(folder / "began")) == began, 20)
        assert {run["member"]: run["node"] for run in _runs(cluster, "clean")} == {
            f"node-{number}": f"node-{number}" for number in (1, 2, 3)
        }
        lost = cluster.others(cluster.wait_for_leader())[0]
        left = cluster.others(lost)[0]
        cluster.kill(lost)
        wait_for("the lost run", lambda: _states(cluster, "clean", left).count("orphaned") == 1, 20)
        (folder / "began.go").touch()
        wait_for("the others to end", lambda: _states(cluster, "clean", left).count("succeeded") == 2, 20)
        why = cluster.get("/v1/tasks/clean/why", left)
        assert (why["code"], why["member"]) == ("member_away", lost), why
        assert _runs(cluster, "report", left) == []
        assert cluster.ask("DELETE", f"/v1/members/{lost}", left).status in (202, 204)
        wait_for("its run to end", lambda: "orphaned" not in _states(cluster, "clean", left), 20)
        assert sorted(_states(cluster, "clean", left)) == ["cancelled", "succeeded", "succeeded"]
        wait_for("what comes after it", lambda: _states(cluster, "report", left) == ["succeeded"], 20)
        again = cluster.ask("POST", "/v1/tasks/clean/runs", left, json={}).json
        assert {run_id.partition("@")[2] for run_id in again["run_ids"]} == set(cluster.others(lost))
        wait_for("all to end", lambda: not set(_states(cluster, "clean", left)) & ACTIVE, 20)


def test_an_action_asks_the_member_that_is_named(tmp_path: Path) -> None:
    with Cluster(tmp_path, 2) as cluster:
        cluster.start()
        cluster.wait_until_whole()
        cluster.register("look", params={"steps": 3}, each=True)
        env = {"ROTA_URL": cluster.url("node-1")}
        for node in cluster.names:
            done = CliRunner().invoke(rota, ["preview", "look", "--rows", "2", "--on", node], env=env)
            assert (done.exit_code, done.output.count("step ")) == (0, 2), done.output
        assert [run["node"] for run in _runs(cluster, "look")] == ["node-2", "node-1"]
        for words, said in (([], "name the one that is asked"), (["--on", "node-9"], "it runs on node-1, node-2")):
            done = CliRunner().invoke(rota, ["preview", "look", *words], env=env)
            assert done.exit_code != 0
            assert said in done.output + str(done.exception), done.output


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _runs(cluster: Cluster, task: str, node: str | None = None) -> list[Any]:
    return cluster.all(f"/v1/tasks/{task}/runs", node)


def _states(cluster: Cluster, task: str, node: str | None = None) -> list[str]:
    return [run["state"] for run in _runs(cluster, task, node)]
