"""Tasks that take too much of a node: each run says why it ended, and the node and what else it runs go on."""

import sys
import time
from typing import Any

import pytest

from testkit.cluster import Cluster
from testkit.execution import greedy

pytestmark = pytest.mark.integration

ONCE = {"attempts": 1}


def python(script: str) -> dict[str, Any]:
    return {"argv": [sys.executable, "-c", script]}


def run(cluster: Cluster, name: str, params: dict[str, Any], **limits: Any) -> str:
    cluster.register(name, "command", params=params, limits=limits, pin="node-1", retry=ONCE, group={"node": "node-1"})
    return cluster.run(name)


def error(cluster: Cluster, run_id: str) -> str:
    found = cluster.wait_for_run(run_id, "failed", deadline_s=60)
    assert found["node"] == "node-1"
    return str(found["error"])


def test_greedy_attempts_end_and_say_why_and_their_node_and_neighbours_go_on(cluster: Cluster) -> None:
    incarnation = cluster.member("node-1")["incarnation"]
    neighbour = run(cluster, "limits-neighbour", {"argv": ["sleep", "300"]})
    cluster.wait_for_run(neighbour, "running")
    given: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "bomb": (python(greedy.BOMB.format(most=2000, child="os.setsid()")), {"processes": 64}),
        "hog": (python(greedy.HOG.format(most_mib=1536)), {"memory": "256MiB"}),
        "filler": (python(greedy.FILL.format(most_mib=512)), {"scratch": "16MiB"}),
        "talker": ({"argv": ["sh", "-c", "yes | head -c 100000000; exit 0"]}, {"log": "1MiB"}),
    }
    runs = {name: run(cluster, f"limits-{name}", params, **limits) for name, (params, limits) in given.items()}
    said = {name: error(cluster, runs[name]) for name in ("bomb", "hog", "filler")}
    assert said["bomb"].startswith("over its limit of processes: it had "), said
    assert said["bomb"].endswith("limits.processes allows 64")
    assert said["hog"].startswith("over its limit of memory: "), said
    assert said["hog"].endswith("limits.memory allows 256 MiB")
    assert said["filler"].startswith("over its limit of scratch: its scratch folder held "), said
    assert said["filler"].endswith("limits.scratch allows 16 MiB")
    talker = cluster.wait_for_run(runs["talker"], "succeeded", deadline_s=60)
    assert [attempt["log_truncated"] for attempt in talker["attempts"]] == [True]
    assert cluster.run_of(neighbour)["state"] == "running"
    member = cluster.member("node-1")
    assert (member["status"], member["incarnation"]) == ("up", incarnation), "it has kept its lease"
    cluster.ask("DELETE", f"/v1/runs/{neighbour}")
    cluster.wait_for_run(neighbour, "cancelled")
    for name in (*given, "neighbour"):
        cluster.ask("DELETE", f"/v1/tasks/limits-{name}")


@pytest.mark.more
def test_a_gigabyte_of_log_leaves_the_node_as_it_is(cluster: Cluster) -> None:
    command = {"argv": ["sh", "-c", "yes | head -c 1000000000; exit 0"]}
    run_id = run(cluster, "limits-gigabyte", command, log="1MiB")
    begun_s, longest_s = time.monotonic(), 0.0
    while cluster.run_of(run_id)["state"] not in ("succeeded", "failed"):
        asked_s = time.monotonic()
        cluster.get("/v1/cluster", "node-1")
        longest_s = max(longest_s, time.monotonic() - asked_s)
        assert time.monotonic() < begun_s + 120
    assert cluster.run_of(run_id)["attempts"][0]["log_truncated"] is True
    assert longest_s < 5
    cluster.ask("DELETE", "/v1/tasks/limits-gigabyte")


def test_a_limit_over_the_node_s_fails_the_run_before_it_begins(cluster: Cluster) -> None:
    run_id = run(cluster, "limits-refused", python("open('/tmp/rota-ran', 'w')"), processes=5000)
    assert error(cluster, run_id) == (
        "limits.processes is 5000, and one attempt may have 4096 on node-1 (ROTA_LIMIT_PROCESSES); lower the limit, or "
        "raise what the member allows"
    )
    cluster.ask("DELETE", "/v1/tasks/limits-refused")


def test_limits_are_told_as_they_are_stored_and_change_no_owner(cluster: Cluster) -> None:
    cluster.register("limits-told", "command", params={"argv": ["true"]})
    before = cluster.get("/v1/cluster")["epoch"]
    changed = cluster.register("limits-told", "command", params={"argv": ["true"]}, limits={"memory": "1GiB", "cpu": 1})
    assert (changed["version"], changed["limits"]["memory"], changed["limits"]["cpu"]) == (2, 2**30, 1.0)
    assert cluster.get("/v1/cluster")["epoch"] == before
    again = cluster.register("limits-told", "command", params={"argv": ["true"]}, limits=changed["limits"])
    assert again["version"] == 2
    refused = cluster.ask("PUT", "/v1/tasks/limits-told", json={"kind": "command", "limits": {"memory": "1G"}})
    assert refused.status == 422
    assert "is not a size" in str(refused.body)
    cluster.ask("DELETE", "/v1/tasks/limits-told")
