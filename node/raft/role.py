"""The role of a member, worked out from what it has heard (pure)."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from node.raft.ports import RaftRole

_NEVER_S = float("-inf")


@dataclass(frozen=True, slots=True)
class KnownLeadership:
    """What a member knows of the leadership in its `term`.

    members: the ids of all, by its log. heard_s: by member, when its latest message arrived; one that is not in it has
    not been heard since its connection ended. leader: the one that was heard last in this term, at `leader_heard_s`.
    applied_in_term: whether an entry of this term is applied here.
    """

    term: int
    members: Collection[str]
    is_leader: bool
    leader: str | None
    leader_heard_s: float
    heard_s: Mapping[str, float]
    applied_in_term: bool


def role_of(me: str, seen: KnownLeadership, now_s: float, quorum_s: float, *, was_ready: bool) -> RaftRole:
    """The role of `me`. A member that has not been heard for `quorum_s` counts as away; `ready` stays so.

    >>> seen = KnownLeadership(4, "abc", True, "a", 0.0, {"b": 9.5, "c": 7.0}, True)
    >>> role_of("a", seen, 10.0, 0.8, was_ready=False)
    RaftRole(term=4, leader='a', is_leader=True, has_quorum=True, ready=True)
    >>> role_of("a", seen, 10.4, 0.8, was_ready=False).has_quorum
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
