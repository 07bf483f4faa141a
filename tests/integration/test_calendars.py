"""Calendars and blackouts on real nodes, of which the leader is killed meanwhile."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from node.cli.local import wait_for
from testkit.cluster import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.more]

EACH_SECOND = {"cron": "* * * * * *"}
AROUND_TODAY = [str((datetime.now(UTC) + timedelta(days=number)).date()) for number in range(-1, 3)]


def test_a_calendar_and_a_blackout_hold_for_all_members_though_the_leader_dies(tmp_path: Path) -> None:
    with Cluster(tmp_path, 3) as cluster:
        cluster.start()
        cluster.wait_until_whole()
        assert cluster.ask("PUT", "/v1/calendars/closing", json={"dates": AROUND_TODAY}).status == 201
        quick: dict[str, Any] = {"params": {"argv": ["true"]}}
        cluster.register("dense", "command", schedule=EACH_SECOND, calendar={"skip": ["closing"]}, **quick)
        cluster.register("by-hand", "command", **quick)
        nightly = {"cron": "0 3 * * *", "timezone": "Europe/Berlin"}
        cluster.register("report", "command", schedule=nightly, calendar={"skip": ["holidays/DE-BY"]}, **quick)
        days = [_days(cluster, node) for node in cluster.names]
        assert days[0] == days[1] == days[2] and len(days[0]) > 20
        why = cluster.get("/v1/tasks/dense/why")
        assert why["code"] == "not_due" and "falls out (closing)" in why["detail"], why
        assert cluster.all("/v1/tasks/dense/runs") == []
        # Other days count at once, on whichever member the task is.
        assert cluster.ask("PUT", "/v1/calendars/closing", json={"dates": []}).status == 200
        wait_for("runs by calendar", lambda: len(_succeeded(cluster, "dense")) >= 2, 20)
        # In a blackout nothing begins, whoever leads.
        ends = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        assert cluster.ask("PUT", "/v1/blackouts/move", json={"ends": ends}).status == 200
        wait_for("what runs to end", lambda: not _active(cluster, "dense"), 20)
        begun = len(cluster.all("/v1/tasks/dense/runs"))
        cluster.run("by-hand")
        wait_for("the reason", lambda: cluster.get("/v1/tasks/by-hand/why")["code"] == "blackout", 20)
        leader = cluster.wait_for_leader()
        cluster.kill(leader)
        left = cluster.others(leader)[0]
        cluster.wait_for_leader(leader, node=left)
        cluster.wait_for_status(leader, "down", node=left)
        assert cluster.get("/v1/tasks/by-hand/why", left)["code"] == "blackout"
        wait_for("several occurrences to be held", lambda: _held_s(cluster, left) > 3, 20)
        assert len(cluster.all("/v1/tasks/dense/runs", left)) == begun
        assert cluster.ask("DELETE", "/v1/blackouts/move", left).status == 204
        wait_for("the run by hand", lambda: len(_succeeded(cluster, "by-hand", left)) == 1, 30)
        wait_for("more runs by calendar", lambda: len(cluster.all("/v1/tasks/dense/runs", left)) > begun + 1, 30)
        held = [run for run in cluster.all("/v1/tasks/dense/runs", left) if run["state"] == "missed"]
        assert sum(run["count"] for run in held) >= 1, "catch_up is latest: what was held before is missed"


def _held_s(cluster: Cluster, node: str) -> float:
    """For how long the oldest occurrence has been held."""
    why = cluster.get("/v1/tasks/dense/why", node)
    if why["code"] != "blackout":
        return 0.0
    since = datetime.fromisoformat(why["detail"].removeprefix("due since ").partition(";")[0])
    return (datetime.now(UTC) - since).total_seconds()


def _days(cluster: Cluster, node: str) -> Any:
    where = "/v1/calendars/holidays%2FDE-BY"
    wait_for("the public holidays", lambda: cluster.ask("GET", where, node).status == 200, 20)
    return cluster.get(where, node)["dates"]


def _succeeded(cluster: Cluster, task: str, node: str | None = None) -> list[Any]:
    return [run for run in cluster.all(f"/v1/tasks/{task}/runs", node) if run["state"] == "succeeded"]


def _active(cluster: Cluster, task: str) -> bool:
    return any(run["state"] in ("claimed", "running") for run in cluster.all(f"/v1/tasks/{task}/runs"))
