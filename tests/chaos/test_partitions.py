"""Nodes are partitioned: work without a lease stops before another node starts it.

The rules are in docs/explanation/leases-and-claims.md.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from node.cli.local import wait_for
from testkit.faults.network import SeparateCluster, why_not
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


@pytest.mark.more
def test_a_node_whose_heartbeats_are_lost_says_that_it_has_no_lease(cluster: SeparateCluster) -> None:
    """It is up for as long as nobody calls it down, and its API answers."""
    leader = cluster.wait_for_leader()
    lost = cluster.others(leader)[0]
    assert cluster.ask("PATCH", "/v1/settings", leader, json={"window_s": 60}).status == 200
    notes = cluster.notes()
    cluster.register("goes-on", params=notes.params, group={"node": lost})
    cluster.register("waits", group={"node": lost})
    begun = cluster.run("goes-on")
    cluster.wait_for_attempt(begun, 1)
    cluster.lose_heartbeats(lost, leader)

    def frozen() -> bool:
        found = cluster.get("/v1/tasks/goes-on/why", leader)
        return (found["code"], found["member"]) == ("running", lost) and ", is frozen since " in found["detail"]

    wait_for("its attempt is frozen", lambda: frozen() or None)
    waits = cluster.run("waits", leader)
    found = cluster.get("/v1/tasks/waits/why", leader)
    assert (found["code"], found["member"], found["run_id"]) == ("no_lease", lost, waits)
    assert cluster.member(lost, leader)["status"] == "up"
    cluster.heal()
    assert cluster.wait_for_run(waits)["state"] == "succeeded"
    notes.let_go()
    assert cluster.wait_for_run(begun)["attempt"] == 1, "it has gone on"
    assert cluster.ask("PATCH", "/v1/settings", leader, json={"window_s": 1}).status == 200
