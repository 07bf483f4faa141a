"""What Raft replicates to, and what it tells of itself."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from node.state.entries import ProposalId
from node.state.value import Result


class StateMachinePort(Protocol):
    """The replicated state machine. All of it is called in Raft's thread, but for what `capture` returns."""

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


@dataclass(frozen=True, slots=True)
class RaftTiming:
    """How fast, and how much. Chosen to fit the lease times (DESIGN, section 7).

    The library needs `election_min_s > 3 * heartbeat_s`. `quorum_s`: what has not been heard for so long counts as
    away. `fallback_s`: a leader without a majority for so long stops calling itself leader. `hasty_s`: an election
    begins within so long once the leader's connection has ended. `resend_s`: a proposal not seen applied after so
    long is sent again under its id. `log_entries` and `log_bytes`: the log is compacted beyond either, or half as
    much again (the members take turns); `entry_bytes`: what one entry may measure, `batch_bytes` what proposals are
    gathered up to. `flights`: so many entries of one member are under way at once; what comes meanwhile shares the
    next.
    """

    election_min_s: float = 0.5
    election_max_s: float = 1.0
    heartbeat_s: float = 0.15
    quorum_s: float = 0.8
    fallback_s: float = 1.0
    hasty_s: float = 0.25
    redial_s: float = 0.2
    dial_s: float = 1.0
    silent_s: float = 3.0
    resend_s: float = 2.0
    tick_s: float = 0.05
    log_entries: int = 10_000
    log_bytes: int = 16 << 20
    entry_bytes: int = 1_000_000
    batch_bytes: int = 256 << 10
    waiting_bytes: int = 64 << 20
    flights: int = 2
