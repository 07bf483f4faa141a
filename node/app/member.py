"""A member of the cluster: puts its core on sockets, processes, files and clocks, and is what the API's routes ask.

`node.app.core` decides and acts; here are the parts that it does without: the history, questions of other members, the
disk, what the node observes of itself, and the port for HTTP.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from random import SystemRandom
from typing import Final

from node.app.config import Config
from node.app.core import Core
from node.app.core_ports import CorePorts, CoreSettings
from node.app.data_dir import DataDir
from node.app.disk_owner import MemberDiskOwner
from node.app.heartbeat_owner import MemberHeartbeatOwner
from node.app.kind_terms import preparations_of, terms_of
from node.app.lacking_secrets import lacking_secrets
from node.app.offered_kinds import KindOffer
from node.app.projections import join_of, order_of
from node.app.raft_owner import MemberRaftOwner
from node.app.updates import Updates
from node.client import Client
from node.control.placement_service import PlacementThread
from node.duty.hold import Hold, hold_of
from node.duty.overdue import Overdue
from node.duty.ownership import Ownership
from node.duty.watchdog import late_tasks
from node.execution.order import AttemptLimits, Order, log_path, logs_path
from node.execution.runner import Runner
from node.history.backfill import Backfill
from node.history.bootstrap_board import BootstrapBoard
from node.history.retention import Retention
from node.history.store import HISTORY, HistoryStore
from node.http.kinds import InstalledKinds
from node.http.node_port import ClusterUpdate
from node.identity.cluster_id import ClusterId
from node.liveness.heartbeat import Heartbeat, HeartbeatSettings
from node.liveness.pulse import STILL_S
from node.liveness.wall_clock import CLOCK
from node.membership.addresses import at_start
from node.membership.auto_join import AutoJoin
from node.membership.join_request import JoinRequest
from node.membership.launch_watch import LaunchWatch
from node.membership.removal_watch import RemovalWatch
from node.notify.dead_man import DeadMansSwitch, PingView
from node.notify.secrets_here import SenderSettings
from node.notify.sender import ChannelSender
from node.peer.client import PeerClient
from node.peer.join_client import JoinClient
from node.peer.protocol import RunProgress
from node.peer.vitals import MemberVitals
from node.raft.adapter import Raft
from node.raft.founding import FoundingWait, Outlook
from node.raft.ports import RaftRole, RaftSettings
from node.replication.state_machine import StateMachine
from node.runtime.boottime import boottime_s
from node.runtime.services import Services
from node.state.channel import Channel
from node.state.entries import Entry, Join, Seed
from node.state.value import Result, Run, State
from node.storage.disk_watch import DiskWatch, WatchedFolder, space_of
from node.storage.full_disk_wait import WaitForRoom
from node.storage.reserve import Reserve
from node.telemetry.lease_monitor import monitor_lease
from node.telemetry.raft_watchdog import RaftWatchdog, watch_raft
from node.telemetry.thread_lag import ThreadLag, Worst, watch_loop
from tasks.installed_kinds import KindEntry

_log = logging.getLogger("rota.member")

CLOSE_S: Final = 3.0
"""How long `close` waits for killed attempts. It does not wait for one that hangs in the kernel by then."""


class _Clock:
    """Implements `node.app.core_ports.Clock`."""

    now_us = staticmethod(CLOCK.now_us)
    boottime_s = staticmethod(boottime_s)


class LocalMember:
    """One member, from `start` to `stop`, of `cluster`. Implements `node.http.node_port.NodePort`.

    It checks params by the kinds that are `installed` here, and takes on those that it `offer`s.
    When it cannot go on, `failed` is set to what went wrong; its caller ends it then.
    """

    def __init__(
        self,
        config: Config,
        folder: DataDir,
        seed: Seed,
        installed: Mapping[str, KindEntry],
        offer: KindOffer,
        cluster: ClusterId,
    ) -> None:
        self._config, self._folder, self._seed, self._offered = config, folder, seed, offer.offered
        self.unoffered = offer.why_not
        self._terms = terms_of(offer.offered, config.kind_settings, config.max_runs)
        self._on_loop = Services()
        self._stopping = False
        self.facts = config
        self.kinds = InstalledKinds(installed, config.access)
        configured, agreed = {seed.id: (seed.host, seed.raft_port) for seed in config.members}, folder.agreed()
        self._first_start = not agreed and not cluster.known
        self.history = HistoryStore(folder.path / HISTORY, lambda error: self._on_loop.call(self._on_loop.fail, error))
        self._reserve = Reserve(folder.path / "raft")
        bounds = config.bounds.on(space_of(folder.path).total_bytes)
        start_id = secrets.token_hex(8)
        # The parts below are made before the core and call it later: from threads that are started after it.
        self._machine = StateMachine(lambda change: self._core.on_change(change))  # noqa: PLW0108
        self._raft = self._make_raft(at_start(config.node, configured, agreed), cluster, start_id)
        self._heartbeat = self._make_heartbeat(cluster, start_id)
        self._runner = self._make_runner(bounds.log_bytes)
        self._updates = Updates(config.node, self.history, lambda: self._raft.role.ready)
        self._placement_thread = PlacementThread()
        self._sender = ChannelSender(
            SenderSettings(config.node, config.access, config.secrets_dir, config.env_allow, config.own), self.now_us
        )
        self._launch_watch = LaunchWatch(config.node, self.state, lambda why: self._set_wrong("start", why))
        self._core = self._make_core(
            CoreSettings(config.node, folder.session, config.max_runs, config.members, configured, agreed, self._terms)
        )
        # The parts below ask the core, and watch.
        self.lateness = ThreadLag(Worst(), self._raft.lateness, self._heartbeat.lateness, self._heartbeat.answers)
        self.start_delay = self._updates.start_delay
        self._watchdog = RaftWatchdog(STILL_S)
        self.peers = PeerClient(config.secret, self.state, cluster, config.node)
        self._removal_watch = RemovalWatch(self._core, lambda: self._core.membership.joining.has_joined, self.peers)
        self._auto_join = self._make_auto_join()
        self.bootstraps = BootstrapBoard(config.node)
        self._backfill = Backfill(config.node, self.history, self.peers, self.state, self.bootstraps)
        self._retention = Retention(folder.path, self.history, self.state, history_bytes=bounds.history_bytes)
        self._disk = self._make_disk_watch()
        self._dead_man = DeadMansSwitch(self, self._sender.ping)

    # -- the parts, each made once

    def _make_raft(self, addresses: Mapping[str, tuple[str, int]], cluster: ClusterId, start_id: str) -> Raft:
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
            lambda role: self._core.on_role(role),  # noqa: PLW0108 - made later
            on_failure=lambda error: self._on_loop.call(self._on_loop.fail, error),
            room=WaitForRoom(self._reserve.release, lambda: self._disk.wake()),  # noqa: PLW0108 - made later
        )
        return Raft(settings, self._machine, owner, cluster)

    def _make_heartbeat(self, cluster: ClusterId, start_id: str) -> Heartbeat:
        config = self._config
        settings = HeartbeatSettings(config.node, config.bind, config.heartbeat_port, config.secret, start_id)
        owner = MemberHeartbeatOwner(
            lambda lease: self._core.on_lease(lease),  # noqa: PLW0108 - made later
            lambda verdict: self._core.on_verdict(verdict),  # noqa: PLW0108 - made later
            lambda: self._raft.turns,
        )
        return Heartbeat(settings, owner, cluster)

    def _make_runner(self, log_bytes: int) -> Runner:
        return Runner(
            self._folder.path,
            lambda event: self._core.on_event(event),  # noqa: PLW0108
            AttemptLimits(log_bytes=log_bytes, umask=self._config.umask),
            preparations_of(self._offered, self._config.kind_settings),
        )

    def _make_core(self, settings: CoreSettings) -> Core:
        return Core(
            settings,
            CorePorts(
                raft=self._raft,
                machine=self._machine,
                runner=self._runner,
                heartbeat=self._heartbeat,
                clock=_Clock(),
                loop=self._on_loop,
                placement=self._placement_thread,
                observer=self._updates,
                sender=self._sender,
                rng=SystemRandom(),
                join_of=self._join_of,
                order_of=self._order_of,
                keep_addresses=lambda addresses: asyncio.to_thread(self._folder.keep_agreed, addresses),
            ),
            self._launch_watch,
        )

    def _make_auto_join(self) -> AutoJoin:
        config = self._config
        return AutoJoin(
            self._seed,
            config.members,
            config.auto_join,
            lambda: self._raft.outlook,
            lambda urls: JoinClient(Client(urls), config.secret, config.node),
        )

    def _make_disk_watch(self) -> DiskWatch:
        path = self._folder.path
        watched = WatchedFolder(self._config.node, path, logs_path(path), self._config.bounds)
        return DiskWatch(watched, self._reserve, MemberDiskOwner(path, self._core, self._runner.prepared_folders))

    # -- start and end

    async def start(self, join_request: JoinRequest | None = None) -> None:
        """Start; with a `join_request`, in a cluster that may not know this member yet.

        Raises what `Raft.start`, `Heartbeat.start` and `Runner.start` raise.
        """
        await self._runner.start()
        self._heartbeat.start()
        self._core.start()
        services = {
            "removal-watch": self._removal_watch.run(),
            "auto-join": self._auto_join.run(),
            "lease": monitor_lease(lambda: self._stopping or self.lease_held, lambda: self.role.leader),
            "raft watchdog": watch_raft(self._watchdog, lambda: self._raft.turns),
            "loop lag": watch_loop(self.lateness.loop),
            "backfill": self._backfill.run(),
            "bootstraps": self.bootstraps.announce(self.peers, self.state),
            "retention": self._retention.run(),
            "bound": self._retention.bound(),
            "disk": self._disk.run(),
            "dead man's switch": self._dead_man.run(),
            "launch-watch": self._launch_watch.run(),
            "logs": self._disk.bound_logs(),
        }
        for name, service in services.items():
            self._on_loop.serve(name, service)
        await asyncio.to_thread(self._raft.start)  # it loads the state, however large
        if join_request is not None:
            self._on_loop.serve("join-request", join_request.enter())

    async def stop(self) -> None:
        """Stop in good order: hand over what runs, have this member marked down, and close."""
        self._stopping = True
        try:
            await self._core.leave()
        finally:
            await self.close()

    async def close(self) -> None:
        """Close everything, in whatever state it is."""
        self._stopping = True
        self._updates.close()
        await self._on_loop.end()
        await self._core.controller.close()
        for what, closing in (
            ("the attempts", self._runner.close(CLOSE_S)),
            ("the heartbeats", asyncio.to_thread(self._heartbeat.stop)),
            ("Raft", asyncio.to_thread(self._raft.stop)),
            ("the history", asyncio.to_thread(self.history.close)),
        ):
            try:
                await closing
            except Exception:  # noqa: BLE001 - the rest must be closed all the same
                _log.exception("%s could not be closed in good order", what)
        self._placement_thread.close()
        self._folder.close()

    # -- what the parts ask of one another

    def _set_wrong(self, what: str, why: str | None) -> None:
        self._core.membership.self_drain.set(what, why)

    def _join_of(self, after: int, at_us: int) -> Join:
        return join_of(self._config, self._seed, self._heartbeat.port, self._offered, after, at_us)

    def _order_of(self, run: Run, deadline_s: float) -> Order:
        return order_of(run, self._config, self._offered, deadline_s)

    @property
    def failed(self) -> "asyncio.Future[Exception]":
        """Set to what went wrong, once this member cannot go on."""
        return self._on_loop.failed

    # -- what the routes ask

    @property
    def role(self) -> RaftRole:
        """This member's role in Raft; not `ready` while it stops, or cannot do its work."""
        role = self._raft.role
        if self._watchdog.blocked:  # what Raft knew in its last turn is out of date
            return replace(role, ready=False, has_quorum=False)
        return replace(role, ready=False) if self._stopping or self._core.controller.failing else role

    @property
    def outlook(self) -> Outlook:
        """What this node waits for while it belongs to no cluster; None once it does."""
        outlook = self._auto_join.outlook
        if outlook is None and self._first_start and self._raft.turns < 2:
            # The API is served before Raft's thread asks the others.
            others = {seed.id for seed in self._config.members} - {self._config.node}
            return FoundingWait(silent=tuple(sorted(others)))
        return outlook

    @property
    def lease_held(self) -> bool:
        """Whether this member has a live lease."""
        return self._core.lease_held

    @property
    def lease_lapsed_us(self) -> int | None:
        """When its lease ended, in microseconds since the epoch; None: it has one, or never had one."""
        return self._core.lease_lapsed_us

    def state(self) -> State:
        """The state as applied here."""
        return self._machine.state

    def ownership(self) -> Ownership:
        """The latest placement."""
        return self._core.placement.ownership

    async def placed(self, timeout_s: float) -> Ownership:
        """The placement of the present epoch."""
        return await self._core.placed(timeout_s)

    async def propose(self, entry: Entry, timeout_s: float) -> Result:
        """Commit an entry."""
        return await self._core.propose(entry, timeout_s)

    async def barrier(self, timeout_s: float) -> None:
        """Commit nothing."""
        await asyncio.wrap_future(self._raft.barrier(timeout_s))

    async def wait_index(self, index: int, timeout_s: float) -> bool:
        """Wait until `index` is applied here."""
        return await self._core.wait_index(index, timeout_s)

    async def add_member(self, seed: Seed, timeout_s: float) -> Result:
        """Let a new member in."""
        return await self._core.membership.changes.add(seed, timeout_s)

    async def remove_member(self, member: str, timeout_s: float) -> Result:
        """Let a member go."""
        return await self._core.membership.changes.remove(member, timeout_s)

    async def leave_out(self, members: frozenset[str], timeout_s: float) -> str | None:
        """Have a cluster founded without these."""
        return await asyncio.wait_for(asyncio.wrap_future(self._raft.leave_out(members)), timeout_s)

    @property
    def pinged(self) -> PingView | None:
        """What this member, as the leader, did last about the outside watcher."""
        return self._dead_man.last

    def now_us(self) -> int:
        """The wall clock."""
        return self._core.now_us()

    async def late_tasks(self) -> list[str]:
        """The tasks that are overdue, or late by a deadline of theirs."""
        late = await asyncio.to_thread(late_tasks, self.state())
        return sorted(late | (await self.overdue()).names)

    async def test_channel(self, name: str, definition: Channel) -> str:
        """Send a test message."""
        return await self._sender.test(self.state().cluster_id, name, definition, self._core.now_us())

    def progress(self, run_id: str) -> RunProgress | None:
        """How far an attempt on this member is, and since when it is frozen; None where nothing is known of it."""
        controller = self._core.controller
        said, frozen_since_us = controller.progress.get(run_id), controller.frozen_since_us.get(run_id)
        if said is None:
            return None if frozen_since_us is None else RunProgress(frozen_since_us=frozen_since_us)
        return RunProgress(said.done, said.total, said.unit, frozen_since_us)

    async def hold(self, task: str) -> Hold | None:
        """What holds a task that is due and that this member owns."""
        view = self._core.controller.view_of(task, self.lease_held)
        if (hold := hold_of(view)) is not None:
            return hold
        return hold_of(replace(view, lacking=await lacking_secrets(self.state(), task, self.kinds, self._config)))

    def vitals(self) -> MemberVitals:
        """What this member alone knows of itself."""
        space = self._disk.space
        total_bytes, free_bytes = (None, None) if space is None else (space.total_bytes, space.free_bytes)
        return MemberVitals(version("rota"), self.lease_held, total_bytes, free_bytes, CLOCK.off_us)

    async def overdue(self) -> Overdue:
        """What is due and has not begun."""
        return await self._core.controller.overdue()

    def log_path(self, run_id: str, attempt: int) -> Path:
        """Where an attempt's log is kept here."""
        return log_path(self._folder.path, run_id, attempt)

    def changes(self) -> AsyncIterator[ClusterUpdate]:
        """What changes from now on."""
        return self._updates.listen()
