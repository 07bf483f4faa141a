"""Two of three are dead: reads are answered, writes are refused, nothing hangs."""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from node.cli.local import wait_for
from testkit.cluster import Cluster
from testkit.command import Rota
from testkit.http.reply import Reply

pytestmark = pytest.mark.chaos

ANSWER_S = 10.0
"""So long may a write that waits for a majority take: the API's own limit, and as much again."""


def test_without_a_quorum_reads_succeed_and_writes_fail_with_a_reason(cluster: Cluster) -> None:
    survivor = cluster.wait_for_leader()
    notes = cluster.notes()
    cluster.register("before", params=notes.params, pin=survivor)
    finished = cluster.notes()
    finished.let_go()
    cluster.register("finished", params=finished.params)
    over = cluster.wait_for_run(cluster.run("finished"), node=survivor)
    run_id = cluster.run("before")
    notes.wait("beat")
    for lost in cluster.others(survivor):
        cluster.kill(lost)
    with ThreadPoolExecutor(2) as pool:
        asked = pool.submit(_ask, cluster, survivor, "PUT", "/v1/tasks/perhaps", {"kind": "probe"})
        wait_for("the loss is noticed", lambda: not cluster.get("/v1/cluster", survivor)["quorum"])
        _assert_reads_answer(cluster, survivor, run_id, over)
        pausing = pool.submit(Rota(cluster.url(survivor)), "pause", "before")
        refused = _at_once(
            cluster,
            survivor,
            ("PUT", "/v1/tasks/new", {"kind": "probe"}),
            ("POST", "/v1/tasks", [{"name": "new", "kind": "probe"}]),
            ("DELETE", "/v1/tasks/finished", {}),
            ("POST", "/v1/tasks/finished/runs", {}),
            ("PATCH", "/v1/settings", {"history_days": 7}),
            ("POST", f"/v1/members/{lost}/drain", {}),
            ("DELETE", f"/v1/members/{lost}", {}),
            ("GET", "/v1/tasks/before?consistent=true", {}),
        )
        for what, reply in refused.items():
            assert (reply.status, reply.problem) == (503, "no-quorum"), (what, reply.body)
        perhaps = asked.result()
    assert (perhaps.status, perhaps.problem) in {(503, "no-quorum"), (504, "outcome-unknown")}
    assert (pausing.result().code, pausing.result().out) == (3, "")

    cluster.mend()
    known = {task["name"] for task in cluster.all("/v1/tasks")}
    assert {"before", "finished"} <= known
    assert "new" not in known
    assert cluster.register("perhaps")["version"] == 1, "it was registered more than once"
    assert cluster.get("/v1/settings")["history_days"] == 30
    assert cluster.register("after", params=notes.params)["version"] == 1
    notes.let_go()
    assert cluster.wait_for_run(run_id)["state"] == "succeeded"
    assert cluster.run_of(over["run_id"]) == over


def _assert_reads_answer(cluster: Cluster, survivor: str, run_id: str, over: Any) -> None:
    assert cluster.get("/v1/tasks/before", survivor)["owner"] == survivor
    assert cluster.run_of(over["run_id"], survivor) == over
    assert cluster.run_of(run_id, survivor)["attempt"] == 1
    assert {member["id"] for member in cluster.get("/v1/members", survivor)["items"]} == set(cluster.names)
    assert cluster.get("/v1/plan", survivor, without=survivor)["load"]
    assert cluster.ask("GET", "/healthz", survivor).status == 200
    wait_for("its lease is over", lambda: cluster.ask("GET", "/readyz", survivor).status == 503)
    assert cluster.ask("GET", "/readyz", survivor).problem == "not-ready"


def _ask(cluster: Cluster, node: str, method: str, target: str, body: Any) -> Reply:
    begun = time.monotonic()
    path, _, query = target.partition("?")
    consistent = query.partition("=")[2] or None
    reply = cluster.ask(method, path, node, json=body, timeout_s=60, fresh=False, consistent=consistent)
    assert time.monotonic() - begun < ANSWER_S, f"{method} {target} hung"
    return reply


def _at_once(cluster: Cluster, node: str, *calls: tuple[str, str, Any]) -> dict[str, Reply]:
    with ThreadPoolExecutor(len(calls)) as pool:
        asked = {
            f"{method} {target}": pool.submit(_ask, cluster, node, method, target, body)
            for method, target, body in calls
        }
    return {what: reply.result() for what, reply in asked.items()}
