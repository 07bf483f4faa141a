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
    """What this member knows of the leadership, as of now.

    `leader` is None while none is heard. `has_quorum`: as leader, a majority was heard lately; as follower, the
    leader was. `ready`: everything that had been committed when this member started has been applied here.
    None of this is permission for anything: only a committed entry or a lease is.
    """

    term: int = 0
    leader: str | None = None
    is_leader: bool = False
    has_quorum: bool = False
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
    """How fast, and how much. The times fit those of the leases (docs/explanation/raft.md).

    The library needs `election_min_s > 3 * heartbeat_s`. quorum_s: a member that has not been heard for this time
    counts as away. fallback_s: a leader without a majority for this time stops calling itself leader. hasty_s: an
    election begins within this time once the leader's connection has ended. settle_s: a start waits this long for
    members that it does not reach (`start_claim`). resend_s: a proposal not seen applied after this time is sent again
    under its id. log_entries, log_bytes: the log is compacted beyond either, or half as much again (the members take
    turns). entry_bytes: the size limit of one entry; batch_bytes: proposals are gathered up to this size. flights:
    entries of one member that are under way at once; proposals that come meanwhile share the next. tick_s: how long
    Raft's thread waits for messages at most; quiet_s: the same while nothing but the next heartbeat or election is due.
    It wakes for those on time, and must turn between two polls of the watchdog (`node.telemetry.raft_watchdog`).
    """

    election_min_s: float = 0.6
    election_max_s: float = 0.9
    heartbeat_s: float = 0.19
    quorum_s: float = 0.8
    fallback_s: float = 1.0
    hasty_s: float = 0.25
    settle_s: float = 1.0
    redial_s: float = 0.2
    dial_s: float = 1.0
    silent_s: float = 3.0
    resend_s: float = 2.0
    tick_s: float = 0.05
    quiet_s: float = 0.2
    log_entries: int = 10_000
    log_bytes: int = 16 << 20
    entry_bytes: int = 1_000_000
    batch_bytes: int = 256 << 10
    waiting_bytes: int = 64 << 20
    flights: int = 2


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """What a member's Raft is given.

    me: this member's id. addresses: the members' Raft addresses, this one's among them. The list counts at the first
    start only; after that the log says which nodes are members. folder: for this member alone. secret: shared by the
    members; never empty. bind_host: where to listen; by default this member's own host. start_id: drawn at random for
    this start of the member, and shown on its connections: it tells a restart from a second process with the same name
    (`start_claim`); drawn here if empty. version: this member's build, which it tells the others.
    """

    me: str
    addresses: Mapping[str, tuple[str, int]]
    folder: Path
    secret: str
    timing: RaftTiming = RaftTiming()
    bind_host: str | None = None
    start_id: str = ""
    version: str = ""
