"""Computes the role of a member from the messages that it has heard (pure)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from node.raft.ports import RaftRole

_NEVER_S = float("-inf")


@dataclass(frozen=True, slots=True)
class KnownLeadership:
    """A member's knowledge of the leadership."""

    #: The term that the member is in.
    term: int
    #: The ids of all members, by its log.
    members: Collection[str]
    #: Whether this member is the leader.
    is_leader: bool
    #: The leader that was heard last in this term; None: no leader was heard.
    leader: str | None
    #: When that leader was heard last, in seconds on Raft's clock.
    leader_heard_s: float
    #: When each member's latest message arrived, in seconds on Raft's clock, by member. A member that has not been
    #: heard since its connection ended is left out.
    heard_s: Mapping[str, float]
    #: Whether an entry of this term is applied here.
    applied_in_term: bool


def raft_role(me: str, seen: KnownLeadership, now_s: float, quorum_s: float, *, was_ready: bool) -> RaftRole:
    """Return the role of `me`. A member that has not been heard for `quorum_s` counts as unreachable.

    `was_ready`: whether the previous role was `ready`, which stays True from then on.

    >>> seen = KnownLeadership(4, "abc", True, "a", 0.0, {"b": 9.5, "c": 7.0}, True)
    >>> raft_role("a", seen, 10.0, 0.8, was_ready=False)
    RaftRole(term=4, leader='a', is_leader=True, has_quorum=True, ready=True)
    >>> raft_role("a", seen, 10.4, 0.8, was_ready=False).has_quorum
    False
    """
    if seen.is_leader:
        near = sum(
            1 for member in seen.members if member == me or now_s - seen.heard_s.get(member, _NEVER_S) < quorum_s
        )
        leader: str | None = me
        has_quorum = 2 * near > len(seen.members)
    else:
        has_quorum = seen.leader is not None and now_s - seen.leader_heard_s < quorum_s
        leader = seen.leader if has_quorum else None
    ready = was_ready or (has_quorum and seen.applied_in_term)
    return RaftRole(seen.term, leader, seen.is_leader, has_quorum, ready)
