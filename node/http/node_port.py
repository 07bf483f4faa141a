"""What the HTTP API needs of a node, as protocols. `node.app.member` implements them; tests use
`testkit.http.fake_node`.

All methods are called on the event loop, unless they say otherwise. Methods that wait take a limit in seconds.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from prometheus_client.registry import Collector

from node.duty.digests import DigestSummary, DueDigest
from node.duty.hold import Hold
from node.duty.overdue import Overdue
from node.duty.ownership import Ownership
from node.history.bootstrap_board import BootstrapBoard
from node.history.file import RunPosition
from node.identity.mismatches import Mismatch
from node.notify.dead_man import PingView
from node.peer.portions import Gap, Portion
from node.peer.protocol import RunProgress
from node.peer.vitals import MemberVitals
from node.raft.founding.founding import Outlook
from node.raft.ports import RaftRole
from node.replication.state_machine import StateChange
from node.settings.table import NodeSettings
from node.state.channel import Channel
from node.state.entries import Entry, Seed
from node.state.value import EndedRun, Result, State
from node.telemetry.thread_lag import ThreadLag
from node.tracing.export_thread import ExportCount
from tasks.installed_kinds import InstalledKinds


class HistoryPort(Protocol):
    """Finished runs. The methods wait for the disk, and so are called in other threads.

    They know every run that has ended in the node's `state()` at the time of the call.
    """

    def runs(
        self, task: str | None, state: str | None, node: str | None, before: RunPosition | None, limit: int
    ) -> Sequence[EndedRun]:
        """Return the runs after the position `before`, newest first by creation time, then by id; `limit` at most."""

    def run(self, run_id: str) -> EndedRun | None:
        """Return one run; None if it is unknown, or deleted by now."""

    def export(self, gap: Gap) -> Portion | None:
        """Return the first portion of another member's gap that this member can send; None if it has none of it."""


@dataclass(frozen=True, slots=True)
class PlacementComputed:
    """An update: a new placement was computed. `before` is the previous one; None if this is the first."""

    before: Ownership | None
    after: Ownership


ClusterUpdate = StateChange | PlacementComputed


class NodePort(Protocol):
    """A member of the cluster, as the API uses it."""

    @property
    def settings(self) -> NodeSettings:
        """What the process was started with: the member's id, secrets and other settings."""

    @property
    def role(self) -> RaftRole:
        """Its present role in Raft."""

    @property
    def outlook(self) -> Outlook:
        """What this node waits for while it belongs to no cluster; None once it belongs to one."""

    @property
    def mismatches(self) -> list[Mismatch]:
        """The incompatible nodes recently in contact: of another build, secret or cluster, or silent."""

    @property
    def lease_held(self) -> bool:
        """Whether this member holds a lease now: without one it starts no attempt."""

    @property
    def lease_lapsed_us(self) -> int | None:
        """When its last lease ended, in microseconds since the epoch; None: it has one, or never had one."""

    @property
    def lateness(self) -> ThreadLag:
        """How late this member's threads were within the last minute."""

    @property
    def start_delay(self) -> Collector:
        """The metric of the delay between due times and the starts of attempts on this member."""

    @property
    def exports(self) -> Sequence[ExportCount]:
        """How many spans and events of lineage this process has sent and dropped; empty: it sends none."""

    @property
    def history(self) -> HistoryPort:
        """Finished runs."""

    @property
    def bootstraps(self) -> BootstrapBoard:
        """Which members fetch finished runs that they lack, and how far they are."""

    @property
    def kinds(self) -> InstalledKinds:
        """The kinds installed here."""

    def state(self) -> State:
        """Return the state as applied here."""

    def ownership(self) -> Ownership:
        """Return the latest placement; its state may be slightly older than `state()`."""

    async def placed(self, timeout_s: float) -> Ownership:
        """Return the placement of `state()`'s epoch once it is computed; after `timeout_s`, the latest one."""

    async def propose(self, entry: Entry, timeout_s: float) -> Result:
        """Commit an entry, and return the result of applying it here.

        Raises `NoQuorum`, `OutcomeUnknown`, `EntryTooLarge`, `Overloaded` or `RaftStopped` (node.raft.errors).
        """

    async def barrier(self, timeout_s: float) -> None:
        """Commit an empty entry, and return when it is applied here.

        Raises `NoQuorum`, `OutcomeUnknown`, `Overloaded` or `RaftStopped`.
        """

    async def wait_index(self, index: int, timeout_s: float) -> bool:
        """Wait until `state().index >= index`. Returns False if that takes longer than `timeout_s`."""

    async def add_member(self, seed: Seed, timeout_s: float) -> Result:
        """Add a member. Codes `ok`, `exists`, `busy`, `invalid`; raises as `propose`."""

    async def remove_member(self, member: str, timeout_s: float) -> Result:
        """Remove a member. Codes `ok`, `no-such-member`, `busy`, `self`; raises as `propose`."""

    async def leave_out(self, members: frozenset[str], timeout_s: float) -> str | None:
        """Found a cluster without these members, once the others accept it. Returns why not (a sentence), or None.

        Raises `RaftStopped` or `TimeoutError`.
        """

    def progress(self, run_id: str) -> RunProgress | None:
        """Return the progress of an attempt on this member; None if it has reported none, or does not run here."""

    async def hold(self, task: str) -> Hold | None:
        """Return why this member, the task's owner, has not begun a due run; None if nothing here holds it."""

    def unoffered(self, kind: str) -> str | None:
        """Return why this member does not offer a kind (a sentence); None if it does."""

    def vitals(self) -> MemberVitals:
        """Return the facts about this member that only it knows; its `unoffered` is empty."""

    async def overdue(self) -> Overdue:
        """Return the tasks, of all owners, that are due and have not begun, as far as this member knows."""

    @property
    def pinged(self) -> PingView | None:
        """The outcome of this leader's last ping to the outside watcher; None if this member does not lead."""

    async def test_channel(self, name: str, definition: Channel) -> str:
        """Send a test message from this node, in bounded time. Returns the receiver's answer. Raises `NotSent`."""

    async def digest_of(self, state: State, due: DueDigest) -> DigestSummary:
        """Work out a digest from a state and this node's history. May raise any error of the history."""

    def log_path(self, run_id: str, attempt: int) -> Path:
        """Return where this member keeps the log of an attempt that it runs, has run or would run."""

    def changes(self) -> AsyncIterator[ClusterUpdate]:
        """Return all updates from this call on (not from the first await on), in order, until the node stops."""
