"""The role of a member, by what it has heard and when."""

from dataclasses import replace

import pytest

from node.raft.core.role import KnownLeadership, raft_role
from node.raft.ports import RaftRole

NOW_S, QUORUM_S = 100.0, 0.8
LEADER = KnownLeadership(7, "abcde", True, "a", float("-inf"), {"b": 99.5, "c": 99.5, "d": 90.0}, True)
FOLLOWER = replace(LEADER, is_leader=False, leader="b", leader_heard_s=99.5, heard_s={})


def role(seen: KnownLeadership, *, was_ready: bool = False) -> RaftRole:
    return raft_role("a", seen, NOW_S, QUORUM_S, was_ready=was_ready)


@pytest.mark.parametrize(("heard", "has_quorum"), [("", False), ("b", False), ("bc", True), ("bcde", True)])
def test_a_leader_has_a_quorum_while_it_hears_a_majority_itself_included(heard: str, has_quorum: bool) -> None:
    seen = replace(LEADER, heard_s=dict.fromkeys(heard, 99.5))
    assert role(seen) == RaftRole(7, "a", True, has_quorum, has_quorum)


def test_a_removed_member_does_not_count_towards_the_quorum() -> None:
    assert not role(replace(LEADER, heard_s=dict.fromkeys("bxyz", 99.5))).has_quorum


def test_a_follower_has_a_leader_only_if_heard_recently() -> None:
    assert role(FOLLOWER) == RaftRole(7, "b", False, True, True)
    assert role(replace(FOLLOWER, leader_heard_s=99.0)) == RaftRole(7, None, False, False, False)
    assert role(replace(FOLLOWER, leader=None)) == RaftRole(7, None, False, False, False)


def test_a_member_is_ready_once_an_entry_of_the_term_is_applied_and_stays_ready() -> None:
    behind = replace(FOLLOWER, applied_in_term=False)
    assert not role(behind).ready
    assert role(behind, was_ready=True).ready
    assert role(replace(FOLLOWER, leader=None), was_ready=True).ready
