"""What keeps a node a member, from being let in to being let go: begun, stirred and ended together."""

from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from node.membership.addresses import Whereabouts
from node.membership.changes import Membership
from node.membership.joining import Joining
from node.membership.leadership import Leadership
from node.membership.leaving import Leaving
from node.membership.removal_watch import Belonging
from node.membership.self_drain import Aside


@dataclass(frozen=True, slots=True)
class MemberServices:
    """The services of one member's coming and going."""

    leadership: Leadership
    joining: Joining
    leaving: Leaving
    changes: Membership
    whereabouts: Whereabouts
    belonging: Belonging
    aside: Aside

    def services(self) -> dict[str, Coroutine[Any, Any, None]]:
        """What is to be run, by name, until it is cancelled."""
        return {
            "leadership": self.leadership.run(),
            "joining": self.joining.run(),
            "leaving": self.leaving.run(),
            "changes": self.changes.run(),
            "whereabouts": self.whereabouts.run(),
            "belonging": self.belonging.run(),
            "aside": self.aside.run(),
        }

    def stir(self) -> None:
        """The members or the role have changed."""
        for service in (self.leadership, self.joining, self.leaving, self.changes, self.whereabouts, self.aside):
            service.stir()

    @property
    def standing(self) -> int | None:
        """The incarnation in which this process is a member that is not down; None if it is none."""
        return self.joining.incarnation if self.joining.standing else None
