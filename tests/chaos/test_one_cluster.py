"""Never more than one cluster, for any start lists and any lost disks (node/raft/founding/founding.py)."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from node.cli.local import wait_for
from testkit.cluster import Cluster
from testkit.http.reply import Reply

pytestmark = pytest.mark.chaos

THREE = ("node-1", "node-2", "node-3")
FOUR = (*THREE, "node-4")
FIVE = (*FOUR, "node-5")
APART_S = 4.0
"""For so long nobody reaches the others: a cluster was founded within two seconds, where a majority sufficed."""


WAIT_S = 60.0
"""Five nodes that are started at once may take their time."""


class Listed(Cluster):
    """Five nodes, started with the lists that a test gives them."""

    def __init__(self, folder: Path) -> None:
        self.lists: dict[str, tuple[str, ...]] = {}
        super().__init__(folder, len(FIVE))

    def environment(self, name: str) -> dict[str, str]:
        at = {one: self._plan[one] for one in self.lists.get(name, FIVE)}
        members = ",".join(f"{one}={self.host(one)}:{raft}:{http}" for one, (raft, http) in at.items())
        return {**super().environment(name), "ROTA_MEMBERS": members}

    def begin(self, *names: str, listed: tuple[str, ...]) -> None:
        """Start nodes with a list."""
        self.lists |= dict.fromkeys(names, listed)
        self.start(*names)

    def where(self, name: str) -> list[int]:
        """A node's Raft port and HTTP port."""
        return list(self._plan[name])

    def waits_for(self, name: str) -> str | None:
        """What a node reports that it waits for."""
        said: str | None = self.client_of(name, 5).get("/v1/cluster")["waiting_for"]
        return said

    def wait_until_it_waits(self, name: str, *words: str) -> None:
        """Wait until a node reports this reason for waiting."""
        wait_for(f"{name} waits: {words}", lambda: all(word in (self.waits_for(name) or "") for word in words), WAIT_S)

    def not_ready(self, name: str) -> str:
        """Why a node is not ready."""
        reply = self.ask("GET", "/readyz", name, fresh=False)
        assert reply.status == 503, reply.json
        return str(reply.json["detail"])


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Listed]:
    with Listed(tmp_path) as cluster:
        yield cluster


@pytest.mark.more
def test_a_member_that_lost_its_disk_does_not_found_with_waiting_nodes(cluster: Listed) -> None:
    """Three at work; two more with a list of five; node-1 comes back empty, with that list, while two do not answer."""
    cluster.begin(*THREE, listed=THREE)
    cluster.wait_until_ready(*THREE, deadline_s=WAIT_S)
    cluster.register("kept")
    cluster_id = cluster.get("/v1/cluster", "node-2")["id"]
    for name in ("node-2", "node-3"):
        cluster.pause(name)
    cluster.kill("node-1")
    cluster.lose_folder("node-1")
    cluster.begin("node-1", "node-4", "node-5", listed=FIVE)
    apart = ("node-1", "node-4", "node-5")
    for name in apart:
        cluster.wait_until_it_waits(name, "waiting to found a cluster: node-2, node-3 have not answered")
    end = time.monotonic() + APART_S
    while time.monotonic() < end:
        for name in apart:
            assert "node-2, node-3 have not answered" in cluster.not_ready(name)
            assert cluster.get("/v1/cluster", name, fresh=False)["id"] == ""
    for name in ("node-2", "node-3"):
        cluster.resume(name)
    cluster.wait_until_ready(*THREE, deadline_s=WAIT_S)
    for name in THREE:
        assert [task["name"] for task in cluster.all("/v1/tasks", name)] == ["kept"]
        assert cluster.get("/v1/cluster", name)["id"] == cluster_id
    for name in ("node-4", "node-5"):
        cluster.wait_until_it_waits(name, f"there is a cluster {cluster_id}", "this node is no member of it")
        assert cluster_id in cluster.not_ready(name)
    wait_for("its log says so", lambda: f"not ready: there is a cluster {cluster_id}" in cluster.said("node-4"))

    # Once admitted, it takes the members from the leader, not from its list.
    raft_port, http_port = cluster.where("node-4")
    seed = {"id": "node-4", "host": "127.0.0.1", "raft_port": raft_port, "http_port": http_port}
    assert cluster.ask("POST", "/v1/members", "node-1", json=seed).status == 201
    cluster.wait_until_ready("node-4", deadline_s=WAIT_S)
    assert [task["name"] for task in cluster.all("/v1/tasks", "node-4")] == ["kept"]

    # A node that was told of a cluster never founds one: that is on its disk.
    for name in cluster.running():
        cluster.kill(name)
    for name in FOUR:
        cluster.lose_folder(name)
    cluster.begin(*FIVE, listed=FIVE)
    for name in FIVE:
        cluster.wait_until_it_waits(name, f"there is a cluster {cluster_id}")


@pytest.mark.more
def test_differing_lists_do_not_found_until_corrected(cluster: Listed) -> None:
    right, wrong = ("node-2", "node-3", "node-4"), ("node-2", "node-3", "node-4", "node-5")
    cluster.begin("node-2", "node-3", listed=right)
    cluster.begin("node-4", listed=wrong)
    cluster.wait_until_it_waits("node-2", "that node-4 has", "it names node-5 besides")
    cluster.wait_until_it_waits("node-4", "node-5 has not answered", "that node-2 has", "it lacks node-5")
    cluster.wait_until_it_waits("node-3", "node-4 has (ROTA_MEMBERS) differs")
    cluster.stop("node-4")
    cluster.begin("node-4", listed=right)
    cluster.wait_until_ready(*right, deadline_s=WAIT_S)
    assert len({cluster.get("/v1/cluster", name)["id"] for name in right}) == 1
    # A member answers a node that its log does not name.
    cluster.begin("node-1", listed=("node-1", "node-3"))
    cluster.wait_until_it_waits("node-1", "of which node-3 is, and this node is no member of it")


@pytest.mark.more
def test_without_a_lost_member_a_cluster_is_founded_by_hand(cluster: Listed) -> None:
    cluster.begin("node-1", "node-2", listed=THREE)
    cluster.wait_until_it_waits("node-1", "node-3 has not answered")
    assert _found(cluster, "node-1", "node-2", "node-3").status == 409, (
        "more than half of the members would be left out"
    )
    assert _found(cluster, "node-1", "node-9").status == 409, "node-9 is on no list"

    def accepted() -> bool:
        return _found(cluster, "node-1", "node-3").status == 202

    wait_for("node-3 has been silent for long enough", accepted)
    cluster.wait_until_ready("node-1", "node-2", deadline_s=WAIT_S)
    assert [member["id"] for member in cluster.get("/v1/members", "node-2")["items"]] == ["node-1", "node-2"]
    assert _found(cluster, "node-1", "node-3").status == 409, "a cluster exists"
    cluster.begin("node-3", listed=THREE)
    cluster.wait_until_it_waits("node-3", "there is a cluster", "rota join")


def _found(cluster: Listed, node: str, *without: str) -> Reply:
    return cluster.ask("POST", "/v1/cluster/found", node, json={"without": list(without)}, fresh=False)
