"""How long a tick of Raft's thread waits: until the next deadline, and only briefly while work is unfinished."""

import pytest

from testkit.raft.wired import Wired, World


@pytest.fixture
def founded(world: World) -> World:
    world.found("a-cluster")
    return world


def wait_s(member: Wired) -> float:
    timing = member.consensus.timing
    return member.consensus._wait_s(timing.quiet_s, member.consensus._is_complete())


def test_a_settled_leader_wakes_for_its_next_heartbeat(founded: World) -> None:
    leader, *_ = founded.lead()
    timing = leader.consensus.timing
    assert wait_s(leader) <= timing.heartbeat_s
    leader.consensus._SyncObj__newAppendEntriesTime = founded.now_s + 0.07
    assert wait_s(leader) == pytest.approx(0.07)
    assert leader.consensus._wait_s(0.01, True) == 0.01
    leader.consensus._SyncObj__newAppendEntriesTime = founded.now_s - 1.0  # sent in this tick
    assert wait_s(leader) == pytest.approx(timing.heartbeat_s)


def test_a_settled_follower_wakes_for_the_next_election_and_for_the_loss_of_the_quorum(founded: World) -> None:
    _, follower, _ = founded.lead()
    here = follower.consensus
    here.inbound.leader_heard_s = founded.now_s
    here.elections.deadline_s = founded.now_s + 0.6
    assert wait_s(follower) == here.timing.quiet_s
    here.elections.deadline_s = founded.now_s + 0.03
    assert wait_s(follower) == pytest.approx(0.03)
    here.elections.deadline_s = founded.now_s + 0.6
    here.inbound.leader_heard_s = founded.now_s - here.timing.quorum_s + 0.02
    assert wait_s(follower) == pytest.approx(0.02)


def test_unfinished_work_shortens_the_tick_wait(founded: World, monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower, _ = founded.lead()
    tick_s = follower.consensus.timing.tick_s
    follower.consensus.inbound.leader_heard_s = founded.now_s - 1.0
    assert wait_s(follower) == tick_s, "no leader"
    leader.consensus._SyncObj__newAppendEntriesTime = founded.now_s + 1.0
    leader.consensus.behind = True
    assert wait_s(leader) == 0.0, "entries wait to be applied"
    leader.consensus.behind = False
    monkeypatch.setattr(leader.consensus.transport, "reached", lambda _node: False)
    assert wait_s(leader) == tick_s, "a member is not connected"
