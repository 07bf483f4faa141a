"""Nodes are partitioned: work without a lease stops before another node starts it.

The rules are in docs/explanation/leases-and-claims.md.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from node.cli.local import wait_for
from testkit.network import SeparateCluster, why_not
from testkit.processes import process_state
from tests.chaos.test_failover import assert_finished_once, assert_taken_over, underway

pytestmark = pytest.mark.chaos


@pytest.fixture(scope="module")
def separate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeparateCluster]:
    """Three nodes with an address each, in the state in which the last test left them."""
    if (why := why_not()) is not None:
        pytest.skip(why)
    with SeparateCluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture
def cluster(separate: SeparateCluster) -> Iterator[SeparateCluster]:
    """All of them up and connected. The invariants are checked when the test is over."""
    separate.mend()
    yield separate
    separate.check()


def test_a_cut_off_leader_stops_its_work_before_another_node_starts_it(cluster: SeparateCluster) -> None:
    leader = cluster.wait_for_leader()
    other = cluster.others(leader)[0]
    lost = underway(cluster, "cut-leader", leader)
    incarnation = cluster.member(leader)["incarnation"]
    cluster.cut_off(leader)
    wait_for("it knows that it is alone", lambda: not cluster.get("/v1/cluster", leader, fresh=False)["quorum"])
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(cluster.ask, "PUT", "/v1/tasks/never", leader, json={"kind": "probe"}, fresh=False)
        assert_taken_over(cluster, lost, other)
        assert process_state(lost.worker) == "T"
        assert cluster.member(leader, other)["reason"] == "silent"
        assert cluster.run_of(lost.run_id, leader, fresh=False)["attempt"] == 1, "reads are answered from its own state"
    assert asked.result().problem == "no-quorum"
    cluster.heal()
    wait_for("its worker is killed", lambda: process_state(lost.worker) in ("", "Z"))
    cluster.wait_until_whole()
    assert cluster.member(leader)["incarnation"] == incarnation + 1
    assert_finished_once(cluster, lost)
    assert cluster.ask("GET", "/v1/tasks/never", consistent="true").status == 404


def test_a_follower_that_receives_nothing_stops_its_work(cluster: SeparateCluster) -> None:
    """One direction only: its own heartbeats arrive, but echo nothing new and so prove nothing."""
    leader = cluster.wait_for_leader()
    owner = cluster.others(leader)[0]
    lost = underway(cluster, "cut-deaf", owner)
    cluster.cut_off(owner, ways=("INPUT",))
    assert_taken_over(cluster, lost, leader)
    assert process_state(lost.worker) == "T"
    cluster.heal()
    cluster.wait_until_whole()
    assert_finished_once(cluster, lost)


def test_a_follower_cut_off_from_the_leader_only_stops_its_work(cluster: SeparateCluster) -> None:
    """The third member hears both, which does not help, as only the leader grants leases."""
    leader = cluster.wait_for_leader()
    owner, other = cluster.others(leader)
    lost = underway(cluster, "cut-from-leader", owner)
    cluster.cut_off(owner, leader)
    assert_taken_over(cluster, lost, other)
    assert process_state(lost.worker) == "T"
    cluster.heal()
    cluster.wait_until_whole()
    assert_finished_once(cluster, lost)
