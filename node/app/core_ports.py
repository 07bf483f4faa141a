"""What a member's core stands on, as Protocols: the node implements them with sockets, processes and clocks, the
simulation with models.

A port has the methods that the core calls and no others, so that a model of it is small.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from node.control.controller_port import RunnerPort
from node.control.placement_service import PlacementWorker
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
    """Raft, as `node.raft.adapter.Raft` has it. It calls `Core.on_role` in its thread."""

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
    """Attempts, as `node.execution.runner.Runner` has them. It calls `Core.on_event` on the event loop."""

    def renew(self, deadline_s: float, /) -> None:
        """The lease lasts until `deadline_s` on CLOCK_BOOTTIME. Any thread."""

    async def kill_all(self) -> None:
        """Kill every attempt, and wait until they are gone."""


class HeartbeatPort(Protocol):
    """The heartbeat thread. It calls `Core.on_lease` and `Core.on_verdict`."""

    def observe(self, view: View, /) -> None:
        """Take over what this member knows now; it holds when this returns. Any thread."""


class Clock(Protocol):
    """The clocks. Any thread may read them."""

    def now_us(self) -> int:
        """The wall clock that entries are stamped with, in microseconds since the epoch."""

    def boottime_s(self) -> float:
        """CLOCK_BOOTTIME, which leases are measured by, in seconds."""


class LoopPort(Protocol):
    """The event loop, as `node.runtime.services.Services` has it. What a call or a service raises ends the node."""

    def call(self, call: Callable[..., None], /, *args: Any) -> None:
        """Have something called on the loop. Any thread."""

    def later(self, wait_s: float, call: Callable[[], None], /) -> None:
        """Have something called on the loop, from the loop."""

    def guard(self, call: Callable[..., None], /, *args: Any) -> None:
        """Call something now, from the loop."""

    def serve(self, name: str, service: Coroutine[Any, Any, None], /) -> None:
        """Run a service until it is cancelled."""

    def cancel_services(self, *names: str) -> None:
        """Cancel these services."""


class CoreObserver(Protocol):
    """Is shown what a core does: the node's history and live updates, or the simulation's judge."""

    def applied(self, change: StateChange, /) -> None:
        """The state has changed. Called in Raft's thread, before anything else hears of it."""

    def delivered(self, changes: list[StateChange], /) -> None:
        """These changes have come to the event loop."""

    def placed(self, state: State, ownership: Ownership, /) -> None:
        """The controller is about to decide by this state and this placement."""

    def joined(self, incarnation: int, /) -> None:
        """This process is the member's `incarnation` now; 0: none any more."""

    def began_after(self, delay_s: float, /) -> None:
        """An attempt has begun, `delay_s` after its run was due."""


@dataclass(frozen=True)
class CorePorts:
    """All the ports of a core."""

    #: Proposes entries, and knows the leadership.
    raft: CoreRaft
    #: Holds the replicated state.
    machine: StateSource
    #: Starts and ends attempts.
    runner: CoreRunner
    #: Keeps the lease and the verdicts on members.
    heartbeat: HeartbeatPort
    #: Reads the time.
    clock: Clock
    #: Calls functions later, on the event loop.
    loop: LoopPort
    #: Computes placements off the loop.
    placement: PlacementWorker
    #: Is told of what happens here.
    observer: CoreObserver
    #: Sends messages on channels.
    sender: MessageSender
    #: The source of randomness.
    rng: Random
    #: Makes this member's Join, from its incarnation before and the time in microseconds since the epoch.
    join_of: Callable[[int, int], Join]
    #: Makes the runner's order for a claimed run, under a lease until a deadline in seconds on CLOCK_BOOTTIME.
    order_of: Callable[[Run, float], Order]
    #: Writes down the members' addresses for the next start; may raise OSError.
    keep_addresses: Callable[[Mapping[str, Agreed]], Awaitable[None]]


@dataclass(frozen=True)
class CoreSettings:
    """The settings of a core."""

    #: This member's id.
    me: str
    #: The number of this process: its proposals are told by it.
    session: int
    #: How many attempts run here at once, at most.
    max_runs: int
    #: The members of a new cluster.
    first_members: tuple[Seed, ...]
    #: The members' addresses by the configuration, by member.
    configured: Mapping[str, Address] = field(default_factory=dict)
    #: The members' addresses as last agreed on, by member.
    agreed: Mapping[str, Agreed] = field(default_factory=dict)
    #: The terms of those kinds that have some, by kind.
    kinds: Mapping[str, KindTerms] = field(default_factory=dict)
