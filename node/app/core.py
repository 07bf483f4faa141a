"""A member's core: all parts that decide and act, wired on ports (`node.app.core_ports`).

The node runs it on sockets, processes and clocks (`node.app.member`), the simulation on models of them.

Three threads meet here. Raft's thread calls `on_change` and `on_role`, which give the heartbeats a new view and leave
the rest to the event loop. The heartbeat thread calls `on_lease` and `on_verdict`: leases go straight to the
supervisors, and verdicts on other members straight to Raft, so that a busy loop delays neither.
"""

import asyncio
import logging
import threading
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from node.app.core_ports import CorePorts, CoreSettings
from node.app.projections import view_of
from node.control.controller import Controller
from node.control.leader_watch import LeaderWatch
from node.control.placement_service import PlacementService, only_tasks
from node.duty.digests import DigestSummary, DueDigest
from node.duty.ownership import Ownership
from node.duty.room import places_told
from node.duty.step import LeaseView
from node.execution.attempt_events import Event
from node.execution.launch_health import LaunchObserver
from node.execution.order import Order
from node.liveness.detector import LivenessVerdict
from node.liveness.lease import NO_LEASE, LeaseNow
from node.membership.addresses import Addresses
from node.membership.changes import Connect, MembershipChanges
from node.membership.joining import Joining
from node.membership.leadership import Leadership
from node.membership.leaving import Leaving
from node.membership.places import PlacesTeller
from node.membership.self_drain import SelfDrain
from node.notify.teller import Teller
from node.raft.errors import RaftError
from node.raft.ports import RaftRole
from node.replication.proposer import Proposer
from node.replication.state_machine import AppliedWaiters, StateChange
from node.runtime.mailbox import Mailbox
from node.state.codec import BadEntry
from node.state.members import Join, MarkDown
from node.state.value import Run, State

_log = logging.getLogger("rota.member")

VERDICT_S: Final = 2.0
"""How long one proposal to mark a member down may take. The verdict is given again every second."""


@dataclass(frozen=True, slots=True)
class MemberServices:
    """The services that keep a node a member, from its first join to its removal; started and woken together."""

    #: Takes the lead for a new term, and founds the cluster.
    leadership: Leadership
    #: Joins this member.
    joining: Joining
    #: Takes this member out of service when it stops.
    leaving: Leaving
    #: Adds and removes members.
    changes: MembershipChanges
    #: Keeps the members' addresses.
    addresses: Addresses
    #: Drains this member while it cannot take on work.
    self_drain: SelfDrain
    #: Tells how many attempts run here at once.
    places: PlacesTeller

    def services(self) -> dict[str, Coroutine[Any, Any, None]]:
        """Return the coroutines to run until they are cancelled, by name."""
        return {
            "leadership": self.leadership.run(),
            "joining": self.joining.run(),
            "leaving": self.leaving.run(),
            "changes": self.changes.run(),
            "addresses": self.addresses.run(),
            "self-drain": self.self_drain.run(),
            "places": self.places.run(),
        }

    def wake(self) -> None:
        """Have each service check again: the members or the role have changed."""
        for service in (
            *(self.leadership, self.joining, self.leaving, self.changes, self.addresses, self.self_drain),
            self.places,
        ):
            service.wake()

    @property
    def standing(self) -> int | None:
        """This process's incarnation while it is a member that is up or draining, else None."""
        return self.joining.incarnation if self.joining.standing else None


class _Handover:
    """Hands over a leaving member's runs and notices. Implements `node.membership.leaving.RunHandover`."""

    def __init__(self, controller: Controller, teller: Teller) -> None:
        self._controller, self._teller = controller, teller

    async def hand_over_all(self, patience_s: float, dying_s: float) -> bool:
        """Begin nothing new, and hand over every run. Returns whether no attempt runs here any more."""
        clear, _ = await asyncio.gather(self._controller.hand_over_all(patience_s, dying_s), self._teller.rest())
        return clear

    def go_on(self) -> None:
        """Begin attempts and send notices again."""
        self._controller.go_on()
        self._teller.go_on()


class Core:
    """One member's core, from `start` to `leave`.

    Implements `node.control.controller_port.ControllerPort` and `node.replication.proposer.MemberPort`. `ability`
    observes whether attempts can be started on this machine; `connect` probes a new member's Raft port.
    """

    def __init__(
        self,
        settings: CoreSettings,
        ports: CorePorts,
        ability: LaunchObserver | None = None,
        connect: Connect = asyncio.open_connection,
    ) -> None:
        self.me = settings.me
        self._ports = ports
        proposer = Proposer(self.me, settings.session, ports.raft.propose)
        self.propose, self.insist, self._send = proposer.propose, proposer.insist, proposer.send
        self.controller = Controller(self.me, settings.max_runs, self, ports.runner, ability, kinds=settings.kinds)
        self.teller = Teller(self, ports.sender)
        self.placement = PlacementService(self._on_placed, ports.placement)
        self.leading = LeaderWatch(self)
        self._waiters = AppliedWaiters(lambda: self.state().index)
        self.wait_index = self._waiters.wait
        self.membership = self._membership(settings, connect)
        self._changes = Mailbox[StateChange](ports.loop.call, ports.loop.later, self._deliver)
        self._showing = threading.Lock()
        self._lease = self._stepping = NO_LEASE
        self._verdicts: dict[str, LivenessVerdict] = {}

    def _membership(self, settings: CoreSettings, connect: Connect) -> MemberServices:
        ports = self._ports
        joining = Joining(self, self._join, ports.runner.kill_all, self._on_incarnation)
        return MemberServices(
            leadership=Leadership(self, settings.first_members, lambda: ports.raft.members, ports.rng),
            joining=joining,
            leaving=Leaving(self, joining.resign, _Handover(self.controller, self.teller)),
            changes=MembershipChanges(self, ports.raft, self.wait_index, connect=connect),
            addresses=Addresses(self, settings.configured, settings.agreed, ports.raft.relocate, ports.keep_addresses),
            self_drain=SelfDrain(self, self.controller.wake),
            places=PlacesTeller(self, places_told(settings.max_runs, settings.kinds)),
        )

    # -- start and end

    def start(self) -> None:
        """Start the services. Called on the loop, before Raft and the heartbeats are started."""
        services = {
            "placement": self.placement.run(),
            "leading": self.leading.run(),
            "teller": self.teller.run(),
            **self.membership.services(),
        }
        for name, service in services.items():
            self._ports.loop.serve(name, service)

    async def leave(self) -> None:
        """Hand over the runs, and have this member marked down."""
        # These services would mistake the node's own MarkDown for another member's verdict, and would join again.
        self._ports.loop.cancel_services("joining", "leaving", "self-drain", "places")
        await self.membership.leaving.leave()

    # -- called in Raft's thread

    def on_change(self, change: StateChange) -> None:
        """Pass on a change of the state to the observer, to the heartbeats and to the event loop."""
        self._ports.observer.applied(change)
        before, after = change.before, change.after
        same = after.members is before.members and after.lead is before.lead and after.settings is before.settings
        if not same:
            self._show_heartbeats()
        self._changes.put(change, waits=only_tasks(change) and not self._waiters and not self.placement.asked)

    def on_role(self, role: RaftRole) -> None:
        """Pass on this member's new role to the heartbeats and to the event loop."""
        self._show_heartbeats()
        self._ports.loop.call(self._take_role, role)

    def _show_heartbeats(self) -> None:
        """Give the heartbeat thread the newest view. Called in Raft's thread and on the loop."""
        with self._showing:
            view = view_of(self.me, self.membership.joining.incarnation, self.state(), self.role())
            self._ports.heartbeat.observe(view)

    # -- called in the heartbeats' thread

    def on_lease(self, lease: LeaseNow) -> None:
        """Use a renewed or changed lease from now on, and pass it on to the runner."""
        before, self._lease = self._lease, lease
        self._ports.runner.renew(lease.deadline_s)
        if lease.period != before.period or lease.deadline_s < before.deadline_s:
            self._ports.loop.call(self._lease_changed)

    def on_verdict(self, verdict: LivenessVerdict) -> None:
        """Propose to mark a member down, by this leader's verdict. Called again until the state shows it as down."""
        if verdict != self._verdicts.get(verdict.member):
            self._verdicts[verdict.member] = verdict
            _log.warning("%s is taken to be down: %s", verdict.member, verdict.reason)
        down = MarkDown(self.now_us(), verdict.member, verdict.incarnation, verdict.reason, verdict.term)
        try:
            self._send(down, VERDICT_S)
        except (RaftError, BadEntry) as error:
            _log.warning("%s cannot be marked down now, retrying: %s", verdict.member, error)

    # -- called on the loop

    def on_event(self, event: Event) -> None:
        """Handle an event of an attempt, which the runner reports."""
        self.controller.on_event(event)

    def _deliver(self, changes: list[StateChange]) -> None:
        before, state = changes[0].before, changes[-1].after
        self._waiters.applied(state.index)
        for change in changes:
            self.placement.observe(change)
            self.leading.observe(change)
        self._ports.observer.delivered(changes)
        if state.members is not before.members or state.lead != before.lead:
            self.membership.wake()
        if state.channels and (state.channels is not before.channels or state.members is not before.members):
            self.teller.wake()

    def _lease_changed(self) -> None:
        self.controller.wake()
        self.teller.wake()

    def _take_role(self, role: RaftRole) -> None:
        _log.debug("%s", role)
        if role.ready:
            self.placement.caught_up()
        self.leading.wake()
        self.membership.wake()

    def _on_placed(self, state: State, ownership: Ownership, touched: frozenset[str] | None) -> None:
        self._ports.observer.placed(state, ownership)
        self.controller.observe(state, ownership, touched)

    def _on_incarnation(self) -> None:
        self._ports.observer.joined(self.membership.joining.incarnation)
        self._show_heartbeats()
        self.membership.places.wake()
        self.controller.wake()

    def _join(self, at_us: int) -> Join:
        member = self.state().members.get(self.me)
        return self._ports.join_of(0 if member is None else member.incarnation, at_us)

    # -- what the controller and the membership services need

    def state(self) -> State:
        """Return the newest state applied here."""
        return self._ports.machine.state

    def role(self) -> RaftRole:
        """This member's role in Raft."""
        return self._ports.raft.role

    async def public_holidays(self, region: str, first: int, last: int) -> tuple[int, ...]:
        """Return the public holidays of a region from one day to another. Raises `UnknownRegion`."""
        return await self._ports.public_holidays(region, first, last)

    async def digest_of(self, state: State, due: DueDigest) -> DigestSummary:
        """Work out a digest from the state and this member's history. May raise any error of the history."""
        return await self._ports.digest(state, due)

    def now_us(self) -> int:
        """Return the wall clock, in microseconds since the epoch."""
        return self._ports.clock.now_us()

    def standing(self) -> int | None:
        """This process's incarnation while it is a member that is up or draining, else None."""
        return self.membership.standing

    def standing_aside(self) -> str:
        """Return why this member may claim no new runs; "" if it may."""
        return self.membership.self_drain.why

    def live_lease(self) -> LeaseView | None:
        """Return the live lease of this process's incarnation; None while there is none."""
        # Attempts that are launched in this step begin under this lease, even if a renewed lease arrives meanwhile.
        self._stepping = self._lease
        return self._view_of(self._stepping)

    def lease_now(self) -> LeaseView | None:
        """As `live_lease`, for callers that start no attempts."""
        return self._view_of(self._lease)

    def _view_of(self, lease: LeaseNow) -> LeaseView | None:
        if not lease.live(self._ports.clock.boottime_s()) or lease.incarnation != self.standing():
            return None
        return LeaseView(lease.incarnation, lease.period)

    def order_of(self, run: Run) -> Order:
        """Return the runner's order for a claimed run, under the lease that `live_lease` returned last."""
        return self._ports.order_of(run, self._stepping.deadline_s)

    async def lacking(self, task: str) -> Sequence[str]:
        """Return a sentence for each secret that the task names and that this member lacks."""
        return await self._ports.lacking(task)

    def began_after(self, delay_s: float) -> None:
        """Report that an attempt has begun, `delay_s` after its run was due."""
        self._ports.observer.began_after(delay_s)

    # -- what `LocalMember` asks

    @property
    def lease_held(self) -> bool:
        """Whether this member has a live lease."""
        return self._lease.live(self._ports.clock.boottime_s())

    @property
    def lease_lapsed_us(self) -> int | None:
        """When this member's last lease ended, in microseconds since the epoch; None: it has one, or never had one."""
        past_s = self._ports.clock.boottime_s() - self._lease.deadline_s
        return self.now_us() - round(past_s * 1e6) if 0 <= past_s < inf else None

    async def placed(self, timeout_s: float) -> Ownership:
        """Return the placement of the present epoch; if it is not computed within `timeout_s`, the latest one."""
        self._ports.loop.guard(self._changes.deliver)
        return await self.placement.placed(self.state().epoch, timeout_s)
