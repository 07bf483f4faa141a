"""Decides whether the majority of the members survives the loss of one more."""

from immutables import Map

from node.state.value import Member


def at_risk(members: Map[str, Member]) -> bool:
    """Whether members are down, and the loss of one more would end the quorum.

    A member that was added and has not joined yet is not counted, because its operator is just adding it.
    """
    known = len(joined(members))
    down = len(down_of(members))
    return down > 0 and known - down - 1 < known // 2 + 1


def joined(members: Map[str, Member]) -> list[Member]:
    """Return the members that have ever joined, sorted by id."""
    return [member for _, member in sorted(members.items()) if member.reason != "new"]


def down_of(members: Map[str, Member]) -> list[Member]:
    """Return the members that have ever joined and are down."""
    return [member for member in joined(members) if member.status == "down"]
