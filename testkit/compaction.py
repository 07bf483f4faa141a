"""A cluster whose log begins with a snapshot: a member without its disk gets the state, and no finished runs."""

from typing import Final

from node.cli.local import wait_for
from node.raft.consensus import APART
from node.raft.ports import RaftTiming
from testkit.cluster import Cluster

COMPACTED_BYTES: Final = int((1 + APART) * RaftTiming().log_bytes)
"""More than the log of any member may hold: what was before is in a snapshot then."""


def compact(cluster: Cluster, *names: str) -> None:
    """Write until each of these members has a snapshot of what was before."""
    for turn in range(COMPACTED_BYTES // 900_000):
        reply = cluster.ask(
            "POST", "/v1/tasks", json=[{"name": "large", "kind": "probe", "params": {"says": f"{turn:06}" * 150_000}}]
        )
        assert reply.status == 200
    assert cluster.ask("DELETE", "/v1/tasks/large").status == 204
    wait_for("a snapshot is made", lambda: all((cluster.folder / name / "raft/snapshot").exists() for name in names))
