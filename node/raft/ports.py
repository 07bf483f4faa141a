"""Raft's interface to the node: the state machine, the node's callbacks, the settings, and the role it reports."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from node.state.entries import ProposalId
from node.state.value import Result


class StateMachinePort(Protocol):
    """The replicated state machine. Called in Raft's thread only, except for the function that `capture` returns."""

    @property
    def cluster_id(self) -> str:
        """The id of the cluster in the present state; empty while the cluster is not founded."""

    def apply(self, entry: bytes) -> Sequence[tuple[ProposalId, Result]]:
        """Apply one committed entry. Returns the results, each with its proposal's id. Must not raise."""

    def capture(self) -> Callable[[], Iterator[bytes]]:
        """Keep a reference to the present state, which is cheap. Returns a function that packs this state as pieces of
        bytes, in another thread.
        """

    def restore(self, pieces: Iterable[bytes]) -> None:
        """Replace the state by the one in a snapshot's pieces."""


@dataclass(frozen=True, slots=True)
class RaftRole:
    """The leadership, as this member knows it now.

    It permits no action: only a committed entry or a lease does.
    """

    #: The term that the member is in.
    term: int = 0
    #: The leader; None: no leader is heard.
    leader: str | None = None
    #: Whether this member is the leader.
    is_leader: bool = False
    #: On a leader: whether it has heard a majority lately. On a follower: whether it has heard the leader lately.
    has_quorum: bool = False
    #: Whether all entries that were committed before this member started have been applied here.
    ready: bool = False


@dataclass(frozen=True, slots=True)
class RaftOwner:
    """The callbacks of the node, which owns Raft. Called in Raft's thread.

    role_changed: receives each new role. failed: receives the error that stopped Raft. wait_for_room: receives the
    error of a write to a full disk, and returns whether to retry the write; it may block. The others return at once.
    """

    role_changed: Callable[[RaftRole], None] = lambda _role: None
    failed: Callable[[Exception], None] = lambda _error: None
    wait_for_room: Callable[[Exception], bool] = lambda _error: False


@dataclass(frozen=True, slots=True)
class EntryApplier:
    """The callbacks that receive committed entries and new terms from the consensus. Called in Raft's thread.

    apply: applies the bytes of a committed entry. capture, restore: as in `StateMachinePort`. term_began: receives a
    higher term before this member sends any message in it.
    """

    apply: Callable[[bytes], None]
    capture: Callable[[], Callable[[], Iterator[bytes]]]
    restore: Callable[[Iterable[bytes]], None]
    term_began: Callable[[int], None]


@dataclass(frozen=True, slots=True)
class RaftTiming:
    """The intervals and sizes of Raft. The times match those of the leases (docs/explanation/raft.md)."""

    #: The shortest time without a leader after which an election begins, in seconds. The library needs more than
    #: 3 * `heartbeat_s`.
    election_min_s: float = 0.6
    #: The longest such time, in seconds.
    election_max_s: float = 0.9
    #: The time between two heartbeats of the leader, in seconds.
    heartbeat_s: float = 0.19
    #: A member that has not been heard for this time, in seconds, counts as unreachable.
    quorum_s: float = 0.8
    #: A leader without a majority for this time, in seconds, stops calling itself leader.
    fallback_s: float = 1.0
    #: An election begins within this time, in seconds, once the leader's connection has ended.
    hasty_s: float = 0.25
    #: A start waits this long, in seconds, for members that it does not reach (`start_claim`).
    settle_s: float = 1.0
    #: The time between two dials of a member, in seconds.
    redial_s: float = 0.2
    #: The timeout of a dial, in seconds.
    dial_s: float = 1.0
    #: A connection on which nothing was heard for this time, in seconds, is closed.
    silent_s: float = 3.0
    #: A proposal that was not applied here within this time, in seconds, is sent again under its id.
    resend_s: float = 2.0
    #: The longest wait of Raft's thread for messages, in seconds, while a request, dial or snapshot is under way.
    tick_s: float = 0.05
    #: The longest wait while only the next heartbeat or election is due, for which the thread wakes on time. It must be
    #: shorter than the interval between two polls of the watchdog (`node.telemetry.raft_watchdog`).
    quiet_s: float = 0.2
    #: The log is compacted at this many entries, or up to half as many again, so that the members take turns.
    log_entries: int = 10_000
    #: The log is compacted at this size, or up to half as much again.
    log_bytes: int = 16 << 20
    #: The size limit of one entry.
    entry_bytes: int = 1_000_000
    #: Proposals are batched into one entry up to this size.
    batch_bytes: int = 256 << 10
    #: A proposal is refused if it would bring the proposals that wait on this member beyond this total size.
    waiting_bytes: int = 64 << 20
    #: The limit of a member's entries under way at once. Proposals that arrive meanwhile share the next entry.
    flights: int = 2


@dataclass(frozen=True, slots=True)
class RaftSettings:
    """The settings of a member's Raft."""

    #: This member's id.
    me: str
    #: The members' Raft addresses as (host, port), by id, with this member's own. They count at the first start only;
    #: afterwards the log determines which nodes are members.
    addresses: Mapping[str, tuple[str, int]]
    #: The folder of this member's log and snapshot, which no other member may use.
    folder: Path
    #: The members' secret; never empty.
    secret: str
    #: The intervals and sizes.
    timing: RaftTiming = RaftTiming()
    #: The address to listen on; None: this member's own host.
    bind_host: str | None = None
    #: A random text for this start of the member, shown on its connections. It distinguishes a restart from a second
    #: process with the same id (`start_claim`). "": Raft draws one.
    start_id: str = ""
    #: The version of this member's build, which it sends to the others.
    version: str = ""
