"""What liveness needs of a node's state: the members, the leader and its term, and the settings."""

from collections.abc import Mapping
from dataclasses import dataclass

from node.state.value import MemberStatus, Settings


@dataclass(frozen=True, slots=True)
class Peer:
    """A member by the replicated state. `host` and `port` are where it listens for heartbeats."""

    incarnation: int
    status: MemberStatus
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class View:
    """A node's knowledge at one moment. `peers` holds every member that is not removed, `me` included.

    `incarnation` is the one in which *this process* has joined; 0 until its own Join is applied (the state may still
    hold that of the process before it). `term` and `leader` are Raft's. They must be observed here before this node's
    vote for another leader is sent: the leader's proof of a majority depends on members not sending heartbeats in a
    term that they have left. `lead_applied`: this node has applied its own `lead` entry of `term`.
    """

    me: str
    incarnation: int
    term: int
    leader: str | None
    lead_applied: bool
    peers: Mapping[str, Peer]
    settings: Settings

    @property
    def leading(self) -> bool:
        """Whether this node is the leader."""
        return self.leader == self.me

    @property
    def standing(self) -> bool:
        """Whether this process is the member's present incarnation, and not marked down."""
        own = self.peers.get(self.me)
        return own is not None and own.status != "down" and own.incarnation == self.incarnation > 0

    @property
    def majority(self) -> int:
        """How many members are a majority. A member that is down still has its vote."""
        return len(self.peers) // 2 + 1
