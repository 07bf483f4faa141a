"""A member of the cluster: wires the parts together, and is what the API's routes ask.

Three threads meet here. Raft's applies entries and tells of roles; it notes what ended, shows the heartbeats what
they need to know, and leaves the rest to the event loop. The heartbeats' brings leases to the supervisors and
verdicts on other members to Raft, without passing through the loop: a loop that is busy is not death.
"""

import asyncio
import logging
import os
import secrets
import threading
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from node.app.config import Config
from node.app.data_dir import DataDir
from node.app.projections import join_of, order_of, view_of
from node.app.raft_owner import MemberRaftOwner
from node.client import Client
from node.control.controller import Conduct
from node.control.failure_log import tell_of_failures
from node.control.placement_service import Placing, only_tasks
from node.duty.overdue import Overdue
from node.duty.ownership import Ownership
from node.duty.step import LeaseView
from node.execution.order import AttemptLimits, Order, log_path, logs_path, scratch_folder
from node.execution.runner import Runner
from node.history.backfill import Backfill
from node.history.retention import Retention
from node.history.store import HISTORY, HistoryStore
from node.http.kinds import InstalledKinds
from node.http.node_port import Placed, Update
from node.identity.cluster_id import ClusterId
from node.liveness.detector import LivenessVerdict
from node.liveness.heartbeat import Heartbeat, boottime_s
from node.liveness.lease import NO_LEASE, LeaseNow
from node.liveness.pulse import STILL_S
from node.liveness.wall_clock import CLOCK, now_us
from node.membership.addresses import Whereabouts, at_start
from node.membership.auto_join import AutoJoin
from node.membership.changes import Membership
from node.membership.join_request import Introduction
from node.membership.joining import Joining
from node.membership.launch_watch import StartWatch
from node.membership.leadership import Leadership
from node.membership.leaving import Leaving
from node.membership.removal_watch import Belonging
from node.membership.self_drain import Aside
from node.membership.services import MemberServices
from node.peer.client import Peers
from node.peer.newcomer import Newcomer
from node.peer.protocol import RunProgress
from node.raft.adapter import Raft
from node.raft.errors import RaftError
from node.raft.founding import Outlook
from node.raft.ports import RaftRole, RaftSettings
from node.replication.applied import Reached
from node.replication.proposer import Proposing
from node.replication.state_machine import StateChange, StateMachine
from node.runtime.broadcast import Broadcast
from node.runtime.logs import flush
from node.runtime.mailbox import Inbox
from node.runtime.services import OnLoop
from node.state.codec import BadEntry
from node.state.entries import Entry, Join, MarkDown, Seed
from node.state.value import Result, Run, State
from node.storage.disk_watch import DiskWatch, Running, space_of
from node.storage.full_disk_wait import WaitForRoom
from node.storage.reserve import Reserve
from node.telemetry.lease_monitor import tell_of_lapses
from node.telemetry.raft_watchdog import Stall, tell_of_stalls
from node.telemetry.thread_lag import Lateness, Worst, start_delays, watch_loop
from tasks.kinds import KindEntry

_log = logging.getLogger("rota.member")

VERDICT_S: Final = 2.0
CLOSE_S: Final = 3.0
"""How long the end waits for killed attempts. What hangs in the kernel by then is not waited for."""


class LocalMember:
    """One member, from `start` to `stop`, of `cluster`. Implements `node.http.node_port.Node`.

    It checks params by the kinds that are `installed` here, and takes on those that are `offered`.
    When it cannot go on, `failed` is set to what went wrong; whoever serves it ends then.
    """

    def __init__(
        self,
        config: Config,
        folder: DataDir,
        seed: Seed,
        installed: Mapping[str, KindEntry],
        offered: Mapping[str, KindEntry],
        cluster: ClusterId,
    ) -> None:
        self._on_loop = OnLoop()
        self._config = config
        self._folder = folder
        self._seed = seed
        self._offered = offered
        self.facts = config
        self.kinds = InstalledKinds(installed, config.access)
        configured, agreed = {seed.id: (seed.host, seed.raft_port) for seed in config.members}, folder.agreed()
        self.history = HistoryStore(folder.path / HISTORY, lambda error: self._on_loop.call(self._on_loop.fail, error))
        self._changes = Inbox[StateChange](self._on_loop.call, self._on_loop.later, self._changed)
        self._machine = StateMachine(self._on_change)
        self._reserve = Reserve(folder.path / "raft")
        start_id = secrets.token_hex(8)
        self._raft = self._begin_raft(at_start(config.node, configured, agreed), cluster, start_id)
        self._proposing = Proposing(config.node, folder.session, self._raft.propose)
        self._heartbeat = self._begin_heartbeat(cluster, start_id)
        self.lateness = Lateness(Worst(), self._raft.lateness, self._heartbeat.lateness, self._heartbeat.answers)
        self.start_delay = start_delays()
        self._stall = Stall(STILL_S)
        self._looking = threading.Lock()
        self._lease = self._stepping = NO_LEASE
        bounds = config.bounds.on(space_of(folder.path).total_bytes)
        self._runner = Runner(
            folder.path,
            lambda event: self._conduct.on_event(event),  # noqa: PLW0108 - made below
            AttemptLimits(log_bytes=bounds.log_bytes, umask=config.umask),
        )
        self._start_watch = StartWatch(config.node, self.state, lambda why: self._life.aside.set("start", why))
        self._conduct = Conduct(
            config.node,
            config.max_runs,
            self._runner,
            self.propose,
            self._proposing.insist,
            self.state,
            self._live_lease,
            self._order_of,
            began_after=self.start_delay.observe,
            aside=lambda: self._life.aside.why,
            ability=self._start_watch,
        )
        self._placing = Placing(self._on_placed)
        self.peers = Peers(config.secret, self.state, cluster, config.node)
        self._life = self._begin_life(
            Whereabouts(
                config.node, configured, agreed, self.state, self._role, self._raft.relocate, folder.keep_agreed
            )
        )
        self._admission = AutoJoin(
            seed,
            config.members,
            config.auto_join,
            lambda: self._raft.outlook,
            lambda urls: Newcomer(Client(urls), config.secret, config.node),
        )
        self._backfill = Backfill(config.node, self.history, self.peers, self.state)
        self._retention = Retention(folder.path, self.history, self.state, history_bytes=bounds.history_bytes)
        self._disk = DiskWatch(
            config.node,
            folder.path,
            logs_path(folder.path),
            config.bounds,
            self._reserve,
            self._working,
            self._conduct.fail,
            lambda why: self._life.aside.set("disk", why),
        )
        self._shown: Ownership | None = None
        self._broadcast: Broadcast[Update] = Broadcast()
        self._reached = Reached(lambda: self.state().index)
        self._stopping = False
        self._verdicts: dict[str, LivenessVerdict] = {}

    def _begin_raft(self, addresses: Mapping[str, tuple[str, int]], cluster: ClusterId, start_id: str) -> Raft:
        config = self._config
        settings = RaftSettings(
            config.node,
            addresses,
            self._folder.path / "raft",
            config.secret,
            bind_host=config.bind,
            start_id=start_id,
        )
        owner = MemberRaftOwner(
            self._on_role,
            on_failure=lambda error: self._on_loop.call(self._on_loop.fail, error),
            room=WaitForRoom(self._reserve.release, lambda: self._disk.wake()),  # noqa: PLW0108 - made later
        )
        return Raft(settings, self._machine, owner, cluster)

    def _begin_heartbeat(self, cluster: ClusterId, start_id: str) -> Heartbeat:
        return Heartbeat(
            self._config.node,
            self._config.bind,
            self._config.heartbeat_port,
            self._config.secret,
            self._on_lease,
            self._on_verdict,
            _end_process,
            lambda: self._raft.turns,
            cluster,
            on_clock=CLOCK.agree,
            start_id=start_id,
        )

    def _begin_life(self, whereabouts: Whereabouts) -> MemberServices:
        me, state, role, propose = self._config.node, self.state, self._role, self.propose
        joining = Joining(me, state, propose, self._join, self._runner.kill_all, self._on_incarnation)
        return MemberServices(
            Leadership(me, self._config.members, state, role, propose, lambda: self._raft.members),
            joining,
            Leaving(me, state, lambda: self._life.standing, joining.resign, self._conduct, propose),
            Membership(me, self._raft, state, role, propose, self.wait_index),
            whereabouts,
            Belonging(me, state, role, joining, self.peers),
            Aside(me, state, lambda: self._life.standing, propose, lambda: self._conduct.stir()),  # noqa: PLW0108
        )

    # -- beginning and end

    async def start(self, introduction: Introduction | None = None) -> None:
        """Begin; with an `introduction`, in a cluster that may not know this member yet.

        Raises what `Raft.start`, `Heartbeat.start` and `Runner.start` raise.
        """
        await self._runner.start()
        self._heartbeat.start()
        services = {
            "placing": self._placing.run(),
            **self._life.services(),
            "admission": self._admission.run(),
            "lapses": tell_of_lapses(lambda: self._stopping or self.lease_held, lambda: self.role.leader),
            "stalls": tell_of_stalls(self._stall, lambda: self._raft.turns),
            "lateness": watch_loop(self.lateness.loop),
            "backfill": self._backfill.run(),
            "retention": self._retention.run(),
            "bound": self._retention.bound(),
            "disk": self._disk.run(),
            "starts": self._start_watch.run(),
            "logs": self._disk.bound_logs(),
        }
        for name, service in services.items():
            self._on_loop.serve(name, service)
        await asyncio.to_thread(self._raft.start)  # it loads the state, however large
        if introduction is not None:
            self._on_loop.serve("introduction", introduction.enter())

    async def stop(self) -> None:
        """Stop in good order: hand over what runs, say so, and close."""
        self._stopping = True
        # They would take what is said here for somebody else's verdict, and join again.
        self._on_loop.call_off("joining", "leaving", "aside")
        try:
            await self._life.leaving.leave()
        finally:
            await self.close()

    async def close(self) -> None:
        """Close everything, in whatever state it is."""
        self._stopping = True
        self._broadcast.close()
        await self._on_loop.end()
        await self._conduct.close()
        for what, closing in (
            ("the attempts", self._runner.close(CLOSE_S)),
            ("the heartbeats", asyncio.to_thread(self._heartbeat.stop)),
            ("Raft", asyncio.to_thread(self._raft.stop)),
            ("the history", asyncio.to_thread(self.history.close)),
        ):
            try:
                await closing
            except Exception:  # noqa: BLE001 - the rest is to be closed all the same
                _log.exception("%s could not be closed in good order", what)
        self._placing.close()
        self._folder.close()

    # -- what Raft tells, in its thread

    def _on_change(self, change: StateChange) -> None:
        if change.touched is None:
            self.history.jumped(change.after.index)
        self.history.record(change.after.index, change.ended)
        before, after = change.before, change.after
        if after.members is not before.members or after.lead != before.lead or after.settings != before.settings:
            self._look()
        self._changes.put(change, rests=only_tasks(change) and not self._reached and not self._placing.asked)

    def _on_role(self, role: RaftRole) -> None:
        self._look()
        self._on_loop.call(self._role_changed, role)

    def _look(self) -> None:
        """Show the heartbeats what they need to know. Called from Raft's thread and from the loop."""
        with self._looking:
            view = view_of(self._config.node, self._life.joining.incarnation, self._machine.state, self._raft.role)
            self._heartbeat.look(view)

    # -- what the heartbeats tell, in their thread

    def _on_lease(self, lease: LeaseNow) -> None:
        before, self._lease = self._lease, lease
        self._runner.renew(lease.deadline_s)
        if lease.period != before.period or lease.deadline_s < before.deadline_s:
            self._on_loop.call(self._conduct.stir)

    def _on_verdict(self, verdict: LivenessVerdict) -> None:
        if verdict != self._verdicts.get(verdict.member):  # it comes again until the state shows it
            self._verdicts[verdict.member] = verdict
            _log.warning("%s is taken to be down: %s", verdict.member, verdict.reason)
        down = MarkDown(now_us(), verdict.member, verdict.incarnation, verdict.reason, verdict.term)
        try:
            self._proposing.send(down, VERDICT_S)
        except (RaftError, BadEntry) as error:
            _log.warning("%s cannot be marked down now: %s", verdict.member, error)

    # -- on the loop

    def _changed(self, changes: list[StateChange]) -> None:
        before, state = changes[0].before, changes[-1].after
        self._reached.tell(state.index)
        if self._raft.role.ready:  # not of what is applied again after a start
            tell_of_failures(changes, self._config.node)
        for change in changes:
            self._placing.look(change)
            self._broadcast.send(change)
        if state.members is not before.members or state.lead != before.lead:
            self._life.stir()

    def _role_changed(self, role: RaftRole) -> None:
        _log.debug("%s", role)
        if role.ready:
            self._placing.caught_up()
        self._life.stir()

    def _on_placed(self, state: State, ownership: Ownership, touched: frozenset[str] | None) -> None:
        if ownership is not self._shown:
            self._broadcast.send(Placed(self._shown, ownership))
            self._shown = ownership
        self._conduct.look(state, ownership, touched)

    def _on_incarnation(self) -> None:
        self._look()
        self._conduct.stir()

    def _join(self, at_us: int) -> Join:
        member = self.state().members.get(self._config.node)
        after = 0 if member is None else member.incarnation
        return join_of(self._config, self._seed, self._heartbeat.port, self._offered, after, at_us)

    def _live_lease(self) -> LeaseView | None:
        # What is launched in this step begins under this lease, whatever comes meanwhile.
        lease = self._stepping = self._lease
        if not lease.live(boottime_s()) or lease.incarnation != self._life.standing:
            return None
        return LeaseView(lease.incarnation, lease.period)

    def _working(self) -> Running:
        state = self.state()
        return {
            (run_id, attempt.token): (
                scratch_folder(self._folder.path, run_id, attempt.token),
                log_path(self._folder.path, run_id, state.runs[run_id].attempts[-1].attempt),
            )
            for run_id, attempt in self._conduct.held.items()
            if not attempt.ended and run_id in state.runs
        }

    def _role(self) -> RaftRole:
        return self._raft.role

    def _order_of(self, run: Run) -> Order:
        return order_of(run, self._config, self._offered, self._stepping.deadline_s)

    @property
    def failed(self) -> "asyncio.Future[Exception]":
        """What went wrong, once it cannot go on."""
        return self._on_loop.failed

    # -- what the routes ask

    @property
    def role(self) -> RaftRole:
        """Where this member stands in Raft."""
        role = self._raft.role
        if self._stall.lasts:  # what Raft knew when it last came round is old
            return replace(role, ready=False, has_quorum=False)
        return replace(role, ready=False) if self._stopping or self._conduct.failing else role

    @property
    def outlook(self) -> Outlook:
        """What this node waits for while it is of no cluster; None once it is of one."""
        return self._admission.outlook

    @property
    def lease_held(self) -> bool:
        """Whether work may run here now."""
        return self._lease.live(boottime_s())

    def state(self) -> State:
        """The state as applied here."""
        return self._machine.state

    def ownership(self) -> Ownership:
        """The latest placement."""
        return self._placing.ownership

    async def placed(self, timeout_s: float) -> Ownership:
        """The placement of the present epoch."""
        self._on_loop.guard(self._changes.deliver)
        return await self._placing.placed(self.state().epoch, timeout_s)

    async def propose(self, entry: Entry, timeout_s: float) -> Result:
        """Commit an entry."""
        return await self._proposing.propose(entry, timeout_s)

    async def barrier(self, timeout_s: float) -> None:
        """Commit nothing."""
        await asyncio.wrap_future(self._raft.barrier(timeout_s))

    async def wait_index(self, index: int, timeout_s: float) -> bool:
        """Wait until `index` is applied here."""
        return await self._reached.wait(index, timeout_s)

    async def add_member(self, seed: Seed, timeout_s: float) -> Result:
        """Let a new member in."""
        return await self._life.changes.add(seed, timeout_s)

    async def remove_member(self, member: str, timeout_s: float) -> Result:
        """Let a member go."""
        return await self._life.changes.remove(member, timeout_s)

    async def leave_out(self, members: frozenset[str], timeout_s: float) -> str | None:
        """Have a cluster founded without these."""
        return await asyncio.wait_for(asyncio.wrap_future(self._raft.leave_out(members)), timeout_s)

    def progress(self, run_id: str) -> RunProgress | None:
        """How far an attempt on this member is."""
        said = self._conduct.progress.get(run_id)
        return None if said is None else RunProgress(said.done, said.total, said.unit)

    def waiting(self, task: str) -> str | None:
        """Why what is due has not begun."""
        if task not in self._conduct.waiting:
            return None
        if self._life.aside.why:
            return f"{self._config.node} takes on nothing new: {self._life.aside.why}"
        return f"{self._config.node} runs {self._config.max_runs} attempts already (ROTA_MAX_RUNS)"

    async def overdue(self) -> Overdue:
        """What is due and has not begun."""
        return await self._conduct.overdue()

    def log_path(self, run_id: str, attempt: int) -> Path:
        """Where an attempt's log is kept here."""
        return log_path(self._folder.path, run_id, attempt)

    def changes(self) -> AsyncIterator[Update]:
        """What changes from now on."""
        return self._broadcast.listen()


def _end_process(error: BaseException) -> None:
    """The heartbeats cannot go on: end at once, with every worker (their supervisors see the channel close)."""
    _log.critical("the heartbeats of this node have failed, and without them it is no member", exc_info=error)
    flush()
    os._exit(1)
