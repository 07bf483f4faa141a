"""A disk hangs: its node still receives and sends messages, but cannot work."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from node.cli.local import wait_for
from testkit.cluster import Cluster
from testkit.faults.small_disk import SmallDisk, why_not
from tests.chaos.test_failover import assert_finished_once, assert_taken_over, underway

pytestmark = pytest.mark.chaos

HUNG = "node-3"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    (tmp_path / "cluster").mkdir()
    made = SmallDisk(tmp_path / "cluster" / HUNG)
    yield made
    made.close()


@pytest.fixture
def cluster(disk: SmallDisk) -> Iterator[Cluster]:
    """Three nodes; the disk of one of them can hang, and does not when they are to end."""
    with Cluster(disk.folder.parent) as made:
        made.mend()
        yield made
        disk.thaw()
        made.check()


@pytest.mark.more
def test_work_moves_away_from_a_node_with_a_hung_disk_until_the_disk_answers(cluster: Cluster, disk: SmallDisk) -> None:
    if cluster.wait_for_leader() == HUNG:  # the others would elect another one within a second
        cluster.kill(HUNG)
        cluster.wait_for_leader(HUNG)
        cluster.restart(HUNG)
    leader = cluster.wait_for_leader()
    lost = underway(cluster, "hung-disk", HUNG)
    disk.freeze()
    # It answers from memory; its state is not the latest.
    wait_for("it says that it is of no use", lambda: cluster.ask("GET", "/readyz", HUNG, fresh=False).status == 503)
    # The log says so after a second (`REPORT_AFTER_S`); it knew no leader any more after 0.8 s (`quorum_s`).
    wait_for("its log says why", lambda: "Raft thread blocked for" in cluster.said(HUNG))
    assert not cluster.get("/v1/cluster", HUNG, fresh=False)["quorum"], "the answer must be marked as outdated"
    down = cluster.wait_for_status(HUNG, "down", node=leader)
    assert down["reason"] == "silent"
    assert_taken_over(cluster, lost, leader)
    disk.thaw()
    cluster.wait_until_whole()
    assert "Raft thread resumed after" in cluster.said(HUNG)
    assert_finished_once(cluster, lost)
