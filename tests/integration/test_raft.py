"""Three members in processes of their own: what PySyncObj does wrong, and what must hold in spite of it."""

import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from node.cli.local import wait_for
from node.cli.ports import free_ports
from node.raft.adapter import Raft
from node.raft.errors import DamagedData, LogStoreInUse, PortInUse
from node.raft.ports import RaftOwner, RaftSettings
from testkit.raft.raft_cluster import Cluster
from testkit.raft.raft_member import Ledger

pytestmark = pytest.mark.integration

Make = Callable[..., Cluster]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Cluster] = []

    def make(**settings: Any) -> Cluster:
        made.append(Cluster(tmp_path, **settings))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()


def acknowledged(cluster: Cluster, member: str, acked: set[int]) -> None:
    """Every member holds each entry whose commit a client was told of."""
    for process in cluster.running.values():
        kept = {sequence for proposer, _, sequence in process.do("keys")["keys"] if proposer == member}
        assert acked <= kept, f"{process.me} lacks {sorted(acked - kept)[:5]}"


@pytest.mark.more
def test_20_000_entries_from_two_members_truncate_nothing(make: Make) -> None:
    """With the library alone, a follower truncated acknowledged entries two dozen times in 5,000."""
    cluster = make(timing={"batch_bytes": 1, "flights": 200})  # an entry for each proposal, so that there are 20,000
    cluster.start()
    pushing = [(process, process.ask("push", start=0, count=10_000, window=500)) for process in cluster.followers()]
    for process, number in pushing:
        assert process.answer(number, 60)["failed"] == []
    for state in cluster.same(20_000):
        assert state["truncated"] == 0
        assert state["alarms"] == []
    assert all(len({role["term"] for role in process.roles if role["leader"]}) == 1 for process, _ in pushing)


@pytest.mark.chaos
def test_acknowledged_entries_survive_kill_9_of_the_leader(make: Make) -> None:
    cluster = make()
    cluster.start()
    pushing = {process.me: process.ask("push", start=0, count=3_000, window=40) for process in cluster.followers()}
    pushers = {member: cluster.running[member] for member in pushing}
    leader = cluster.leader()
    leader.ask("push", start=0, count=3_000, window=40)
    wait_for("some to be acknowledged", lambda: all(len(process.acked) > 300 for process in cluster.running.values()))
    cluster.kill(leader.me)
    for member, number in pushing.items():
        assert pushers[member].answer(number)["failed"] == []
    cluster.start(leader.me)
    cluster.leader()
    for member, process in pushers.items():
        assert process.acked == set(range(3_000))
        acknowledged(cluster, member, process.acked)
    acknowledged(cluster, leader.me, leader.acked)
    counted = cluster.running[leader.me].do("state")["count"]
    assert all(state["alarms"] == [] for state in cluster.same(counted))


@pytest.mark.more
@pytest.mark.chaos
def test_entries_survive_a_kill_of_all_members_and_a_restart_at_new_addresses(make: Make) -> None:
    """Compose's down and up give new addresses; the folders remain."""
    cluster = make()
    cluster.start()
    cluster.leader()
    before = dict(cluster.running)
    for process in before.values():
        process.ask("push", start=0, count=5_000, window=20)
    wait_for("some to be acknowledged", lambda: all(len(process.acked) > 200 for process in before.values()))
    for member in before:
        cluster.kill(member)
    cluster.addresses = {
        member: ("localhost", port) for member, port in zip(cluster.addresses, free_ports(3), strict=True)
    }
    cluster.start()
    leader = cluster.leader()
    leader.do("barrier", timeout_s=10)
    cluster.same(leader.do("state")["count"])
    for member, process in before.items():
        acknowledged(cluster, member, process.acked)


def test_a_retry_under_the_same_id_is_answered_and_applied_once(make: Make) -> None:
    cluster = make()
    cluster.start()
    for process in cluster.running.values():
        for _ in range(3):
            assert process.do("once", sequence=7, timeout_s=10)["code"] == "ok"
    # A member may have applied all three and the last retry not yet.
    wait_for("six retries on each", lambda: {state["repeated"] for state in cluster.same(3)} == {6})


@pytest.mark.more
@pytest.mark.chaos
def test_a_lagging_or_empty_member_receives_a_snapshot(make: Make) -> None:
    cluster = make(timing={"batch_bytes": 1, "log_entries": 200})
    cluster.start()
    leader = cluster.leader()
    lagging, wiped = cluster.followers()
    leader.do("push", start=0, count=100, window=20, size=2_000)
    cluster.same(100)
    cluster.kill(lagging.me)
    leader.do("push", start=100, count=1_000, window=20, size=2_000)
    wait_for("the log to be compacted", lambda: leader.do("state")["first_index"] > 600)
    cluster.start(lagging.me)
    states = cluster.same(1_100)
    assert all(state["first_index"] > 600 for state in states)
    cluster.kill(wiped.me)
    shutil.rmtree(cluster.folder / wiped.me)
    cluster.start(wiped.me)
    cluster.same(1_100)
    wait_for("it to vote again", lambda: cluster.running[wiped.me].do("state")["votes"])
    cluster.leader().do("push", start=2_000, count=50, window=20)
    cluster.same(1_150)
    cluster.stop()
    cluster.start()
    cluster.leader()
    cluster.same(1_150)


@pytest.mark.chaos
def test_a_member_joins_and_the_leader_is_removed(make: Make) -> None:
    cluster = make(members=4)
    newcomer = cluster.addresses.pop("n4")
    cluster.start()
    leader = cluster.leader()
    leader.do("push", start=0, count=200, window=20)
    leader.do("add", member="n4", host=newcomer[0], port=newcomer[1])
    cluster.addresses["n4"] = newcomer
    cluster.start("n4")
    cluster.same(200)
    follower = cluster.followers()[0]
    follower.do("remove", member=leader.me)
    cluster.stop(leader.me)
    del cluster.addresses[leader.me]
    cluster.leader().do("push", start=1_000, count=50, window=20)
    states = cluster.same(250)
    assert all(state["members"] == sorted(cluster.addresses) for state in states)
    cluster.kill(cluster.leader().me)  # two of three are left
    cluster.leader().do("once", sequence=9_999, timeout_s=10)
    cluster.same(251)


@pytest.mark.chaos
@pytest.mark.parametrize("newcomer", [pytest.param("n5", marks=pytest.mark.more), "n0"])
def test_a_member_follows_a_leader_missing_from_its_log(make: Make, newcomer: str) -> None:
    """n4's log does not name n5, which leads: while n4 refused all that its log did not name, its log never grew.

    Of two members the one with the greater id dials, so a leader n0 has to dial a member that is to dial it.
    """
    cluster = make(members=5)
    place = cluster.addresses.pop("n5")
    cluster.more = {"cluster_id": "one"}
    cluster.start()
    cluster.leader().do("push", start=0, count=20, window=20)
    cluster.same(20)
    cluster.kill("n4")
    before = dict(cluster.addresses)
    leader = cluster.leader()
    leader.do("add", member=newcomer, host=place[0], port=place[1])
    cluster.addresses = {**before, newcomer: place}
    cluster.start(newcomer)
    wait_for("it to vote", lambda: cluster.running[newcomer].do("state")["votes"])

    def led() -> bool:
        leader.do("hand_over", to=newcomer)
        return bool(cluster.leader().me == newcomer)

    wait_for("it to lead", led)
    cluster.addresses = before
    cluster.start("n4")
    wait_for("n4 to know it", lambda: newcomer in cluster.running["n4"].do("state")["members"])
    cluster.same(20)
    assert cluster.leader().me == newcomer


@pytest.mark.chaos
def test_a_cut_off_leader_steps_down_and_a_resumed_one_does_not_depose_its_successor(make: Make) -> None:
    cluster = make()
    cluster.start()
    leader = cluster.leader()
    followers = cluster.followers()
    for process in followers:
        process.pause()
    wait_for("the leader to see that it is alone", lambda: not leader.role["has_quorum"])
    unknown = leader.answer(leader.ask("once", sequence=1, timeout_s=0.3))
    assert unknown["error"] == "NoQuorum"
    for process in followers:
        process.wake()
    cluster.leader().do("once", sequence=2, timeout_s=10)
    old = cluster.leader()
    others = cluster.followers()
    old.pause()
    wait_for("a new leader", lambda: all(process.role["leader"] not in (None, old.me) for process in others))
    term = max(process.role["term"] for process in others)
    old.wake()
    cluster.leader().do("once", sequence=3, timeout_s=10)
    assert old.role["term"] == term, "the resumed member follows, and starts no election"


@pytest.mark.chaos
def test_without_a_quorum_proposals_fail_and_nothing_hangs(make: Make) -> None:
    cluster = make()
    cluster.start("n1")
    alone = cluster.running["n1"]
    assert alone.answer(alone.ask("once", sequence=1, timeout_s=0.5))["error"] == "NoQuorum"
    assert alone.answer(alone.ask("barrier", timeout_s=0.5))["error"] == "NoQuorum"
    waiting = alone.ask("once", sequence=2, timeout_s=15)
    cluster.start("n2", "n3")
    assert alone.answer(waiting)["code"] == "ok"
    assert alone.answer(alone.ask("once", sequence=3, timeout_s=1, size=1_100_000))["error"] == "EntryTooLarge"


def alone(folder: Path, port: int) -> Raft:
    """The one member n1 of a cluster."""
    return Raft(RaftSettings("n1", {"n1": ("127.0.0.1", port)}, folder, "secret"), Ledger(), RaftOwner())


def test_startup_errors_name_the_used_port_the_used_folder_or_the_damage(tmp_path: Path) -> None:
    taken, port = free_ports(2)

    def member(raft_port: int) -> Raft:
        return alone(tmp_path / "n1", raft_port)

    first = member(port)
    first.start()
    try:
        with pytest.raises(LogStoreInUse, match="one data folder serves one node"):
            member(taken).start()
        with socket.create_server(("127.0.0.1", taken)), pytest.raises(PortInUse, match=str(taken)):
            alone(tmp_path / "n2", taken).start()
        wait_for("a cluster of one to have its leader", lambda: first.role.ready)
    finally:
        first.stop()
    journal = tmp_path / "n1" / "raft.sqlite"
    journal.write_bytes(journal.read_bytes()[:3_000])
    with pytest.raises(DamagedData, match="put back a copy of the data folder"):
        member(port).start()


def test_a_leader_that_stops_gracefully_transfers_leadership(make: Make) -> None:
    cluster = make()
    cluster.start()
    leader = cluster.leader()
    others = cluster.followers()
    began = time.monotonic()
    cluster.stop(leader.me)
    cluster.leader().do("once", sequence=1, timeout_s=10)
    assert all(process.role["leader"] != leader.me for process in others)
    assert time.monotonic() > began


def test_a_used_port_is_reported_in_one_line_without_a_traceback(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    [taken] = free_ports(1)
    with socket.create_server(("127.0.0.1", taken)), pytest.raises(PortInUse, match=str(taken)):
        alone(tmp_path / "n1", taken).start()
    assert not [record for record in caplog.records if record.exc_info]
