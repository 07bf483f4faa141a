"""The part of a node's state that liveness needs: the members, the leader and its term, and the settings."""

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
    """A node's knowledge at one moment."""

    #: The node's id.
    me: str
    #: The incarnation in which *this process* has joined; 0 until its own Join is applied. The state may still hold the
    #: incarnation of the previous process.
    incarnation: int
    #: Raft's term. It must be observed here before this node's vote for another leader is sent: the leader's proof of a
    #: majority depends on members not sending heartbeats in a term that they have left.
    term: int
    #: Raft's leader, observed as early as `term`; None: no leader.
    leader: str | None
    #: Whether this node has applied its own `lead` entry of `term`.
    lead_applied: bool
    #: Every member that is not removed, `me` included, by id.
    peers: Mapping[str, Peer]
    #: The cluster's settings.
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
        """The number of members that form a majority. A member that is down still counts as a voter."""
        return len(self.peers) // 2 + 1
