"""One process of one member, from its start to its death: the real parts of a node, wired as `node.app.member` wires
them.

Three threads: Raft's, the heartbeat's and the event loop's, which may stand still together or alone. What a node is
made of runs as it is (`Conduct`, `Proposing`, `Joining`, `Leaving`, `Leadership`, `Membership`, and the pure parts
under them); only Raft, the sockets and the worker processes are models.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from node.app.projections import view_of
from node.control.controller import Conduct
from node.duty.ownership import Ownership
from node.duty.step import LeaseView
from node.execution.order import Event, Order
from node.liveness.clocks import Correction
from node.liveness.detector import LivenessVerdict
from node.liveness.lease import NO_LEASE, LeaseNow
from node.membership.changes import Membership
from node.membership.joining import Joining
from node.membership.leadership import Leadership
from node.membership.leaving import Leaving
from node.raft.ports import RaftRole
from node.replication.proposer import Proposing
from node.replication.state_machine import StateChange
from node.state.entries import Claim, Entry, Join, MarkDown, Proposal, ProposalId, Seed
from node.state.value import Result, Run, State
from tests.simulation.adapter import Adapter
from tests.simulation.beats import Beats
from tests.simulation.bench import Runner
from tests.simulation.disk import Disk
from tests.simulation.disk import Entry as LogEntry
from tests.simulation.loop import Loop

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

VERDICT_S = 2.0
MAX_RUNS = 6


def seed_of(name: str) -> Seed:
    """A member as it is named before it has joined."""
    return Seed(name, name, 1, 2)


class Process:
    """One process. `session` as `node.app.data_dir` gives it."""

    def __init__(self, cluster: "Cluster", me: str, disk: Disk, link: int) -> None:
        world = cluster.world
        self.me, self.disk, self.link = me, disk, link
        self.leaving_now = False
        self._cluster, self._world = cluster, world
        self._ledger = cluster.ledger
        self.loop = Loop(world, me, lambda what: world.wrong(f"on {me}: {what}"))
        disk.session = max(disk.session, world.wall_us(me)) + 1
        self._index = 0
        self.state = State()
        self._lease = self._stepping = NO_LEASE
        self._correction = Correction()
        self._claimed_s: dict[tuple[str, int], float] = {}
        self._lapsed_s = float("-inf")
        self.adapter = Adapter(me, disk, world, cluster.habits, cluster.adapter, self, self._on_role)
        self.adapter.on_propose = self._proposed
        self.proposing = Proposing(me, disk.session, self._send)
        self.runner = Runner(me, cluster.bench, self.loop, lambda event: self._on_event(event))
        self.conduct = Conduct(
            me,
            MAX_RUNS,
            self.runner,
            self.propose,
            self.proposing.insist,
            lambda: self.state,
            self._live_lease,
            self._order_of,
        )
        rules = cluster.rules
        self.beats = Beats(
            me,
            link,
            world,
            cluster.beats,
            self._on_lease,
            self._on_verdict,
            self._correction,
            rules.lease,
            rules.detector,
        )
        role, state = (lambda: self.adapter.role), (lambda: self.state)
        self.joining = Joining(me, state, self.propose, self._join, self.runner.kill_all, self._on_incarnation)
        self.leaving = Leaving(me, state, self._standing, self.joining.resign, self.conduct, self.propose)
        seeds = tuple(seed_of(name) for name in disk.first_members)
        self.leadership = Leadership(me, seeds, state, role, self.propose, lambda: self.adapter.members)
        self.changes = Membership(me, self.adapter, state, role, self.propose, self._wait_index, connect=self._connect)
        self.ownership = Ownership.of(State())
        self._decides_by: tuple[State, ...] = ()
        self._touched: frozenset[str] | None = None
        self._placing = False

    def start(self) -> None:
        """Begin."""
        for service in (self.leadership.run(), self.joining.run(), self.leaving.run(), self.changes.run()):
            self.spawn(service)
        self.adapter.raft.start()
        self.beats.start()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Have something done on the loop."""
        self.loop.create_task(work)

    def stop(self, gone: Callable[[], None]) -> None:
        """Stop in good order; `gone` is called when the process may end."""
        self.leaving_now = True

        async def leave() -> None:
            await self.leaving.leave()
            await self.runner.kill_all()
            gone()

        self.spawn(leave())

    # -- what the state machine is to Raft, in its thread

    def apply(self, index: int, entry: LogEntry) -> Sequence[tuple[ProposalId, Result]]:
        """An entry is committed."""
        line = self._ledger.take(self.me, index, entry)
        before, self.state = self.state, line.state
        self._index = index
        if before is not line.state:
            self._on_change(StateChange(before, line.state, line.touched, line.ended))
        self._belong()
        return line.results

    def _belong(self) -> None:
        self.disk.cluster_id = self.disk.cluster_id or self.state.cluster_id

    def restore(self, index: int) -> None:
        """The state is that of a snapshot."""
        if index:
            before, self.state = self.state, self._ledger.state_at(index)
            self._index = index
            self._on_change(StateChange(before, self.state, None))
            self._belong()

    def _on_change(self, change: StateChange) -> None:
        before, after = change.before, change.after
        if after.members is not before.members or after.lead != before.lead or after.settings != before.settings:
            self._look()
        self.loop.call_soon_threadsafe(self._changed, change)

    def _on_role(self, role: RaftRole) -> None:
        if role.ready:
            self._cluster.judge.ready(self.me, self.disk.cluster_id)
        self._look()
        self.loop.call_soon_threadsafe(self._stir)

    def _look(self) -> None:
        self.beats.look(view_of(self.me, self.joining.incarnation, self.state, self.adapter.role))

    def _send(self, proposal: Proposal, timeout_s: float) -> "Future[Result]":
        self._cluster.judge.policies.decided(proposal, self._decides_by)
        self._cluster.spring("said", self, proposal.entry)
        future = self.adapter.propose(proposal, timeout_s)
        future.add_done_callback(lambda done: self._told(proposal, done))
        return future

    def _told(self, proposal: Proposal, done: "Future[Result]") -> None:
        if done.exception() is None:
            self._cluster.judge.told(proposal.id, done.result())

    def _proposed(self, proposal: Proposal) -> None:
        self._cluster.spring("taken", self, proposal.entry)

    # -- what the heartbeats tell, in their thread

    def _on_lease(self, lease: LeaseNow) -> None:
        before, self._lease = self._lease, lease
        if not before.live(self._world.clock_s(self.me)):
            self._lapsed_s = self._world.now_s
        self.runner.renew(lease.deadline_s)
        if lease.period != before.period or lease.deadline_s < before.deadline_s:
            self.loop.call_soon_threadsafe(self.conduct.stir)

    def _on_verdict(self, verdict: LivenessVerdict) -> None:
        self._cluster.counts[verdict.reason] += 1
        self._world.tell(f"{self.me} takes {verdict.member} ({verdict.incarnation}) for {verdict.reason}")
        at_us = self.now_us()
        down = MarkDown(at_us, verdict.member, verdict.incarnation, verdict.reason, verdict.term)
        self.proposing.send(down, VERDICT_S)

    # -- on the loop

    def _changed(self, change: StateChange) -> None:
        state = change.after
        self._touched = None if self._touched is None or change.touched is None else self._touched | change.touched
        if state.members is not change.before.members or state.lead != change.before.lead:
            self._stir()
        if not self._placing:
            self._placing = True
            rng = self._world.rng
            self.loop.call_later(0.05 if rng.random() < 0.1 else 0.001, self._placed)

    def _placed(self) -> None:
        self._placing = False
        state, touched = self.state, self._touched
        self.ownership = self._ledger.ownership(self.me, state, self.ownership, touched)
        self._touched = frozenset()
        # A proposal is on its way a turn of the loop after it was decided on: a look at most has come between.
        self._decides_by = (*self._decides_by[-1:], state)
        self.conduct.look(state, self.ownership, touched)

    def _stir(self) -> None:
        if not self.leaving_now:
            for service in (self.leadership, self.joining, self.leaving, self.changes):
                service.stir()
        else:
            self.leadership.stir()

    def _on_incarnation(self) -> None:
        self._world.tell(f"{self.me} is incarnation {self.joining.incarnation}")
        self._look()
        self.conduct.stir()

    def _on_event(self, event: Event) -> None:
        self.conduct.on_event(event)

    def _join(self, at_us: int) -> Join:
        member = self.state.members.get(self.me)
        labels, kinds = self._cluster.labels(self.me), ("command",)
        after = 0 if member is None else member.incarnation
        return Join(at_us, self.me, self.me, 1, 2, 3, labels, 1, kinds, after)

    def _standing(self) -> int | None:
        return self.joining.incarnation if self.joining.standing else None

    def _live_lease(self) -> LeaseView | None:
        lease = self._stepping = self._lease
        if not lease.live(self._world.clock_s(self.me)) or lease.incarnation != self._standing():
            return None
        return LeaseView(lease.incarnation, lease.period)

    def _order_of(self, run: Run) -> Order:
        spec = run.spec
        attempt = run.attempts[-1].attempt
        if self._claimed_s.get((run.task, run.attempts[-1].claimed_at_us), float("-inf")) < self._lapsed_s:
            self._world.wrong(f"{self.me} starts {run.run_id}, and its lease has lapsed since it claimed it")
        params = {"continuous": True} if spec.continuous else {}
        deadline_s = self._stepping.deadline_s
        return Order(
            run.run_id, run.task, spec.kind, "", params, attempt, run.token, run.fire_at_us, run.checkpoint,
            spec.timeout_s, deadline_s,
        )  # fmt: skip

    async def propose(self, entry: Entry, timeout_s: float) -> Result:
        """Commit an entry."""
        if isinstance(entry, Claim):
            self._claimed_s[entry.task, entry.at_us] = self._world.now_s
        return await self.proposing.propose(entry, timeout_s)

    async def _wait_index(self, index: int, timeout_s: float) -> bool:
        end_s = self.loop.time() + timeout_s
        while self.state.index < index and self.loop.time() < end_s:
            waiter = self.loop.create_future()
            self.loop.call_later(0.05, _set, waiter)
            await waiter
        return self.state.index >= index

    async def _connect(self, host: str, _port: int) -> tuple[Any, Any]:
        """A knock at a new member's Raft."""
        if self._world.is_cut(self.me, host) or not self._world.machines[host].running:
            raise ConnectionRefusedError
        return None, _Closing()

    def now_us(self) -> int:
        """The wall clock that this process goes by."""
        return self._correction.now_us(self._world.wall_us(self.me), self._world.clock_s(self.me))

    @property
    def lease_held(self) -> bool:
        """Whether work may run here now."""
        return self._lease.live(self._world.clock_s(self.me))

    @property
    def applied(self) -> int:
        """The index of the last entry applied."""
        return self._index


def _set(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


class _Closing:
    def close(self) -> None:
        """Nothing was opened."""
