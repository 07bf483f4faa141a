"""A rate on real nodes: what starts keeps its distance and its pace, also when a member dies meanwhile."""

from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from node.cli.local import wait_for
from testkit.cluster import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.more]

STARTS = 60
PER_MIN = 120
APART_S = 60 / PER_MIN


def test_sixty_runs_start_at_a_hundred_and_twenty_a_minute_and_no_faster(tmp_path: Path) -> None:
    with Cluster(tmp_path, 3) as cluster:
        cluster.start()
        cluster.wait_until_whole()
        assert cluster.ask("PATCH", "/v1/settings", json={"pools": {"api": 1}}).status == 200
        names = [f"call-{number:02}" for number in range(STARTS)]
        for name in names:
            rate = {"pool": "api", "per_min": PER_MIN}
            cluster.register(name, "command", params={"argv": ["true"]}, retry={"attempts": 1}, rate=rate)
        for name in names:
            cluster.run(name)
        wait_for("one that waits for its rate", lambda: _why(cluster, names)["code"] == "rate", 20)
        why = _why(cluster, names)
        assert "waits for the rate of the pool api: the next start in " in why["sentence"] and why["until"], why
        begun = _claims(cluster, names)
        gaps_s = _gaps_s(begun)
        took_s = (begun[-1] - begun[0]).total_seconds()
        print(f"{STARTS} starts in {took_s:.2f} s: {60 * (STARTS - 1) / took_s:.1f} a minute, max {max(gaps_s):.3f} s")
        assert min(gaps_s) >= APART_S, gaps_s
        assert len({run["node"] for run in _runs(cluster, names)}) > 1, "several members have started them"


def test_a_failover_is_a_start_too(tmp_path: Path) -> None:
    with Cluster(tmp_path, 3) as cluster:
        cluster.start()
        cluster.wait_until_whole()
        assert cluster.ask("PATCH", "/v1/settings", json={"pools": {"api": 1}}).status == 200
        rate = {"pool": "api", "per_min": 20}
        for name, argv in (("sleeps", ["sleep", "600"]), ("next", ["true"]), ("last", ["true"])):
            cluster.register(name, "command", params={"argv": argv}, rate=rate)
        cluster.run("sleeps")
        wait_for("it to run", lambda: _running(cluster, "sleeps"), 20)
        [run] = _running(cluster, "sleeps")
        cluster.kill(run["node"])
        left = cluster.others(run["node"])[0]
        wait_for("the lost run to be taken over", lambda: _running(cluster, "sleeps", left, run["node"]), 30)
        for name in ("next", "last"):
            cluster.run(name, left)
        claims = _claims(cluster, ["next", "last"], left)
        [over] = _running(cluster, "sleeps", left)
        starts = [datetime.fromisoformat(over["claimed_at"]), *claims]
        assert over["attempt"] == 2 and min(_gaps_s(starts)) >= 3.0, starts
        assert cluster.ask("DELETE", f"/v1/runs/{over['run_id']}", left).status == 202


def _gaps_s(times: list[datetime]) -> list[float]:
    return [(later - earlier).total_seconds() for earlier, later in pairwise(times)]


def _why(cluster: Cluster, names: list[str]) -> Any:
    return cluster.get(f"/v1/tasks/{names[-1]}/why")


def _running(cluster: Cluster, name: str, node: str | None = None, but: str = "") -> list[Any]:
    """The runs that work, but on the node `but`, which is dead."""
    runs = cluster.all(f"/v1/tasks/{name}/runs", node)
    return [run for run in runs if run["state"] == "running" and run["node"] != but]


def _runs(cluster: Cluster, names: list[str], node: str | None = None) -> list[Any]:
    return [run for name in names for run in cluster.all(f"/v1/tasks/{name}/runs", node)]


def _claims(cluster: Cluster, names: list[str], node: str | None = None) -> list[datetime]:
    """When the runs of the tasks were claimed, in order, once all have succeeded."""
    wait_for("all to start", lambda: cluster.get("/v1/pools", node)["items"][0]["waiters"] == 0, 120)
    wait_for("all to end", lambda: all(run["state"] == "succeeded" for run in _runs(cluster, names, node)), 60)
    return sorted(datetime.fromisoformat(run["claimed_at"]) for run in _runs(cluster, names, node))
