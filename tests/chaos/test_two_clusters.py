"""Two clusters that meet do not merge, though they share secret, names and addresses (node/identity/cluster_id.py)."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node.cli.local import wait_for
from testkit.cluster import Cluster

pytestmark = pytest.mark.chaos


class Movable(Cluster):
    """A cluster whose nodes can be given other addresses, as by an error in a configuration."""

    def move(self, name: str, ports: list[int]) -> None:
        """Another address for a node, and all of the cluster told of it."""
        self.stop()
        self._plan[name] = ports
        self.start()
        self.wait_until_whole()

    def at(self, **addresses: list[int]) -> None:
        """Where its nodes take these members to be from their next start on."""
        self._plan |= {name.replace("_", "-"): ports for name, ports in addresses.items()}

    def where(self, name: str) -> list[int]:
        """A node's Raft port and HTTP port."""
        return list(self._plan[name])


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[tuple[Movable, Movable]]:
    """Two of three, of one secret, each with a task of its own."""
    (tmp_path / "b").mkdir()
    with Movable(tmp_path / "a") as a:
        shutil.copy(a.folder / "secret", tmp_path / "b/secret")
        with Movable(tmp_path / "b") as b:
            for cluster in (a, b):
                cluster.start()
            for name, cluster in (("of-a", a), ("of-b", b)):
                cluster.wait_until_whole()
                cluster.register(name)
            yield a, b
            for cluster in (a, b):
                cluster.check()


@pytest.mark.more
def test_another_clusters_node_at_a_dead_members_port_is_refused(clusters: tuple[Movable, Movable]) -> None:
    a, b = clusters
    notes = a.notes()
    notes.let_go()
    a.register("logged", params=notes.params, pin="node-2")
    logged = a.wait_for_run(a.run("logged"))
    ids, before = (_id(a), _id(b)), (_members(a), _members(b))
    a.kill("node-2")
    a.wait_for_status("node-2", "down", node="node-1")
    home = b.where("node-2")
    b.move("node-2", a.where("node-2"))

    refusal = f"node-2 belongs to cluster {ids[1]}, this node to cluster {ids[0]}"
    wait_for("it is refused by name", lambda: refusal in a.said("node-3"))
    wait_for("and told so", lambda: f"node-3 belongs to cluster {ids[0]}" in b.said("node-2"))
    answer = a.ask("GET", f"/v1/runs/{logged['run_id']}/log", "node-1")
    assert (answer.status, answer.problem) == (503, "member-away"), "asked for a log of the other cluster's"
    assert _tasks(a, "node-1") == {"of-a", "logged"}
    assert all(_tasks(b, name) == {"of-b"} for name in b.names)
    assert a.member("node-2", "node-1")["status"] == "down"
    assert a.register("more", node="node-1")["version"] == 1, "the two that are left are a majority"
    assert a.said("node-3").count(refusal) == 1

    b.move("node-2", home)
    a.mend()
    assert (_members(a), _members(b)) == before
    assert (_id(a), _id(b)) == ids


@pytest.mark.more
def test_messages_of_another_clusters_node_are_ignored(
    clusters: tuple[Movable, Movable],
) -> None:
    a, b = clusters
    term = a.get("/v1/cluster")["term"]
    incarnations = {member["id"]: member["incarnation"] for member in a.get("/v1/members")["items"]}
    refusal = f"node-3 belongs to cluster {_id(b)}, this node to cluster {_id(a)}"
    b.stop()  # all of it: those that go on dial a node-3 that was away for long, which then has no need to call a's
    homes = {"node_1": b.where("node-1"), "node_2": b.where("node-2")}
    b.at(node_1=a.where("node-1"), node_2=a.where("node-2"))
    b.start("node-3")
    for name in ("node-1", "node-2"):
        wait_for("the caller is refused", lambda name=name: refusal in a.said(name))  # type: ignore[misc]
    a.register("after")
    assert a.get("/v1/cluster")["term"] == term, "its connections disconnected the real node-3"
    assert {member["id"]: member["incarnation"] for member in a.get("/v1/members")["items"]} == incarnations
    b.kill("node-3")
    b.at(**homes)
    b.start()
    b.wait_until_whole()
    assert _tasks(a, "node-1") == {"of-a", "after"}
    assert _tasks(b, "node-3") == {"of-b"}


def _id(cluster: Cluster) -> str:
    return str(cluster.get("/v1/cluster")["id"])


def _tasks(cluster: Cluster, node: str) -> set[str]:
    return {task["name"] for task in cluster.all("/v1/tasks", node)}


def _members(cluster: Cluster) -> list[tuple[Any, ...]]:
    return [(member["id"], member["slot"], member["url"]) for member in cluster.get("/v1/members", "node-1")["items"]]
