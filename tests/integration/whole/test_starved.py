"""A node without free file descriptors cannot start attempts: other members run what is due."""

import pytest

from node.cli.local import wait_for
from testkit.cluster import Cluster
from testkit.faults.descriptors import starved

pytestmark = pytest.mark.integration


@pytest.mark.more
def test_other_members_run_what_a_node_without_descriptors_cannot_start(cluster: Cluster) -> None:
    cluster.register("starved", "command", params={"argv": ["true"]}, pin="node-1", schedule={"every_s": 1})
    try:

        def done_by(*nodes: str) -> bool:
            runs = cluster.get("/v1/tasks/starved/runs", "node-2", state="succeeded")["items"]
            return bool(runs) and runs[0]["node"] in nodes

        wait_for("node-1 to run it", lambda: done_by("node-1") or None)
        with starved(cluster.pid("node-1")):
            cluster.wait_for_status("node-1", "draining", node="node-2")
            wait_for("another to run it", lambda: done_by("node-2") or None)
        assert "this node takes on nothing new" in cluster.said("node-1")
    finally:
        cluster.ask("DELETE", "/v1/tasks/starved", "node-2")
        cluster.ask("POST", "/v1/members/node-1/undrain", "node-2")
    cluster.wait_until_whole()
