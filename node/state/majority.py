"""Decides whether the majority of the members survives the loss of one more."""

from immutables import Map

from node.state.value import Member


def at_risk(members: Map[str, Member]) -> bool:
    """Whether members are down, and one more loss would end the quorum.

    A member that was added and has not joined yet is not counted: its operator is adding it at this moment.
    """
    known = len(joined(members))
    down = len(down_of(members))
    return down > 0 and known - down - 1 < known // 2 + 1


def joined(members: Map[str, Member]) -> list[Member]:
    """The members that have joined at some time, by name."""
    return [member for _, member in sorted(members.items()) if member.reason != "new"]


def down_of(members: Map[str, Member]) -> list[Member]:
    """The joined members that are down."""
    return [member for member in joined(members) if member.status == "down"]
