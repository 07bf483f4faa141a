"""GET /metrics."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from node.duty.overdue import Overdue
from node.state.attempts import Began, Finish
from node.state.members import MarkDown, TakeLead
from node.state.settings import ChangeSettings
from node.state.telling import PutChannel
from node.state.times import rfc3339
from node.state.value import RULES
from testkit.http.fake_node import NOW_US
from testkit.http.http_cluster import on_loop, servers
from tests.unit.node.state.given import hook

pytestmark = pytest.mark.integration

DEPLOY = Path(__file__).parents[2] / "deploy"


@on_loop
async def test_metrics_are_in_prometheus_format() -> None:
    async with servers(("node-1", "node-2")) as served:
        await served.put_task("a")
        await served.start_run()
        text = (await served.get("/metrics")).body.decode()
        for line in (
            'rota_members{status="up"} 2.0',
            "rota_tasks 1.0",
            'rota_active_runs{state="waiting"} 1.0',
            'rota_occurrences_passed_over_total{state="missed"} 0.0',
            "rota_raft_term 3.0",
            "rota_raft_is_leader 1.0",
            "rota_raft_has_quorum 1.0",
            "rota_lease_held 1.0",
            "rota_majority_at_risk 0.0",
            'rota_http_proposals_total{code="ok",entry="PutTasks"} 1.0',
            'rota_http_request_seconds_count{method="PUT",path="/v1/tasks/{name}",status="201"} 1.0',
        ):
            assert f"\n{line}\n" in text, line
        served.cluster.ok(TakeLead(NOW_US, "node-1", 1, RULES))
        served.cluster.ok(MarkDown(NOW_US, "node-2", 1, "gone", 1))
        assert "\nrota_majority_at_risk 1.0\n" in (await served.get("/metrics")).body.decode()


@on_loop
async def test_a_start_at_a_rate_in_a_pool_is_shown() -> None:
    async with servers() as served:
        served.cluster.ok(TakeLead(NOW_US, "node-1", 1, RULES))
        served.cluster.ok(ChangeSettings(NOW_US, {"pools": {"api": 1}}))
        await served.put_task("a", rate={"pool": "api", "per_min": 30})
        run_id = await served.start_run("a")
        shown = 'rota_pool_last_start_timestamp_seconds{pool="api"}'
        assert shown not in (await served.get("/metrics")).body.decode()
        [pool] = (await served.get("/v1/pools")).json["items"]
        assert (pool["next_start"], pool["tasks"], pool["waiters"]) == (None, 1, 1)
        served.claim(run_id, "node-1")
        [line] = [one for one in (await served.get("/metrics")).body.decode().splitlines() if one.startswith(shown)]
        assert float(line.rpartition(" ")[2]) == NOW_US / 1e6
        [pool] = (await served.get("/v1/pools")).json["items"]
        assert (pool["next_start"], pool["used"]) == (rfc3339(NOW_US + 2_000_000), 0)


@on_loop
async def test_the_alert_rules_and_the_board_ask_for_metrics_that_there_are() -> None:
    async with servers(("node-1", "node-2")) as served:
        served.cluster.ok(TakeLead(NOW_US, "node-1", 1, RULES))
        served.cluster.ok(PutChannel(NOW_US, "ops", hook().pack()))
        await served.put_task("a")
        run_id = await served.start_run("a")
        token = served.claim(run_id, "node-1")
        served.cluster.ok(Began(NOW_US, run_id, token))
        served.cluster.ok(Finish(NOW_US + 2_500_000, run_id, token, "succeeded"))
        there = set(re.findall(r"^(rota_\w+)", (await served.get("/metrics")).body.decode(), re.MULTILINE))
        for file in ("prometheus/rota.rules.yml", "grafana/rota.json"):
            asked = set(re.findall(r"\brota_\w+", (DEPLOY / file).read_text()))
            assert asked - there - {"rota_start_delay_seconds_bucket"} == set(), file  # a fake node has no such delays
            assert len(asked) > 5


@on_loop
async def test_the_tasks_registered_first_have_metrics_of_their_own() -> None:
    async with servers(("node-1", "node-2")) as served:
        served.cluster.ok(TakeLead(NOW_US, "node-1", 1, RULES))
        for name in ("b", "a", "left-out"):
            await served.put_task(name)
        run_id = await served.start_run("b")
        token = served.claim(run_id, "node-1")
        served.cluster.ok(Began(NOW_US, run_id, token))
        served.cluster.ok(Finish(NOW_US + 2_500_000, run_id, token, "succeeded"))
        asked = served.nodes["node-2"]
        asked.settings = replace(asked.settings, metrics_tasks=2)
        asked.overdue_now = Overdue(3, 70.5)
        text = (await served.get("/metrics", node="node-2")).body.decode()
        for line in (
            'rota_runs_total{state="succeeded"} 1.0',
            'rota_runs_total{state="failed"} 0.0',
            'rota_task_runs_total{state="succeeded",task="b"} 1.0',
            'rota_task_runs_total{state="abandoned",task="a"} 0.0',
            'rota_task_last_success_timestamp_seconds{task="b"} 1.7950000025e+09',
            'rota_task_last_duration_seconds{task="b"} 2.5',
            "rota_tasks_without_metrics 1.0",
            "rota_overdue_tasks 3.0",
            "rota_overdue_seconds 70.5",
        ):
            assert f"\n{line}\n" in text, line
        assert 'task="left-out"' not in text
        assert 'last_success_timestamp_seconds{task="a"}' not in text, "it never succeeded"
