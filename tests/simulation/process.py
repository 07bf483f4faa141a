"""One process of one member, from its start to its death: the product's own core (`node.app.core`) on models.

Three threads: Raft's, the heartbeat's and the event loop's, which may stand still together or alone. Raft, the sockets,
the worker processes, the clocks and the disk are models; all that decides is the product's. A process also shows the
judge what passes through the ports.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from node.app.core import Core
from node.app.core_ports import CorePorts, CoreSettings
from node.duty.digests import DigestSummary, DueDigest, RunTally, digest_summary
from node.duty.ownership import Ownership
from node.duty.telling import Send
from node.execution.order import Order
from node.liveness.clocks import Correction
from node.liveness.detector import LivenessVerdict
from node.liveness.lease import NO_LEASE, LeaseNow
from node.membership.addresses import Address, Agreed
from node.raft.ports import RaftRole
from node.replication.state_machine import StateChange
from node.runtime.services import Services
from node.state.claims import Claim
from node.state.entries import Entry, Proposal, ProposalId, Seed
from node.state.members import Join
from node.state.value import Result, Run, State
from tests.simulation.adapter import Adapter
from tests.simulation.beats import Beats
from tests.simulation.bench import Runner
from tests.simulation.disk import Disk
from tests.simulation.disk import Entry as LogEntry
from tests.simulation.loop import Loop
from tests.simulation.spread import declines

if TYPE_CHECKING:
    import asyncio

    from tests.simulation.cluster import Cluster

MAX_RUNS = 6
CLOCK_US = 1_000_000
"""A clock that is less than this off is right."""

DECIDED_BY = 3
"""States by which a proposal may have been decided: the controller may be shown two newer ones before it leaves."""


def seed_of(name: str) -> Seed:
    """A member as it is named before it has joined."""
    return Seed(name, name, 1, 2)


class Process:
    """One process. `session` as `node.app.data_dir` gives it.

    Implements the ports `StateSource`, `Clock`, `PlacementWorker` and `CoreObserver` of `node.app.core_ports`, and
    `node.notify.teller.MessageSender`.
    """

    def __init__(self, cluster: "Cluster", me: str, disk: Disk, link: int) -> None:
        world = cluster.world
        self.me, self.disk, self.link = me, disk, link
        self.leaving_now = False
        self.state = State()
        self.applied_index = 0
        self._cluster, self._world, self._ledger = cluster, world, cluster.ledger
        self._decides_by: tuple[State, ...] = ()
        self._correction = Correction()
        self._lease = NO_LEASE
        self._lapsed_s = float("-inf")
        disk.session = max(disk.session, world.wall_us(me)) + 1
        self.loop = Loop(world, me, lambda what: world.wrong(f"on {me}: {what}"))
        self._on_loop = self.loop.entered(Services)
        self._on_loop.failed.add_done_callback(lambda failed: world.wrong(f"{me} cannot go on: {failed.result()!r}"))
        self.adapter = Adapter(me, disk, world, cluster.habits, cluster.adapter, self, self._on_role)
        self.adapter.on_propose = lambda proposal: cluster.spring("taken", self, proposal.entry)
        self.raft = WatchedRaft(self, cluster, self.adapter)
        self.runner = Runner(me, cluster.bench, self.loop, lambda event: self.core.on_event(event))
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
        members = tuple(seed_of(name) for name in disk.first_members)
        configured = {seed.id: (seed.host, seed.raft_port) for seed in members}
        ports = CorePorts(
            raft=self.raft,
            machine=self,
            runner=self.runner,
            heartbeat=self.beats,
            clock=self,
            loop=self._on_loop,
            placement=self,
            observer=self,
            sender=self,
            rng=world.rng,
            join_of=self._join_of,
            order_of=self._order_of,
            public_holidays=self._public_holidays,
            keep_addresses=self._keep_addresses,
            digest=self._digest,
            lacking=self._lacking,
        )
        settings = CoreSettings(me, disk.session, MAX_RUNS, members, configured, disk.agreed)
        self.core = Core(settings, ports, connect=self._connect)

    @staticmethod
    async def _public_holidays(_region: str, first: int, last: int) -> tuple[int, ...]:
        """Every seventh day is one."""
        return tuple(day for day in range(first, last + 1) if day % 7 == 0)

    async def _digest(self, state: State, due: DueDigest) -> DigestSummary:
        """What it says is judged elsewhere: it is made once."""
        return digest_summary(state, due, RunTally(state.index, {}), self.now_us())

    def start(self) -> None:
        """Begin."""
        self.core.start()
        if not self._cluster.shares:
            self._on_loop.cancel_services("places")
        self.adapter.raft.start()
        self.beats.start()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Have something done on the loop."""
        self.loop.create_task(work)

    def has_wrong(self, what: str, why: str | None) -> None:
        """A watch of this node finds something wrong, or well again (None)."""
        self.loop.call_soon(self.core.membership.self_drain.set, what, why)

    def stop(self, gone: Callable[[], None]) -> None:
        """Stop in good order; `gone` is called when the process may end."""
        self.leaving_now = True

        async def leave() -> None:
            await self.core.leave()
            await self.runner.kill_all()
            gone()

        self.spawn(leave())

    @property
    def well(self) -> bool:
        """Whether its threads turn, its clock is right and a majority is with it."""
        machine, role = self._world.machines[self.me], self.adapter.role
        turns = all(until_s <= self._world.now_s for until_s in machine.stopped_until_s.values())
        return turns and role.has_quorum and abs(self.now_us() - self._world.true_us) < CLOCK_US

    # -- what the state machine is to Raft, in its thread

    def apply(self, index: int, entry: LogEntry) -> Sequence[tuple[ProposalId, Result]]:
        """An entry is committed."""
        line = self._ledger.take(self.me, index, entry)
        before, self.state = self.state, line.state
        self.applied_index = index
        if before is not line.state:
            self.core.on_change(StateChange(before, line.state, line.touched, line.ended))
        self._belong()
        return line.results

    def restore(self, index: int) -> None:
        """The state is that of a snapshot."""
        if index:
            before, self.state = self.state, self._ledger.state_at(index)
            self.applied_index = index
            self.core.on_change(StateChange(before, self.state, None))
            self._belong()

    def _belong(self) -> None:
        self.disk.cluster_id = self.disk.cluster_id or self.state.cluster_id

    def _on_role(self, role: RaftRole) -> None:
        if role.ready:
            self._cluster.judge.ready(self.me, self.disk.cluster_id)
        self.core.on_role(role)

    # -- what the heartbeats tell, in their thread

    def _on_lease(self, lease: LeaseNow) -> None:
        before, self._lease = self._lease, lease
        if not before.live(self.boottime_s()):
            self._lapsed_s = self._world.now_s
        self.core.on_lease(lease)

    def _on_verdict(self, verdict: LivenessVerdict) -> None:
        self._cluster.counts[verdict.reason] += 1
        self._world.tell(f"{self.me} takes {verdict.member} ({verdict.incarnation}) for {verdict.reason}")
        self.core.on_verdict(verdict)

    # -- what the core observes and asks

    def now_us(self) -> int:
        """The wall clock that this process goes by."""
        return self._correction.now_us(self._world.wall_us(self.me), self._world.clock_s(self.me))

    def boottime_s(self) -> float:
        """The machine's CLOCK_BOOTTIME."""
        return self._world.clock_s(self.me)

    def follow(self, before: Ownership, state: State, touched: set[str] | None) -> "asyncio.Future[Ownership]":
        """A placement is computed; now and then that takes long."""
        changed = None if touched is None else frozenset(touched)
        placed, future = self._ledger.ownership(self.me, state, before, changed), self.loop.create_future()
        wait_s = 0.05 if self._world.rng.random() < 0.1 else 0.001
        self.loop.call_later(wait_s, lambda: None if future.done() else future.set_result(placed))
        return future

    def applied(self, change: StateChange) -> None:
        """The ledger knows it."""

    def delivered(self, changes: list[StateChange]) -> None:
        """There are no listeners here."""

    def placed(self, state: State, ownership: Ownership) -> None:
        """The controller decides by this from now on."""
        self._decides_by = (*self._decides_by, state)[-DECIDED_BY:]

    def joined(self, incarnation: int) -> None:
        """This process is another incarnation."""
        self._world.tell(f"{self.me} is incarnation {incarnation}")

    def began_after(self, delay_s: float) -> None:
        """There are no metrics here."""

    async def send(self, _cluster_id: str, message: Send) -> str:
        """A message goes out."""
        return await self._cluster.receivers.send(self, message)

    def proposes(self, proposal: Proposal) -> None:
        """Something is about to be said: by what its proposer may have seen is it judged."""
        self._cluster.judge.policies.decided(proposal, self._decides_by)

    def _join_of(self, after: int, at_us: int) -> Join:
        return Join(at_us, self.me, self.me, 1, 2, 3, self._cluster.labels(self.me), 1, ("command",), after)

    def _order_of(self, run: Run, deadline_s: float) -> Order:
        spec = run.spec
        attempt = run.attempts[-1].attempt
        if self.raft.claimed_s.get((run.task, run.attempts[-1].claimed_at_us), float("-inf")) < self._lapsed_s:
            self._world.wrong(f"{self.me} starts {run.run_id}, and its lease has lapsed since it claimed it")
        params = {"continuous": True} if spec.continuous else spec.params if run.params is None else run.params
        return Order(
            run.run_id, run.task, spec.kind, "", params, attempt, run.token, run.fire_at_us, run.checkpoint,
            spec.timeout_s, deadline_s,
        )  # fmt: skip

    async def _keep_addresses(self, agreed: Mapping[str, Agreed]) -> None:
        self.disk.agreed = dict(agreed)

    async def _lacking(self, task: str) -> tuple[str, ...]:
        return ("a secret",) if declines(self.me, task) else ()

    async def _connect(self, host: str, _port: int) -> tuple[Any, Any]:
        """A new member's Raft is probed."""
        if self._world.is_cut(self.me, host) or not self._world.machines[host].running:
            raise ConnectionRefusedError
        return None, _Closing()

    async def propose(self, entry: Entry, timeout_s: float) -> Result:
        """Commit an entry, as a client that asks this member."""
        return await self.core.propose(entry, timeout_s)


class WatchedRaft:
    """The adapter, as the core has it: the judge sees each proposal and its result. Implements `CoreRaft`.

    `claimed_s` has the world's time of each claim, by its task and its stamp.
    """

    def __init__(self, process: Process, cluster: "Cluster", adapter: Adapter) -> None:
        self.claimed_s: dict[tuple[str, int], float] = {}
        self._process, self._cluster, self._adapter = process, cluster, adapter
        self.add_member, self.remove_member = adapter.add_member, adapter.remove_member
        self.hand_over = adapter.hand_over

    @property
    def role(self) -> RaftRole:
        """This member's role."""
        return self._adapter.role

    @property
    def members(self) -> frozenset[str]:
        """The members by the log."""
        return self._adapter.members

    def propose(self, proposal: Proposal, timeout_s: float) -> "Future[Result]":
        """Have an entry committed; what lay in wait for such an entry strikes first."""
        entry = proposal.entry
        if isinstance(entry, Claim):
            self.claimed_s[entry.task, entry.at_us] = self._cluster.world.now_s
        self._process.proposes(proposal)
        self._cluster.spring("said", self._process, entry)
        future = self._adapter.propose(proposal, timeout_s)
        future.add_done_callback(lambda done: self._answered(proposal, done))
        return future

    def relocate(self, member: str, address: Address) -> None:
        """Members are found by name here, and never move."""
        if address != (member, 1):
            self._cluster.world.wrong(f"{self._process.me} connects to {member} at {address}")

    def _answered(self, proposal: Proposal, done: "Future[Result]") -> None:
        if done.exception() is None:
            self._cluster.judge.told(proposal.id, done.result())


class _Closing:
    def close(self) -> None:
        """Nothing was opened."""
