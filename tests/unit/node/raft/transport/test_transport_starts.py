"""Two starts of one member: the transport admits one, and votes of both count once."""

import pytest

from node.raft.transport.duplicate_starts import PROBE_S
from node.raft.transport.start_claim import PATIENCE_S
from testkit.raft.wired import World
from tests.unit.node.raft.callers import call, hello, ours


def test_a_second_start_is_refused_once_the_first_answered_a_ping(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The newest call took the place of the one before: a member and its clone were connected in turns."""
    leader, follower, _ = world.lead()
    first, second = call(leader), call(leader)
    leader.transport._onIncomingMessageReceived(first, hello(follower.me, leader.me, "1"))
    leader.transport._onIncomingMessageReceived(second, hello(follower.me, leader.me, "2"))
    [probe] = [message for message in first.sent if message["type"] == "probe"]
    assert (first.open, second.sent, leader.transport._connections[leader.node(follower.me)]) == (True, [], first)
    first.on_message({"type": "probe_answer", "number": probe["number"], "led": True, "settled": True})
    assert second.sent == [{"type": "taken", "start": "1", "where": "10.0.0.9:1", "led": True, "settled": True}]
    assert leader.transport._connections[leader.node(follower.me)] is first
    for _ in range(2):
        assert caplog.text.count(f"calls itself {follower.me}, which runs at 10.0.0.9:1 and answers") == 1
        leader.transport._onIncomingMessageReceived(call(leader), hello(follower.me, leader.me, "2"))
        first.on_message({"type": "probe_answer", "number": probe["number"] + 1, "led": True, "settled": True})


def test_a_calling_second_start_is_told_of_the_dialled_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was disconnected without an answer, did not learn of the other start, and stayed beside it."""
    leader, follower, _ = world.lead()
    monkeypatch.setattr(type(leader.transport), "_shouldConnect", lambda _self, _node: True)
    leader.transport.duplicate_starts._starts[leader.wire_to(follower.me)] = (
        leader.node(follower.me),
        "1",
        "10.0.0.9:1",
    )
    for start, told in (("1", False), ("2", True)):
        caller = call(leader)
        leader.transport._onIncomingMessageReceived(caller, hello(follower.me, leader.me, start))
        assert (caller.open, leader.wire_to(follower.me).sent[-1]["type"] == "probe") == (told, told)
    number = leader.wire_to(follower.me).sent[-1]["number"]
    said = {"type": "probe_answer", "number": number, "led": True, "settled": True}
    leader.transport.duplicate_starts.answered(leader.wire_to(follower.me), said)
    assert caller.sent[-1]["type"] == "taken"


@pytest.mark.parametrize("how", ["ends", "says nothing"])
def test_a_second_start_replaces_one_that_does_not_answer(world: World, how: str) -> None:
    """After kill -9, or after its machine has vanished: that connection still looks open."""
    leader, follower, _ = world.lead()
    first, second = call(leader), call(leader)
    leader.transport._onIncomingMessageReceived(first, hello(follower.me, leader.me, "1"))
    leader.transport._onIncomingMessageReceived(second, hello(follower.me, leader.me, "2"))
    assert second.sent == []
    if how == "ends":
        first.disconnect()
    else:
        world.now_s += PROBE_S + 0.1
        leader.tick()
    assert (first.open, second.open, second.sent[0]) == (False, True, ours(leader.me))
    assert leader.transport._connections[leader.node(follower.me)] is second


def test_a_reconnecting_start_is_admitted_at_once(world: World) -> None:
    leader, follower, _ = world.lead()
    first, second = call(leader), call(leader)
    for caller in (first, second):
        leader.transport._onIncomingMessageReceived(caller, hello(follower.me, leader.me, "1"))
    assert (first.open, second.open) == (False, True)


def test_an_unsettled_start_takes_part_in_no_election(world: World) -> None:
    """A clone would vote once more in a term in which the member has voted, or lead by its own vote twice."""
    leader, one, other = world.lead()
    for member in (one, other):
        member.transport.duplicate_starts.claim.settled = False
        member.transport.duplicate_starts.claim.begun_s = world.now_s
    world.crash(leader.me)
    for name in (one.me, other.me):
        world.cut(name, leader.me)
    world.run(5)
    assert world.leader() is None, "each waits for the other's answer"
    world.until(world.leader, PATIENCE_S)


def test_a_start_neither_votes_nor_stands_in_a_term_in_which_another_start_may_have_voted(world: World) -> None:
    """Two candidates of one term, each with the vote of another start of the third member, would both lead."""
    leader, one, other = world.lead()
    fence = leader.consensus.raftCurrentTerm + 5
    claim = one.transport.duplicate_starts.claim
    claim.fence = fence
    standing = one.consensus.standing()
    request = {"type": "request_vote", "last_log_term": standing.last_term, "last_log_index": standing.last_index}
    request |= {"life": 1, "founding": ""}
    for term, votes in ((fence, 0), (fence + 1, 1)):
        one.take(other.me, {**request, "term": term})
        assert len(one.sent_to(other.me, "response_vote")) == votes
    claim.fence = fence + 5
    world.crash(leader.me)
    for name in (one.me, other.me):
        world.cut(name, leader.me)
    assert world.until(world.leader, 10).consensus.raftCurrentTerm > fence + 5


def test_votes_of_two_starts_of_one_member_count_once(five: World) -> None:
    """Three of five are a majority, and a member and its clone count as one."""
    candidate, voter = five.running["a"], five.running["b"]
    five.until(five.leader)
    consensus = candidate.consensus
    for name in list(five.running):
        if name != candidate.me:
            five.cut(candidate.me, name)
    consensus.adopt_term(consensus.raftCurrentTerm + 1)
    consensus._SyncObj__raftState = 1
    consensus._SyncObj__votesCount = 1
    vote = {"type": "response_vote", "term": consensus.raftCurrentTerm, "life": 1, "lives": {}}
    vote["candidate"] = consensus.recovery._life
    for _start in range(3):
        candidate.take(voter.me, vote)
        consensus.inbound.take(candidate.node(voter.me), vote)
    assert not consensus.is_leader
    assert consensus._SyncObj__votesCount == 2
