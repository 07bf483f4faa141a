"""A member that lost its log: which leader it follows, and when it votes (`amnesia` says why)."""

import shutil
from pathlib import Path

import pytest

from node.raft.errors import MajorityLost
from node.raft.log.journal import FLUSH_COUNTER
from node.raft.log.log_store import JOURNAL, SNAPSHOT, open_folder
from testkit.raft.wired import Wired, World
from tests.unit.node.raft.log.test_log_store import CLUSTER, begin, put_snapshot


def names(world: World) -> tuple[Wired, str, str]:
    """The leader, and the names of the two others."""
    leader, one, other = world.lead()
    return leader, one.me, other.me


def lose(world: World, name: str) -> None:
    """Kill a member and damage its journal."""
    world.crash(name)
    (world.folder / name / JOURNAL).write_bytes(b"no database")


def test_a_member_without_a_log_catches_up_and_votes_again(world: World) -> None:
    leader, lost, other = names(world)
    lose(world, lost)
    world.agree(b"meanwhile", of=leader.me + other)
    world.start(lost)
    assert not world.running[lost].consensus.recovery.votes
    world.connect_all()
    world.until(lambda: world.running[lost].consensus.recovery.votes)
    world.until(lambda: world.running[lost].applied == [b"before", b"meanwhile"])
    world.crash(leader.me)
    world.until(lambda: world.leader())
    world.agree(b"after", of=lost + other)


def test_a_member_without_a_log_ignores_a_replaced_leader(world: World) -> None:
    """Otherwise the old leader would have a majority with it, and commit entries that the new leader's log lacks."""
    old, lost, other = names(world)
    world.cut(old.me, lost)
    world.cut(old.me, other)
    world.until(lambda: world.running[other].consensus.is_leader or world.running[lost].consensus.is_leader)
    new = world.leader()
    assert new is not None
    lost = lost if new.me == other else other
    world.agree(b"new", of=new.me + lost)
    lose(world, lost)
    world.start(lost)
    world.connect(lost, old.me)
    assert old.consensus.is_leader, "it has not noticed yet"
    old.consensus.put(b"old")
    world.run(0.5, paused=[new.me])
    assert b"old" not in old.applied
    assert world.running[lost].consensus.journal.last_index == 1
    assert world.running[lost].consensus.leader_node() is None, (
        "heartbeats must not take the old leader for the present one either"
    )
    world.connect_all()
    world.until(lambda: world.running[lost].consensus.recovery.votes)
    world.agree(b"both")
    assert all(member.applied == [b"before", b"new", b"both"] for member in world.running.values())


def test_a_recovered_member_does_not_vote_in_a_term_in_which_it_may_have_voted(world: World) -> None:
    leader, lost, other = names(world)
    lose(world, lost)
    world.start(lost)
    world.connect_all()
    consensus = world.running[lost].consensus
    world.until(lambda: consensus.recovery.votes)
    assert consensus.raftCurrentTerm == leader.consensus.raftCurrentTerm
    standing = {"last_log_term": 99, "last_log_index": 99}
    world.running[lost].take(other, {"type": "request_vote", "term": consensus.raftCurrentTerm, **standing})
    assert world.running[lost].sent_to(other, "response_vote") == []
    world.running[lost].take(other, {"type": "request_vote", "term": consensus.raftCurrentTerm + 1, **standing})
    assert len(world.running[lost].sent_to(other, "response_vote")) == 1


def test_a_member_without_a_log_neither_votes_nor_becomes_a_candidate(world: World) -> None:
    _, lost, other = names(world)
    lose(world, lost)
    world.start(lost)
    world.connect(lost, other)
    member = world.running[lost]
    for kind in ("request_vote", "pre_vote", "timeout_now"):
        message = {"type": kind, "term": 90, "number": 1, "last_log_term": 90, "last_log_index": 90}
        member.take(other, message)
    world.run(5, paused=[other])
    assert member.sent_to(other, "response_vote") == []
    assert member.sent_to(other, "request_vote") == []
    assert member.sent_to(other, "pre_vote") == []
    assert [answer["granted"] for answer in member.sent_to(other, "pre_vote_answer")] == [False]


def test_a_member_without_a_log_ignores_a_leadership_transfer(world: World) -> None:
    """A leader that stops transfers leadership to an up-to-date member, without knowing which members may vote."""
    leader, lost, other = names(world)
    lose(world, lost)
    world.start(lost)
    world.connect(lost, leader.me)
    member, term = world.running[lost], leader.consensus.raftCurrentTerm
    world.connect(lost, other)
    answer = {"type": "recall_answer", "term": term, "last_log_term": term, "last_log_index": 1_000}
    answer |= {"members": ["a", "b", "c"], "whole": True, "lost": False}
    for name in (leader.me, other):
        member.take(name, {**answer, "leads": name == leader.me})
    log = leader.consensus.journal
    heartbeat = {"type": "append_entries", "term": term, "commit_index": 1, "prevLogIdx": 1, "prevLogTerm": 0}
    member.take(leader.me, {**heartbeat, "entries": list(log[1:])})
    assert member.consensus.leader_node() is not None
    member.take(leader.me, {"type": "timeout_now", "term": term})
    member.tick()
    assert member.sent_to(leader.me, "request_vote") == []


def test_a_majority_without_logs_raises_an_error_that_says_what_to_do(world: World) -> None:
    """Two of three: with their empty logs they must not elect each other."""
    _, one, other = names(world)
    lose(world, one)
    lose(world, other)
    world.start(one, other)
    with pytest.raises(MajorityLost, match=rf"{one}, {other} have lost their logs.*rota cluster recover.*{JOURNAL}"):
        world.connect_all()
        world.run(2)


def test_a_waiting_member_logs_which_members_must_answer(world: World, caplog: pytest.LogCaptureFixture) -> None:
    leader, lost, other = names(world)
    lose(world, lost)
    world.crash(other)
    world.start(lost)
    world.connect(lost, leader.me)
    world.run(30)
    [said] = [record.getMessage() for record in caplog.records if " waits: " in record.getMessage()]
    assert f"{lost} waits: 2 of the other members must answer" in said
    assert f"so far {leader.me} answered" in said
    world.start(other)
    world.connect_all()
    world.until(lambda: world.running[lost].consensus.recovery.votes)


def test_empty_members_elect_no_leader_once_a_member_with_a_log_is_heard(world: World) -> None:
    """Two folders are lost completely: they look like a first start until the third member is heard."""
    leader, one, other = names(world)
    for name in (one, other):
        world.crash(name)
        shutil.rmtree(world.folder / name)
    world.start(one, other)
    world.connect(leader.me, one)
    world.connect(leader.me, other)
    world.run(0.3)
    world.connect(one, other)
    world.run(10)
    assert not any(world.running[name].consensus.recovery.votes for name in (one, other))
    assert leader.applied == [b"before"]


def asking_anew(world: World, name: str) -> Wired:
    """A member that has lost all its files, and asks whether it would be elected, as at a first start."""
    world.crash(name)
    shutil.rmtree(world.folder / name)
    world.start(name)
    member = world.running[name]
    # It believes that it may found a cluster alone.
    member.consensus.inquiry.founding.listed = frozenset({name})
    world.until(lambda: member.consensus.elections.poll.open)
    return member


def grant(member: Wired, by: str, number: int) -> None:
    """A member grants a pre-vote."""
    answer = {"type": "pre_vote_answer", "number": number, "granted": True, "term": 0}
    member.consensus.inbound.take(member.node(by), answer)


def test_a_prevote_requested_before_the_log_was_lost_does_not_count(world: World) -> None:
    """It would stand for election, and so vote, with nothing in its log (seed 47416 of the simulation)."""
    _, lost, other = names(world)
    member = asking_anew(world, lost)
    for number in range(1, 50):
        grant(member, other, number)
    world.run(0.5)
    assert not member.consensus.recovery.votes


def test_a_vote_requested_before_the_log_was_lost_does_not_count(world: World) -> None:
    """The voter compared its log with the candidate's lost one."""
    _, lost, other = names(world)
    member = asking_anew(world, lost)
    recovery, node = member.consensus.recovery, member.node(other)
    vote = {"term": member.consensus.raftCurrentTerm, "life": 0, "lives": {}}
    asked_now = recovery.vote_request({"type": "request_vote"})["life"]
    assert asked_now > 0
    assert not recovery.counts(node, {**vote, "candidate": 0})
    assert recovery.counts(node, {**vote, "candidate": asked_now})


def test_repeated_votes_and_votes_of_other_terms_do_not_count(tmp_path: Path) -> None:
    """The library counts every vote message: in a cluster of five, a repeated vote would elect with two votes."""
    world = World(tmp_path, "abcde")
    with world.clock():
        world.start()
        world.connect_all()
        world.agree(b"before")
        leader = world.until(world.leader)
        follower, one, other = [member for member in world.running.values() if member is not leader][:3]
        term = follower.consensus.raftCurrentTerm
        follower.take(leader.me, {"type": "timeout_now", "term": term})
        follower.tick()
        assert follower.consensus.raftCurrentTerm == term + 1
        life = follower.consensus.recovery.vote_request({"type": "request_vote"})["life"]
        vote = {"type": "response_vote", "term": term + 1, "life": 1, "lives": {}, "candidate": life}
        follower.take(one.me, vote)
        follower.take(one.me, vote)
        for elsewhere in (term, term + 9):
            follower.take(other.me, {**vote, "term": elsewhere})
        assert not follower.consensus.is_leader, "two of five"
        follower.take(other.me, vote)
        assert follower.consensus.is_leader


def test_a_vote_carries_the_candidates_life_number(world: World) -> None:
    _, one, other = names(world)
    member = world.running[one]
    term = member.consensus.raftCurrentTerm + 1
    request = {"type": "request_vote", "term": term, "last_log_term": term, "last_log_index": 99, "life": 77}
    member.take(other, request)
    assert [vote["candidate"] for vote in member.sent_to(other, "response_vote")] == [77]


def test_term_and_vote_are_kept_when_only_the_snapshot_is_damaged(tmp_path: Path) -> None:
    begin(tmp_path, term=4)
    put_snapshot(tmp_path, 10, term=4)
    opened = open_folder(tmp_path, "n1", CLUSTER)
    opened.journal.setCurrentTerm(6, "n2")
    opened.journal.deleteEntriesTo(5)
    opened.journal.close()
    (tmp_path / SNAPSHOT).write_bytes(b"rubbish")
    opened = open_folder(tmp_path, "n1", CLUSTER)
    assert (opened.journal.getCurrentTerm(), opened.journal.getVotedForNodeId()) == (6, "n2")
    assert len(opened.journal) == 0
    opened.journal.close()
    assert (tmp_path / f"{SNAPSHOT}.damaged-1").read_bytes() == b"rubbish"
    assert (tmp_path / f"{JOURNAL}.damaged-1").exists()
    assert (tmp_path / FLUSH_COUNTER).exists()
