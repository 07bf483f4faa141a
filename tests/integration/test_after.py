"""Tasks that are due after others, on real nodes, one of which is killed meanwhile."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from node.cli.local import wait_for
from tasks.definition.run import ACTIVE
from testkit.cluster import Cluster

pytestmark = pytest.mark.integration


def _register(cluster: Cluster, name: str, *argv: str, **spec: Any) -> None:
    cluster.register(name, "command", params={"argv": list(argv)}, overlap="allow", retry={"attempts": 1}, **spec)


def _ends(cluster: Cluster, name: str, node: str | None = None) -> dict[str, list[str]]:
    """The states of a task's runs by their times."""
    found: dict[str, list[str]] = {}
    for run in cluster.all(f"/v1/tasks/{name}/runs", node):
        found.setdefault(run["fire_at"], []).append(run["state"])
    return found


@pytest.mark.more
def test_each_occurrence_goes_through_all_tasks_once_though_the_leader_is_killed(tmp_path: Path) -> None:
    with Cluster(tmp_path, 3) as cluster:
        cluster.start()
        cluster.wait_until_whole()
        _register(cluster, "root", "true", schedule={"every_s": 1})
        _register(cluster, "good", "true", after=["root"])
        _register(cluster, "bad", "false", after=["root"])
        _register(cluster, "join", "true", after=["good", "root"])
        _register(cluster, "never", "true", after=["bad", "good"])
        _register(cluster, "deeper", "true", after=["never"])
        _register(cluster, "alarm", "true", after=[{"task": "bad", "on": "failed"}, "good"])
        wait_for("the first occurrences", lambda: len(_ends(cluster, "alarm")) >= 3, 60)
        leader = cluster.wait_for_leader()
        cluster.kill(leader)
        left = cluster.others(leader)[0]
        before = len(_ends(cluster, "root", left))
        wait_for("occurrences without it", lambda: len(_ends(cluster, "root", left)) >= before + 4, 60)
        paused = cluster.ask("POST", "/v1/tasks/root/pause", left)
        assert paused.status == 200, paused.body
        wait_for("all to end", lambda: not _unended(cluster, left), 60)
        times = set(_ends(cluster, "root", left))
        begun = {name: _ends(cluster, name, left) for name in ("good", "bad", "join", "never", "deeper", "alarm")}
        assert all(len(states) == 1 for ends in begun.values() for states in ends.values())
        first = min(begun["join"])
        ran = {at for at, states in _ends(cluster, "root", left).items() if states == ["succeeded"] and at >= first}
        counts = {name: Counter(states[0] for at, states in ends.items() if at in ran) for name, ends in begun.items()}
        assert counts == {
            "good": {"succeeded": len(ran)},
            "bad": {"failed": len(ran)},
            "join": {"succeeded": len(ran)},
            "never": {"upstream_failed": len(ran)},
            "deeper": {"upstream_failed": len(ran)},
            "alarm": {"succeeded": len(ran)},
        }
        assert all(set(ends) <= times for ends in begun.values())


def _unended(cluster: Cluster, node: str) -> list[Any]:
    """What is under way, or has to be passed on, as a node sees it."""
    last = {task["name"]: task["last"]["fire_at"] for task in cluster.all("/v1/tasks", node) if task["last"]}
    return [run for run in cluster.all("/v1/runs", node) if run["state"] in ACTIVE] + [
        name for name, at in last.items() if at != last["root"]
    ]


def _succeeded(cluster: Cluster, name: str, node: str | None = None) -> int:
    return sum(states == ["succeeded"] for states in _ends(cluster, name, node).values())


@pytest.mark.more
def test_a_task_waits_at_times_of_its_own_though_the_leader_is_killed(tmp_path: Path) -> None:
    with Cluster(tmp_path, 3) as cluster:
        cluster.start()
        cluster.wait_until_whole()
        _register(cluster, "slow", "sleep", "1.2", schedule={"cron": "*/3 * * * * *"})
        _register(cluster, "hangs", "sleep", "600", schedule={"cron": "*/3 * * * * *"})
        _register(cluster, "report", "true", after=["slow"], schedule={"cron": "*/2 * * * * *"})
        _register(cluster, "below", "true", after=["report"])
        _register(cluster, "late", "true", after=["hangs"], schedule={"cron": "*/4 * * * * *"}, wait_s=1)
        wait_for("the first occurrences", lambda: _succeeded(cluster, "below") >= 2, 60)
        leader = cluster.wait_for_leader()
        cluster.kill(leader)
        left = cluster.others(leader)[0]
        before = _succeeded(cluster, "below", left)
        wait_for("occurrences without it", lambda: _succeeded(cluster, "below", left) >= before + 3, 60)
        wait_for("one that is late", lambda: len(_ends(cluster, "late", left)) >= 2, 60)
        for task in ("report", "late", "slow", "hangs"):
            paused = cluster.ask("POST", f"/v1/tasks/{task}/pause", left)
            assert paused.status == 200, paused.body
        slow, report, below = (_ends(cluster, name, left) for name in ("slow", "report", "below"))
        assert all(len(states) == 1 for ends in (report, below) for states in ends.values())
        ran = [at for at, states in report.items() if states == ["succeeded"]]
        assert len(ran) >= before + 3
        latest = {at: max((one for one in slow if one <= at), default=None) for at in ran}
        assert all(one is not None and slow[one] == ["succeeded"] for one in latest.values()), latest
        assert {states[0] for states in _ends(cluster, "late", left).values()} <= {"upstream_late", "upstream_skipped"}
