"""What the routes need of a node, as protocols: `node.app.member` implements them, the tests have a fake.

Everything that waits takes a limit in seconds; nothing here may wait longer. Called on the event loop.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from prometheus_client.registry import Collector

from node.duty.overdue import Overdue
from node.duty.ownership import Ownership
from node.history.store import Before
from node.peer.portions import Gap, Portion
from node.peer.protocol import RunProgress
from node.raft.founding import Outlook
from node.replication.state_machine import StateChange
from node.state.entries import Entry, Seed
from node.state.value import EndedRun, Result, State
from node.telemetry.thread_lag import ThreadLag
from tasks.field_errors import FieldError


class Facts(Protocol):
    """What does not change while the process lives.

    `token` is the clients' (None: none is asked for), `secret` the members'. `hosts` are names under
    which this node may be called besides IP addresses, `localhost` and the hosts of the members.
    """

    @property
    def node(self) -> str:
        """This member's id."""

    @property
    def token(self) -> str | None:
        """The clients' token."""

    @property
    def secret(self) -> str:
        """The members' secret."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Further names of this node."""

    @property
    def metrics_tasks(self) -> int:
        """How many tasks have figures of their own in /metrics."""


class Role(Protocol):
    """Where this member stands in Raft. `ready`: it has caught up with what was committed before it started."""

    @property
    def term(self) -> int:
        """The Raft term."""

    @property
    def leader(self) -> str | None:
        """The leader's id, if one is known."""

    @property
    def is_leader(self) -> bool:
        """Whether this member leads."""

    @property
    def has_quorum(self) -> bool:
        """Whether a majority is in reach."""

    @property
    def ready(self) -> bool:
        """Whether it has caught up."""


class HistoryPort(Protocol):
    """Finished runs. May wait for the disk: called in other threads.

    Holds all that had ended in the node's `state()`, whenever it is asked after that.
    """

    def runs(
        self, task: str | None, state: str | None, node: str | None, before: Before | None, limit: int
    ) -> Sequence[EndedRun]:
        """Newest first by when they were made, then by id; those before `before` only."""

    def run(self, run_id: str) -> EndedRun | None:
        """One run, or None if it is not (or no longer) known."""

    def export(self, gap: Gap) -> Portion | None:
        """The first that is here of what ended in a gap of another member's; None if nothing of it is."""


class Kinds(Protocol):
    """The kinds of task that are installed here (offered or not), and what their params are."""

    def names(self) -> frozenset[str]:
        """All that are installed."""

    def schema(self, kind: str) -> dict[str, Any]:
        """The JSON schema of a kind's params. Raises `KeyError` where it is not installed, `KindError` if it does not
        load.
        """

    def check(self, kind: str, params: Mapping[str, Any], *, bound: bool) -> Sequence[FieldError]:
        """What is wrong with params of a task that is `bound` to one member, or not; each field as `params.x`.

        Raises as `schema` does.
        """

    def refused(self, kind: str, params: Mapping[str, Any], task: str) -> Sequence[str]:
        """What of the params, which are right, of that task this node would refuse, a sentence each.

        Raises as `schema` does.
        """


@dataclass(frozen=True, slots=True)
class Placed:
    """A placement has been computed; `before` is the one that held until now (None: the first)."""

    before: Ownership | None
    after: Ownership


Update = StateChange | Placed


class Node(Protocol):
    """A member of the cluster, as the routes see it."""

    @property
    def facts(self) -> Facts:
        """What does not change."""

    @property
    def role(self) -> Role:
        """Where it stands in Raft, now."""

    @property
    def outlook(self) -> Outlook:
        """What this node waits for while it is of no cluster; None once it is of one."""

    @property
    def lease_held(self) -> bool:
        """Whether this member has a lease now: without one it starts nothing."""

    @property
    def lateness(self) -> ThreadLag:
        """How late its threads were within the last minute."""

    @property
    def start_delay(self) -> Collector:
        """How long after they were due attempts have begun here."""

    @property
    def history(self) -> HistoryPort:
        """Finished runs."""

    @property
    def kinds(self) -> Kinds:
        """The kinds installed here."""

    def state(self) -> State:
        """The state as applied here."""

    def ownership(self) -> Ownership:
        """The latest placement; it may be of a slightly older state than `state()`."""

    async def placed(self, timeout_s: float) -> Ownership:
        """The placement of `state()`'s epoch, once computed; the latest there is when the time is over."""

    async def propose(self, entry: Entry, timeout_s: float) -> Result:
        """Commit an entry and answer with what became of it, applied here.

        Raises `NoQuorum`, `OutcomeUnknown`, `EntryTooLarge`, `Overloaded` or `Stopped` (node.raft.errors).
        """

    async def barrier(self, timeout_s: float) -> None:
        """Commit nothing, and return when that is applied here. Raises `NoQuorum`, `OutcomeUnknown` or `Stopped`."""

    async def wait_index(self, index: int, timeout_s: float) -> bool:
        """Wait until `state().index >= index`; False when the time is over."""

    async def add_member(self, seed: Seed, timeout_s: float) -> Result:
        """Let a new member in. Codes `ok`, `exists`, `busy`, `invalid`; raises as `propose`."""

    async def remove_member(self, member: str, timeout_s: float) -> Result:
        """Let a member go. Codes `ok`, `no-such-member`, `busy`, `self`; raises as `propose`."""

    async def leave_out(self, members: frozenset[str], timeout_s: float) -> str | None:
        """Have a cluster founded without these members. Why not (a sentence); None: it is, once the others accept it.

        Raises `Stopped`, or `TimeoutError`.
        """

    def progress(self, run_id: str) -> RunProgress | None:
        """How far an attempt that runs on this member is; None if it has not said or does not run here."""

    def waiting(self, task: str) -> str | None:
        """Why this member, which owns the task, has not begun what is due (a sentence); None if nothing waits."""

    async def overdue(self) -> Overdue:
        """What of all tasks is due and has not begun, by what this member knows."""

    def log_path(self, run_id: str, attempt: int) -> Path:
        """Where this member keeps (or would keep) an attempt's log."""

    def changes(self) -> AsyncIterator[Update]:
        """What changes from now on, in order, until the node stops. Subscribed when called, not when first awaited."""
