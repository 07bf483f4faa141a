"""When a member stands for election, and when the library would start an election (docs/explanation/raft.md)."""

import pytest

from node.raft.log.log_store import JOURNAL, LOST
from testkit.raft.wired import Wired, World


def slow_write(world: World, member: Wired) -> None:
    """Let a member's next timed write take longer than any deadline, within one tick."""
    write = member.consensus.journal.onOneSecondTimer

    def slow() -> None:
        world.now_s += 5.0
        write()

    world.now_s += 0.01
    member.consensus._SyncObj__numOneSecondDumps = 0  # it is due
    member.consensus.journal.onOneSecondTimer = slow  # type: ignore[method-assign]
    heard = len(member.terms)
    before_s = world.now_s
    member.tick()
    assert world.now_s - before_s == pytest.approx(5.0)
    assert member.terms[heard:] == [], "no new term"
    member.consensus.journal.onOneSecondTimer = write  # type: ignore[method-assign]


def test_a_slow_write_starts_no_election(world: World) -> None:
    """The library checks the deadline right after the write, and does not ask the others first."""
    leader, follower, other = world.lead()
    slow_write(world, follower)
    for asked in (leader, other):
        assert follower.sent_to(asked.me, "request_vote") == []
    follower.tick()
    assert len(follower.sent_to(leader.me, "pre_vote")) == 1, (
        "it sends a pre-vote request, and learns that there is a leader"
    )
    world.run(1)
    assert max(member.consensus.raftCurrentTerm for member in world.running.values()) == leader.terms[-1]


def who_has_lost_its_log(world: World) -> tuple[Wired, str]:
    """A follower that is back with an unreadable journal, and the one member that it reaches, a follower."""
    _, lost, other = (member.me for member in world.lead())
    world.crash(lost)
    (world.folder / lost / JOURNAL).write_bytes(b"no database")
    world.start(lost)
    world.connect(lost, other)
    return world.running[lost], other


def test_a_member_without_a_log_is_no_candidate_after_a_slow_write(world: World) -> None:
    """It would count its own vote as that of a member that remembers."""
    member, other = who_has_lost_its_log(world)
    slow_write(world, member)
    assert member.sent_to(other, "request_vote") == []
    assert not member.consensus.recovery.votes
    assert member.consensus.journal.note(LOST)


def test_a_member_that_may_not_vote_sends_no_vote_requests(world: World) -> None:
    member, other = who_has_lost_its_log(world)
    with pytest.raises(AssertionError, match="may not vote"):
        member.transport.send(member.node(other), {"type": "request_vote", "term": 9})
    assert not member.consensus.recovery.votes


def test_a_member_that_receives_the_leadership_starts_an_election_at_once(world: World) -> None:
    leader, _, _ = world.lead()
    began_s = world.now_s
    leader.consensus.transferLeadership()
    world.until(lambda: world.leader() not in (leader, None))
    assert world.now_s - began_s < 0.1


def test_a_member_that_voted_for_another_ignores_the_leadership_transfer(world: World) -> None:
    """The library would start an election against the new leader and ignore its heartbeats."""
    leader, follower, other = world.lead()
    term = leader.consensus.raftCurrentTerm
    follower.take(leader.me, {"type": "timeout_now", "term": term})
    standing = other.consensus.standing()
    log = {"last_log_term": standing.last_term, "last_log_index": standing.last_index}
    follower.take(other.me, {"type": "request_vote", "term": term + 1, "life": 0, **log})
    assert len(follower.sent_to(other.me, "response_vote")) == 1
    heartbeat = {"type": "append_entries", "term": term + 1, "commit_index": 1, "entries": []}
    for _ in range(20):
        follower.take(other.me, {**heartbeat, "prevLogIdx": standing.last_index, "prevLogTerm": standing.last_term})
        follower.tick()
        world.now_s += 0.1
    assert follower.sent_to(other.me, "request_vote") == []
    assert follower.sent_to(other.me, "pre_vote") == []
