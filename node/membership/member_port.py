"""What the services of this folder need of the member that they keep in its cluster."""

from typing import Protocol

from node.raft.ports import RaftRole
from node.replication.proposer import Proposing
from node.state.value import State


class MemberPort(Proposing, Protocol):
    """A member, as its membership services see it. Called on the event loop."""

    @property
    def me(self) -> str:
        """Its id."""

    def state(self) -> State:
        """The newest state."""

    def role(self) -> RaftRole:
        """Its role in Raft."""

    def standing(self) -> int | None:
        """The incarnation in which this process is a member that is up or draining; None if it is none."""
