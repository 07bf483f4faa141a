"""Committed entries are applied in portions; Raft's thread answers members in between (docs/explanation/raft.md)."""

from dataclasses import replace

from node.raft.core.overrides import APPLIED_AT_ONCE, APPLIED_BYTES
from testkit.raft.wired import Wired, World


def started_again(world: World, entries: list[bytes]) -> Wired:
    """A follower that missed these entries, with all of them in its log now, and none applied."""
    leader, follower, other = world.lead()
    world.crash(follower.me)
    for entry in entries:
        leader.consensus.put(entry)
    world.until(lambda: leader.applied[-1] == entries[-1] == other.applied[-1])
    world.start(follower.me)
    world.connect_all()
    back = world.running[follower.me]
    world.until(lambda: back.consensus.behind)
    return back


def portions(world: World, member: Wired, until: bytes) -> list[int]:
    """How many entries each tick applied."""
    sizes = []
    while member.applied[-1:] != [until]:
        before = len(member.applied)
        member.tick()
        sizes.append(len(member.applied) - before)
        assert len(sizes) < 100
    return sizes


def test_a_tick_applies_a_bounded_number_of_entries_and_the_next_tick_follows_at_once(world: World) -> None:
    """The library applies ten thousand in one tick, and takes no message for seconds."""
    entries = [b"%d" % number for number in range(3 * APPLIED_AT_ONCE + 1)]
    back = started_again(world, entries)
    assert max(portions(world, back, entries[-1])) <= APPLIED_AT_ONCE
    assert back.applied == [b"before", *entries]
    assert not back.consensus.behind


def test_large_entries_count_by_their_size(world: World) -> None:
    entries = [bytes([number]) * APPLIED_BYTES for number in range(9)]
    back = started_again(world, entries)
    assert max(portions(world, back, entries[-1])) == 1
    assert back.applied == [b"before", *entries]


def test_a_member_is_not_ready_while_committed_entries_wait_to_be_applied(world: World) -> None:
    """An entry of the present term is applied, and yet not all that was committed when the member started."""
    entries = [b"%d" % number for number in range(3 * APPLIED_AT_ONCE)]
    back = started_again(world, entries)
    back.tick()
    assert back.consensus.behind
    assert not back.consensus.applied_in_term
    portions(world, back, entries[-1])
    assert back.consensus.applied_in_term


def test_compaction_waits_until_committed_entries_are_applied(world: World) -> None:
    """Otherwise the snapshot would be outdated at once, and delay the entries that a member applies at its start."""
    entries = [b"%d" % number for number in range(3 * APPLIED_AT_ONCE)]
    back = started_again(world, entries)
    consensus = back.consensus
    consensus.timing = replace(consensus.timing, log_entries=2 * APPLIED_AT_ONCE)
    while consensus.behind:
        assert not consensus.snapshots.writing
        assert consensus.snapshots.header is None
        back.tick()
    world.until(lambda: consensus.snapshots.header is not None)

    consensus.behind = True
    assert not consensus._log_is_long()
    consensus.timing = replace(consensus.timing, log_entries=len(consensus.journal) // 4)
    assert consensus._log_is_long(), "the log may grow to twice its limit, not further"
