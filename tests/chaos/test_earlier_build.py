"""The data folders that an earlier build left behind: a cluster uses them after a stop and a start.

`golden/cluster-062539c.tar.zst` holds the folders of three members as commit 062539c left them after kill -9: a
snapshot each, a log in which one member was added and another removed, one run under way, and a history.
"""

import json
import tarfile
from pathlib import Path

import pytest
import zstandard

from node.cli.local import LocalCluster, wait_for
from node.cli.ports import free_ports

pytestmark = [pytest.mark.chaos, pytest.mark.more]

FOLDERS = Path(__file__).parents[1] / "golden" / "cluster-062539c.tar.zst"
MEMBERS = ("node-1", "node-2", "node-4")
CLUSTER_ID = "e37226574509e351"


def test_data_folders_of_an_earlier_build_are_used(tmp_path: Path) -> None:
    with zstandard.open(FOLDERS) as packed, tarfile.open(fileobj=packed, mode="r|") as archive:
        archive.extractall(tmp_path, filter="data")
    folder = tmp_path / "cluster"
    ports = free_ports(8)
    names = ("node-1", "node-2", "node-3", "node-4")
    plan = {name: [ports[2 * index], ports[2 * index + 1]] for index, name in enumerate(names)}
    (folder / "cluster.json").write_text(json.dumps(plan))
    with LocalCluster(folder, 4) as cluster:
        cluster.start(*MEMBERS)
        cluster.wait_until_ready(*MEMBERS, deadline_s=60)
        client = cluster.client_of("node-4")
        seen = client.get("/v1/cluster")
        assert (seen["id"], {member["id"] for member in seen["members"]}) == (CLUSTER_ID, set(MEMBERS))
        tasks = {task["name"]: task for task in client.items("/v1/tasks")}
        named = {"every", "fails", "paused", "busy", "docs", "sticky"}
        assert set(tasks) == {f"cron-{number:02}" for number in range(30)} | named
        assert tasks["paused"]["paused"]
        assert tasks["fails"]["last"]["state"] == "failed"
        assert tasks["docs"]["last"]["state"] == "succeeded"
        assert tasks["every"]["version"] == 1
        for name in MEMBERS:
            runs = {run["task"]: run["state"] for run in cluster.client_of(name).items("/v1/runs", state="failed")}
            assert runs == {"fails": "failed"}, f"the history of {name}"
        busy = wait_for(
            "the run that was under way goes on",
            lambda: next(iter(client.get("/v1/runs", task="busy", state="running")["items"]), None),
        )
        # Its first attempt was handed over by the member that was removed, the second was killed.
        assert [attempt["state"] for attempt in busy["attempts"]] == ["waiting", "orphaned", "running"]
        run_id = client.call("POST", "/v1/tasks/every/runs", body={}).json["run_id"]
        wait_for("new work is done", lambda: client.get(f"/v1/runs/{run_id}")["state"] == "succeeded")
