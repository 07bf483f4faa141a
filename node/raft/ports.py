"""What Raft replicates to, what it is given and asks of the node it is a part of, and what it tells of itself."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from node.state.entries import Proposal, ProposalId
from node.state.value import Result


class StateMachinePort(Protocol):
    """The replicated state machine. All of it is called in Raft's thread, except for what `capture` returns."""

    @property
    def cluster_id(self) -> str:
        """The id of the cluster by the state as it is; empty while it is not founded."""

    def apply(self, entry: bytes) -> Sequence[tuple[ProposalId, Result]]:
        """Apply one committed entry; total. Returns the results by proposal id."""

    def capture(self) -> Callable[[], Iterator[bytes]]:
        """Take hold of the state as it is: cheap. What it returns makes the pieces, in another thread."""

    def restore(self, pieces: Iterable[bytes]) -> None:
        """Replace the state by that of a snapshot's pieces."""


@dataclass(frozen=True, slots=True)
class RaftRole:
    """The leadership, as this member knows it now.

    None of this is permission for anything: only a committed entry or a lease is.
    """

    #: The term that the member is in.
    term: int = 0
    #: The leader; None: no leader is heard.
    leader: str | None = None
    #: Whether this member is the leader.
    is_leader: bool = False
    #: As leader: whether a majority was heard lately. As follower: whether the leader was.
    has_quorum: bool = False
    #: Whether everything that had been committed when this member started has been applied here.
    ready: bool = False


class RaftOwner(Protocol):
    """The node that Raft is a part of. Called in Raft's thread, except for `pack`, and must return at once."""

    def pack(self, proposals: Sequence[Proposal]) -> bytes:
        """The bytes of one entry of several proposals, as `StateMachinePort.apply` takes them. Called in any thread."""

    def role_changed(self, role: RaftRole) -> None:
        """The role is another one now."""

    def failed(self, error: Exception) -> None:
        """This member cannot go on."""

    def wait_for_room(self, error: Exception) -> bool:
        """Whether to write again, where the disk is full. This one may wait."""


class EntryApplier(Protocol):
    """What consensus hands committed entries to. Called in Raft's thread, except for what `capture` returns."""

    def apply(self, data: bytes) -> None:
        """Apply the bytes of a committed entry."""

    def capture(self) -> Callable[[], Iterator[bytes]]:
        """As `StateMachinePort.capture`."""

    def restore(self, pieces: Iterable[bytes]) -> None:
        """As `StateMachinePort.restore`."""

    def term_began(self, term: int) -> None:
        """This member is in a later term. Nothing has been sent in it yet."""


@dataclass(frozen=True, slots=True)
class RaftTiming:
    """The intervals and sizes of Raft. The times fit those of the leases (docs/explanation/raft.md)."""

    #: The shortest time without a leader after which an election begins, in seconds; more than 3 * `heartbeat_s`, which
    #: the library needs.
    election_min_s: float = 0.6
    #: The longest such time, in seconds.
    election_max_s: float = 0.9
    #: The time between two heartbeats of the leader, in seconds.
    heartbeat_s: float = 0.19
    #: A member that has not been heard for this time, in seconds, counts as away.
    quorum_s: float = 0.8
    #: A leader without a majority for this time, in seconds, stops calling itself leader.
    fallback_s: float = 1.0
    #: An election begins within this time, in seconds, once the leader's connection has ended.
    hasty_s: float = 0.25
    #: A start waits this long, in seconds, for members that it does not reach (`start_claim`).
    settle_s: float = 1.0
    #: The time between two dials of a member, in seconds.
    redial_s: float = 0.2
    #: A dial that has not connected within this time, in seconds, is given up.
    dial_s: float = 1.0
    #: A connection on which nothing was heard for this time, in seconds, is closed.
    silent_s: float = 3.0
    #: A proposal not seen applied after this time, in seconds, is sent again under its id.
    resend_s: float = 2.0
    #: How long Raft's thread waits for messages at most, in seconds.
    tick_s: float = 0.05
    #: The same while nothing but the next heartbeat or election is due: it wakes for those on time. It must turn
    #: between two polls of the watchdog (`node.telemetry.raft_watchdog`).
    quiet_s: float = 0.2
    #: The log is compacted beyond this many entries, or half as many again: the members take turns.
    log_entries: int = 10_000
    #: The log is compacted beyond this size, or half as much again.
    log_bytes: int = 16 << 20
    #: The size limit of one entry.
    entry_bytes: int = 1_000_000
    #: Proposals are gathered into an entry up to this size.
    batch_bytes: int = 256 << 10
    #: Proposals are refused while those that wait here have more than this size together.
    waiting_bytes: int = 64 << 20
    #: How many entries of one member are under way at once. Proposals that come meanwhile share the next.
    flights: int = 2


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """The settings of a member's Raft."""

    #: This member's id.
    me: str
    #: The members' Raft addresses as (host, port), by id, this one's among them. They count at the first start only;
    #: after that the log says which nodes are members.
    addresses: Mapping[str, tuple[str, int]]
    #: The folder for this member alone.
    folder: Path
    #: The members' secret; never empty.
    secret: str
    #: The intervals and sizes.
    timing: RaftTiming = RaftTiming()
    #: The address to listen on; None: this member's own host.
    bind_host: str | None = None
    #: Drawn at random for this start of the member, and shown on its connections: it tells a restart from a second
    #: process with the same name (`start_claim`). "": drawn here.
    start_id: str = ""
    #: This member's build, which it tells the others.
    version: str = ""
