"""The services that keep a node a member, from its first join to its removal: started and woken together."""

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from node.membership.addresses import Addresses
from node.membership.changes import MembershipChanges
from node.membership.joining import Joining
from node.membership.leadership import Leadership
from node.membership.leaving import Leaving
from node.membership.self_drain import SelfDrain


@dataclass(frozen=True, slots=True)
class MemberServices:
    """The membership services of one member."""

    #: Takes the lead for a new term, and founds the cluster.
    leadership: Leadership
    #: Joins this member.
    joining: Joining
    #: Takes this member out of service when it stops.
    leaving: Leaving
    #: Adds and removes members.
    changes: MembershipChanges
    #: Keeps the members' addresses.
    addresses: Addresses
    #: Drains this member while it cannot take on work.
    self_drain: SelfDrain

    def services(self) -> dict[str, Coroutine[Any, Any, None]]:
        """The coroutines to run until they are cancelled, by name."""
        return {
            "leadership": self.leadership.run(),
            "joining": self.joining.run(),
            "leaving": self.leaving.run(),
            "changes": self.changes.run(),
            "addresses": self.addresses.run(),
            "self-drain": self.self_drain.run(),
        }

    def wake(self) -> None:
        """Have each service check again: the members or the role have changed."""
        for service in (self.leadership, self.joining, self.leaving, self.changes, self.addresses, self.self_drain):
            service.wake()

    @property
    def standing(self) -> int | None:
        """The incarnation in which this process is a member that is up or draining; None if it is none."""
        return self.joining.incarnation if self.joining.standing else None
