"""The ports of a member's core, as Protocols: the node implements them with sockets, processes and clocks, the
simulation with models.

A port has the methods that the core calls and no others, so that a model of it is small.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from node.control.controller_port import RunnerPort
from node.control.placement_service import PlacementWorker
from node.duty.digests import DigestSummary, DueDigest
from node.duty.ownership import Ownership
from node.duty.room import KindTerms
from node.execution.order import Order
from node.liveness.view import View
from node.membership.addresses import Address, Agreed
from node.membership.changes import RaftMembers
from node.notify.teller import MessageSender
from node.raft.ports import RaftRole
from node.replication.state_machine import StateChange
from node.state.entries import Proposal, Seed
from node.state.members import Join
from node.state.value import Result, Run, State


class CoreRaft(RaftMembers, Protocol):
    """The part of `node.raft.adapter.Raft` that the core uses. Raft calls `Core.on_role` in its thread."""

    @property
    def role(self) -> RaftRole:
        """This member's role."""

    def propose(self, proposal: Proposal, timeout_s: float, /) -> "Future[Result]":
        """Have an entry committed and applied here. Raises `RaftError`, as does the future."""

    def relocate(self, member: str, address: Address, /) -> None:
        """Connect to a member at another address from now on."""


class StateSource(Protocol):
    """The state machine that Raft drives. It calls `Core.on_change` in Raft's thread."""

    @property
    def state(self) -> State:
        """The newest state."""


class CoreRunner(RunnerPort, Protocol):
    """The part of `node.execution.runner.Runner` that the core uses. It calls `Core.on_event` on the event loop."""

    def renew(self, deadline_s: float, /) -> None:
        """Set the end of the lease for all attempts, in seconds on CLOCK_BOOTTIME. Any thread may call it."""

    async def kill_all(self) -> None:
        """Kill every attempt, and wait until they are gone."""


class HeartbeatPort(Protocol):
    """The heartbeat thread. It calls `Core.on_lease` and `Core.on_verdict`."""

    def observe(self, view: View, /) -> None:
        """Use this member's newest view from now on; it is in effect on return. Any thread may call it."""


class Clock(Protocol):
    """The clocks. Any thread may read them."""

    def now_us(self) -> int:
        """Return the wall clock, with which entries are stamped, in microseconds since the epoch."""

    def boottime_s(self) -> float:
        """Return CLOCK_BOOTTIME, by which leases are measured, in seconds."""


class LoopPort(Protocol):
    """The part of `node.runtime.services.Services` that the core uses. An error in a call or service ends the node."""

    def call(self, call: Callable[..., None], /, *args: Any) -> None:
        """Call `call` on the loop, soon. Any thread may use this."""

    def later(self, wait_s: float, call: Callable[[], None], /) -> None:
        """Call `call` after `wait_s` seconds. Used on the loop only."""

    def guard(self, call: Callable[..., None], /, *args: Any) -> None:
        """Call `call` now. Used on the loop only."""

    def serve(self, name: str, service: Coroutine[Any, Any, None], /) -> None:
        """Run a service until it is cancelled."""

    def cancel_services(self, *names: str) -> None:
        """Cancel these services."""


class CoreObserver(Protocol):
    """An observer of a core: the node's history and live updates, or the simulation's judge."""

    def applied(self, change: StateChange, /) -> None:
        """Observe a change of the state. Called in Raft's thread, before any other part gets the change."""

    def delivered(self, changes: list[StateChange], /) -> None:
        """Observe changes that have been passed to the event loop."""

    def placed(self, state: State, ownership: Ownership, /) -> None:
        """Observe the state and the placement by which the controller is about to decide."""

    def joined(self, incarnation: int, /) -> None:
        """Observe that this process is now the member's `incarnation`; 0: it is no longer a member."""

    def began_after(self, delay_s: float, /) -> None:
        """Observe that an attempt has begun, `delay_s` after its run was due."""


@dataclass(frozen=True)
class CorePorts:
    """All the ports of a core."""

    #: Proposes entries, and knows the leadership.
    raft: CoreRaft
    #: Has the replicated state.
    machine: StateSource
    #: Starts and ends attempts.
    runner: CoreRunner
    #: Keeps this member's lease, and gives the verdicts on members.
    heartbeat: HeartbeatPort
    #: Reads the time.
    clock: Clock
    #: Calls functions later, on the event loop.
    loop: LoopPort
    #: Computes placements off the loop.
    placement: PlacementWorker
    #: Observes the core.
    observer: CoreObserver
    #: Sends messages on channels.
    sender: MessageSender
    #: The source of randomness.
    rng: Random
    #: Makes this member's Join entry from its previous incarnation and the time in microseconds since the epoch.
    join_of: Callable[[int, int], Join]
    #: Makes the runner's order for a claimed run, under a lease until a deadline in seconds on CLOCK_BOOTTIME.
    order_of: Callable[[Run, float], Order]
    #: Works out the public holidays of a region, from one day to another (`tasks.definition.public_holidays`).
    public_holidays: Callable[[str, int, int], Awaitable[tuple[int, ...]]]
    #: Writes down the members' addresses for the next start; may raise OSError.
    keep_addresses: Callable[[Mapping[str, Agreed]], Awaitable[None]]
    #: Works out a digest from the state and this member's history; may raise any error of the history.
    digest: Callable[[State, DueDigest], Awaitable[DigestSummary]]
    #: Says which secrets, of those that a task names, this member lacks: a sentence for each.
    lacking: Callable[[str], Awaitable[Sequence[str]]]


@dataclass(frozen=True)
class CoreSettings:
    """The settings of a core."""

    #: This member's id.
    me: str
    #: The number of this process. It distinguishes this process's proposals from those of earlier processes.
    session: int
    #: How many attempts run here at once, at most.
    max_runs: int
    #: The members of a new cluster.
    first_members: tuple[Seed, ...]
    #: The members' addresses as configured, by member.
    configured: Mapping[str, Address] = field(default_factory=dict)
    #: The members' addresses as last agreed on, by member.
    agreed: Mapping[str, Agreed] = field(default_factory=dict)
    #: The terms of kinds (a preparation, a bound on attempts), by kind. Kinds without terms are absent.
    kinds: Mapping[str, KindTerms] = field(default_factory=dict)
