"""What PySyncObj 0.3.17 does wrong with messages, and what Rota does instead (docs/explanation/raft.md).

The library's own consensus is driven by hand, with the clock and the links of `testkit.raft.wired`. Each test fails if
the library receives the message unchanged.
"""

from typing import Any

import pytest

from node.raft.core.requests import PROPOSALS, Requests
from node.raft.errors import Broken
from node.raft.log import membership
from node.raft.ports import RaftTiming
from node.raft.wire import messages
from node.raft.wire.library_settings import BATCH_BYTES, configuration
from node.raft.wire.messages import BadMessage
from testkit.raft.wired import Wired, World

Message = dict[str, Any]


def append(leader: Wired, prev: int, entries: list[Any], **more: Any) -> Message:
    """What a leader sends."""
    consensus = leader.consensus
    return {
        "type": "append_entries",
        "term": consensus.raftCurrentTerm,
        "commit_index": consensus.raftCommitIndex,
        "entries": entries,
        "prevLogIdx": prev,
        "prevLogTerm": consensus.journal.term_at(prev),
        **more,
    }


def matched(leader: Wired, member: str) -> int:
    """Up to which index a leader knows a member's log to equal its own."""
    index: int = leader.consensus._SyncObj__raftMatchIndex[leader.node(member)]
    return index


# -- the log


def test_a_reordered_append_truncates_nothing(world: World) -> None:
    """The library deletes what comes after prevLogIdx, also what it has acknowledged."""
    leader, follower, _ = world.lead()
    for number in range(5):
        world.agree(b"%d" % number)
    log = list(follower.consensus.journal[:])
    truncated: list[Any] = []
    follower.consensus.journal.on_truncate = truncated.extend
    follower.take(leader.me, append(leader, 2, log[2:4]))
    follower.take(leader.me, append(leader, 3, []))
    assert (list(follower.consensus.journal[:]), truncated) == (log, [])
    assert follower.applied == leader.applied


def test_commit_index_is_capped_at_the_matched_log_index(world: World) -> None:
    """The library commits the entries that an earlier leader left at the end, by the present leader's commit index."""
    leader, follower, _ = world.lead()
    journal = follower.consensus.journal
    before = journal.last_index
    journal.add(membership.REGULAR + b"of a leader that is gone", before + 1, leader.consensus.raftCurrentTerm)
    follower.take(leader.me, append(leader, before, [], commit_index=before + 1))
    follower.tick()
    assert follower.consensus.raftCommitIndex == before
    assert follower.applied == [b"before"]


def test_an_acknowledgement_of_an_earlier_term_is_ignored(world: World) -> None:
    """The acknowledged entry may have been replaced since."""
    leader, follower, _ = world.lead()
    here, last = leader.consensus, leader.consensus.journal.last_index
    here.journal.add(membership.REGULAR + b"new", last + 1, here.raftCurrentTerm)
    late: Message = {"type": "next_node_idx", "next_node_idx": last + 2, "success": True, "reset": False}
    leader.take(follower.me, {**late, "term": here.raftCurrentTerm - 1})
    assert matched(leader, follower.me) == last
    leader.take(follower.me, {**late, "term": here.raftCurrentTerm})
    assert matched(leader, follower.me) == last + 1


def test_an_acknowledgement_does_not_decrease_next_index(world: World) -> None:
    """With each acknowledgement, the library resends every entry that is still in flight."""
    leader, follower, _ = world.lead()
    last = leader.consensus.journal.last_index
    for number in range(4):
        leader.consensus.put(b"%d" % number)
    leader.tick()
    assert leader.consensus.next_index(leader.node(follower.me)) == last + 5
    sent = len(leader.sent_to(follower.me, "append_entries"))
    acknowledged = {"type": "next_node_idx", "next_node_idx": last + 2, "success": True, "reset": False}
    leader.take(follower.me, {**acknowledged, "term": leader.consensus.raftCurrentTerm})
    assert leader.consensus.next_index(leader.node(follower.me)) == last + 5
    leader.tick()
    again = [message for message in leader.sent_to(follower.me, "append_entries")[sent:] if message.get("entries")]
    assert again == []


def test_an_acknowledgement_is_sent_after_the_flush_with_its_term(world: World) -> None:
    leader, follower, _ = world.lead()
    journal = follower.consensus.journal
    last, term = journal.last_index, leader.consensus.raftCurrentTerm
    sent = len(follower.sent_to(leader.me, "next_node_idx"))
    for number in range(1, 4):
        entry = (membership.REGULAR + b"%d" % number, last + number, term)
        follower.take(leader.me, append(leader, last, [entry], prevLogIdx=last + number - 1, prevLogTerm=term))
    assert len(follower.sent_to(leader.me, "next_node_idx")) == sent, "nothing has been flushed yet"
    flushes = journal.flushes
    follower.tick()
    [said] = follower.sent_to(leader.me, "next_node_idx")[sent:]
    assert (said["next_node_idx"], said["term"], journal.flushes) == (last + 4, term, flushes + 1), (
        "one flush and one acknowledgement for all three"
    )


def test_an_acknowledgement_to_an_earlier_leader_is_dropped(world: World) -> None:
    leader, follower, _ = world.lead()
    last, term = leader.consensus.journal.last_index, leader.consensus.raftCurrentTerm
    sent = len(follower.sent_to(leader.me, "next_node_idx"))
    follower.take(leader.me, append(leader, last, [(membership.REGULAR + b"x", last + 1, term)]))
    follower.consensus.adopt_term(term + 1)
    follower.tick()
    assert follower.sent_to(leader.me, "next_node_idx")[sent:] == []


def test_an_unchanged_log_is_not_acknowledged_again_at_once(world: World) -> None:
    """The leader announces each commit, and that changes nothing about the follower's log."""
    leader, follower, _ = world.lead()
    world.run(0.5)
    last = leader.consensus.journal.last_index
    sent = len(follower.sent_to(leader.me, "next_node_idx"))
    for _ in range(10):
        follower.take(leader.me, append(leader, last, []))
        follower.tick()
    assert len(follower.sent_to(leader.me, "next_node_idx")) - sent <= 1


def test_the_largest_entry_is_sent_in_one_message(world: World) -> None:
    """The library splits larger messages, and near a boundary takes a wrong piece for the last one."""
    leader, follower, _ = world.lead()
    assert RaftTiming().entry_bytes + 1_000 < BATCH_BYTES
    world.agree(bytes(RaftTiming().entry_bytes))
    sent = leader.sent_to(follower.me, "append_entries")
    assert [message for message in sent if "transmission" in message] == []
    with pytest.raises(BadMessage):
        messages.valid_message(append(leader, 2, [], transmission="start", data=b""))


def test_a_leader_announces_a_commit_before_applying_it(world: World) -> None:
    """The library applies first and announces with the next message, so a client of a follower waits for both."""
    leader, follower, _ = world.lead()
    told: list[int] = []

    def applied(member: Wired) -> None:
        if member is leader:
            told.append(leader.sent_to(follower.me, "append_entries")[-1]["commit_index"])

    world.on_apply = applied
    world.agree(b"now")
    assert told == [leader.consensus.journal.last_index]


def test_entries_are_applied_as_raw_bytes(world: World) -> None:
    """The library unpickles each, and calls the function that it names."""
    harmful = b"cos\nabort\n(tR."
    world.agree(harmful)
    assert all(member.applied[-1] == harmful for member in world.running.values())


def test_an_entry_that_cannot_be_applied_stops_the_member_without_skipping_it() -> None:
    """The library logs it, and retries the same entry without end: two leaders, and no recovery, were observed."""

    class Failing:
        def apply(self, _entry: bytes) -> None:
            raise KeyError("a bug")

    requests = Requests(RaftTiming(), Failing(), lambda: 0.0, wake=lambda: None)  # type: ignore[arg-type]
    with pytest.raises(Broken, match="could not be applied"):
        requests.apply(PROPOSALS)


# -- elections


def test_a_reconnected_member_does_not_depose_a_healthy_leader(world: World) -> None:
    """The library has no pre-vote: a cut-off member starts one election after another, each in a later term."""
    leader, follower, other = world.lead()
    term = leader.consensus.raftCurrentTerm
    world.cut(follower.me, leader.me)
    world.run(10)
    assert follower.consensus.raftCurrentTerm == term
    world.cut(follower.me, other.me)
    world.run(5)
    world.connect(follower.me, leader.me)
    world.connect(follower.me, other.me)
    world.run(2)
    assert (world.leader(), leader.consensus.raftCurrentTerm) == (leader, term)


def test_of_two_simultaneous_candidates_one_yields(world: World) -> None:
    leader, one, other = world.lead()
    world.crash(leader.me)
    for member in (one, other):
        member.consensus.elections._ask()
    gives_way = [
        mine.consensus.elections.gives_way(its.me, its.consensus.standing())
        for mine, its in ((one, other), (other, one))
    ]
    assert gives_way == [one.me > other.me, one.me < other.me]


def test_of_two_simultaneous_candidates_the_longer_log_wins(world: World) -> None:
    """The shorter log cannot win: when neither candidate yielded, both retried for seconds."""
    leader, one, other = world.lead()
    short, long = sorted((one, other), key=lambda member: member.me)
    world.cut(leader.me, short.me)
    leader.consensus.put(b"for one of them")
    world.until(lambda: long.consensus.standing() != short.consensus.standing())
    world.crash(leader.me)
    for member in (short, long):
        member.consensus.elections._ask()
    world.run(0.2)
    assert world.leader() is long


def test_a_leader_without_a_quorum_steps_down_within_1200_ms(world: World) -> None:
    """The library's default is 30 seconds."""
    leader, one, other = world.lead()
    world.cut(leader.me, one.me)
    world.cut(leader.me, other.me)
    world.run(1.2)
    assert not leader.consensus.is_leader


def test_a_closed_leader_connection_starts_an_election_before_the_timeout(world: World) -> None:
    """A leader whose process has died is replaced sooner than one that is silent."""
    leader, _, _ = world.lead()
    world.crash(leader.me)
    for one in world.running.values():
        world.cut(one.me, leader.me)
    began_s = world.now_s
    world.until(world.leader)
    assert world.now_s - began_s < RaftTiming().election_min_s


def test_a_stale_leader_is_told_the_current_term(world: World) -> None:
    """The library drops its messages, and it stays leader."""
    leader, follower, _ = world.lead()
    term = leader.consensus.raftCurrentTerm
    follower.consensus.adopt_term(term + 3)
    follower.take(leader.me, append(leader, 2, []))
    assert [message["term"] for message in follower.sent_to(leader.me, "late_term")] == [term + 3]
    leader.take(follower.me, {"type": "late_term", "term": term + 3})
    assert (leader.consensus.is_leader, leader.consensus.raftCurrentTerm) == (False, term + 3)


def test_a_term_is_published_before_messages_are_sent_in_it(world: World) -> None:
    """Heartbeats must not be answered in a term that this member left by its vote (docs/explanation/raft.md)."""
    leader, _, _ = world.lead()
    known: list[tuple[int, int]] = []
    for member in world.running.values():
        put = member.transport._put

        def watched(node: Any, message: Message, member: Wired = member, put: Any = put) -> bool:
            if "vote" in message["type"]:
                known.append((member.consensus.raftCurrentTerm, max(member.terms)))
            return bool(put(node, message))

        member.transport._put = watched  # type: ignore[method-assign]
    world.crash(leader.me)
    world.until(world.leader)
    assert known
    assert [pair for pair in known if pair[0] != pair[1]] == []


def test_a_follower_does_not_forward_proposals(world: World) -> None:
    """The library forwards it repeatedly: it may return to a sender that has already given up."""
    leader, follower, other = world.lead()
    follower.take(other.me, {"type": "apply_command", "command": membership.REGULAR + b"late"})
    follower.tick()
    assert follower.sent_to(leader.me, "apply_command") == []


def test_a_leader_transfers_leadership_before_its_own_removal(world: World) -> None:
    """With the library alone it removes itself, and stays leader of a cluster that it is no member of."""
    leader, _, _ = world.lead()
    refused: list[int] = []
    leader.consensus.change(membership.change_command("rem", leader.me), lambda _result, reason: refused.append(reason))
    world.until(lambda: world.leader() is not leader)
    assert len(refused) == 1
    assert all(leader.me in member.consensus.members() for member in world.running.values())


def test_the_librarys_slow_defaults_are_overridden() -> None:
    """The library redials every 5 s, and delays a commit for up to 200 ms to share it with others."""
    conf = configuration(RaftTiming(), "secret", "127.0.0.1:1", None)
    assert conf.connectionRetryTime <= 0.2
    assert conf.leaderFallbackTimeout <= 1.0
    assert conf.appendEntriesUseBatch is False
