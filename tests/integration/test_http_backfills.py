"""Backfills over HTTP."""

import json
from typing import Any

import pytest

from node.state.attempts import Finish
from node.state.backfills import AdvanceBackfill
from node.state.members import TakeLead
from node.state.times import rfc3339
from node.state.value import RULES
from tasks.installed_kinds import InstalledKinds, KindEntry
from testkit.http.fake_node import NOW_US, Copy
from testkit.http.http_cluster import Servers, on_loop, servers

pytestmark = pytest.mark.integration

HOUR = 3_600_000_000
FROM_US = NOW_US // (24 * HOUR) * 24 * HOUR - 24 * HOUR
BODY = {"from": rfc3339(FROM_US), "to": rfc3339(FROM_US + 10 * HOUR)}


async def given(served: Servers, **spec: Any) -> None:
    served.cluster.ok(TakeLead(NOW_US, "node-1", 1, RULES))
    await served.put_task("a", **({"schedule": {"cron": "0 * * * *"}, "retry": {"attempts": 1}} | spec))
    await served.put_task("b", after=["a"], overlap="allow")


async def post(served: Servers, task: str = "a", **body: Any) -> Any:
    return await served.ask("POST", f"/v1/tasks/{task}/backfills", json=BODY | body)


def run_next(served: Servers, number: int, hour: int, end: str = "succeeded") -> str:
    """Let the next occurrence begin, run and end."""
    cluster = served.cluster
    position_us = cluster.machine.state.backfills[number].position_us
    cluster.ok(AdvanceBackfill(NOW_US, number, position_us, FROM_US + hour * HOUR))
    [run_id] = cluster.machine.state.runs_of["a"]
    token = served.claim(run_id, "node-1")
    cluster.ok(Finish(NOW_US + 1, run_id, token, end))  # type: ignore[arg-type]
    return run_id


@on_loop
async def test_a_backfill_from_its_plan_to_its_end() -> None:
    async with servers() as served:
        await given(served)
        plan = await post(served, dry_run=True, downstream=True)
        assert (plan.status, plan.json) == (
            200,
            {
                "task": "a",
                **BODY,
                "total": 10,
                "first": rfc3339(FROM_US),
                "last": rfc3339(FROM_US + 9 * HOUR),
                "tasks": ["a", "b"],
                "one_at_a_time": ["a"],
                "estimate_s": None,
            },
        )
        assert (await served.get("/v1/backfills")).json == {"items": []}
        begun = await post(served)
        number = begun.json["number"]
        assert (begun.status, begun.headers["Location"]) == (202, f"/v1/backfills/{number}")
        assert (begun.json["status"], begun.json["total"], begun.json["left"]) == ("running", 10, 10)
        assert (await post(served)).status == 409, "another one has these times"
        assert (await post(served, dry_run=True)).status == 409, "a dry run answers as the call itself would"
        run_next(served, number, 0)
        failed = run_next(served, number, 1, "failed")
        position_us = served.cluster.machine.state.backfills[number].position_us
        served.cluster.ok(AdvanceBackfill(NOW_US, number, position_us, FROM_US + 2 * HOUR))
        served.cluster.now_us = NOW_US + HOUR
        view = (await served.get(f"/v1/backfills/{number}")).json
        [run_id] = served.cluster.machine.state.runs_of["a"]
        assert view["in_flight"] == [{"at": rfc3339(FROM_US + 2 * HOUR), "runs": [run_id]}]
        assert view["failures"] == [{"at": rfc3339(FROM_US + HOUR), "run_id": failed}]
        assert (view["succeeded"], view["failed"], view["left"]) == (1, 1, 8)
        assert view["per_hour"] > 0 and view["left_s"] > 0
        run = (await served.get(f"/v1/runs/{run_id}")).json
        assert (run["backfill"], run["fire_at"], run["state"]) == (number, rfc3339(FROM_US + 2 * HOUR), "waiting")
        paused = await served.ask("POST", f"/v1/backfills/{number}/pause")
        assert (paused.json["status"], paused.json["left_s"]) == ("paused", None)
        assert (await served.ask("POST", f"/v1/backfills/{number}/resume")).json["status"] == "running"
        assert (await served.ask("DELETE", f"/v1/backfills/{number}")).json["status"] == "cancelled"
        assert (await served.ask("POST", f"/v1/backfills/{number}/resume")).status == 409
        again = await post(served, dry_run=True)
        assert again.json["estimate_s"] is not None


@on_loop
async def test_metrics_count_what_is_left() -> None:
    async with servers() as served:
        await given(served)
        number = (await post(served)).json["number"]
        async with served.session.get(served.url("/metrics")) as reply:
            text = await reply.text()
        assert f'rota_backfill_left{{backfill="{number}",task="a"}} 10.0' in text


@on_loop
async def test_what_is_refused() -> None:
    async with servers() as served:
        await given(served)
        for task, body, says in (
            ("b", {}, "backfill a with the tasks after it (--downstream)"),
            ("a", {"to": BODY["from"]}, "has no times"),
            ("a", {"from": "1960-01-01T00:00:00Z"}, "1970"),
            ("a", {"parallel": 17}, "16"),
            ("a", {"to": rfc3339(NOW_US + HOUR)}, "times that are past"),
        ):
            refused = await post(served, task, **body)
            assert (refused.status, says in json.dumps(refused.json)) == (422, True), refused.json
        assert (await post(served, "c")).status == 404
        assert (await served.get("/v1/backfills/7")).status == 404
        assert (await served.get("/v1/backfills/x")).status == 404
        assert (await served.ask("DELETE", "/v1/backfills/7")).status == 404


class Ledger(Copy):
    """A kind whose runs build upon one another."""

    one_at_a_time = True


@on_loop
async def test_a_kind_may_refuse() -> None:
    async with servers() as served:
        await given(served)
        served.node.kinds = InstalledKinds({"copy": KindEntry("copy", f"{__name__}:Ledger")})
        refused = await post(served, downstream=True)
        assert refused.status == 422
        assert "b cannot be backfilled: its runs build upon one another" in json.dumps(refused.json)
        assert (await post(served)).status == 202, "alone"
