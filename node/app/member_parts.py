"""The parts of a member: its core, run on sockets, processes, files and clocks, and parts that the core does not need.

The latter are the history, requests to other members, the disk watch, and telemetry. Each part is made once here, and
gets the functions that it calls.
"""

import asyncio
import os
import secrets
from collections.abc import Mapping
from dataclasses import replace
from random import SystemRandom
from typing import Final

from node.app.config import Config
from node.app.core import Core
from node.app.core_ports import CorePorts, CoreSettings
from node.app.data_dir import DataDir
from node.app.lacking_secrets import lacking_secrets
from node.app.offered_kinds import KindOffer, preparations_of, terms_of
from node.app.owners import MemberDiskOwner, MemberHeartbeatOwner
from node.app.projections import apart, join_of, needs_here, order_of, secrets_of
from node.app.updates import Updates
from node.client import Client
from node.control.placement_service import PlacementThread
from node.duty.digests import DigestSummary, DueDigest, digest_summary
from node.duty.occurrence_params import times_of
from node.execution.account import lowest_free
from node.execution.cgroup import NOTHING_DELEGATED, Delegation
from node.execution.confinement import not_kept
from node.execution.limits import limits_not_held
from node.execution.nodes_own import with_other_names
from node.execution.order import AttemptLimits, Order, logs_path
from node.execution.runner import Runner
from node.history.bootstrap_board import BootstrapBoard
from node.history.gap_filler import GapFiller
from node.history.retention import Retention
from node.history.store import HISTORY, HistoryStore
from node.identity.cluster_id import ClusterId
from node.liveness.heartbeat import Heartbeat, HeartbeatSettings
from node.liveness.pulse import STILL_S
from node.liveness.wall_clock import CLOCK
from node.membership.addresses import at_start
from node.membership.auto_join import AutoJoin
from node.membership.launch_watch import LaunchWatch
from node.membership.removal_watch import RemovalWatch
from node.notify.secrets_here import SenderSettings
from node.notify.sender import ChannelSender
from node.notify.side_thread import in_side_thread
from node.peer.client import PeerClient
from node.peer.join_client import JoinClient
from node.raft.adapter import Raft
from node.raft.ports import RaftOwner, RaftSettings
from node.replication.state_machine import StateMachine
from node.runtime.boottime import boottime_s
from node.runtime.services import Services
from node.state.entries import Seed
from node.state.members import Join
from node.state.parts import part_of
from node.state.value import Run, State
from node.storage.disk_watch import DiskWatch, WatchedFolder, space_of
from node.storage.reserve import Reserve, WaitForRoom
from node.storage.room import Bounds
from node.telemetry.raft_watchdog import RaftWatchdog
from node.telemetry.thread_lag import ThreadLag, Worst
from node.tracing.exports import Exports, lineage_client, trace_client
from node.tracing.spans import Progress
from tasks import landlock, seccomp
from tasks.definition.public_holidays import public_holidays
from tasks.installed_kinds import InstalledKinds, KindEntry
from tasks.needs import credential_files
from tasks.version import version

DIGEST_S: Final = 600.0
"""How long it may take to work out a digest."""


class _Clock:
    """Implements `node.app.core_ports.Clock`."""

    now_us = staticmethod(CLOCK.now_us)
    boottime_s = staticmethod(boottime_s)


class MemberParts:
    """All parts of one member of `cluster`, made but not started.

    It checks params with the kinds that are `installed` here, and runs tasks of the kinds in `offer`. `delegation` is
    the cgroup that contains the cgroups of attempts.
    """

    def __init__(
        self,
        config: Config,
        folder: DataDir,
        seed: Seed,
        installed: Mapping[str, KindEntry],
        offer: KindOffer,
        cluster: ClusterId,
        delegation: Delegation = NOTHING_DELEGATED,
    ) -> None:
        self._config, self._folder, self._seed, self._offered = config, folder, seed, offer.offered
        self.unoffered = offer.why_not
        self._landlock = landlock.abi()
        self.not_kept = not_kept(
            self._landlock,
            commands=config.allow_command,
            command_confined=config.command_confined,
            filtered=seccomp.is_supported(),
            linked=with_other_names(config.access.own).values(),
        )
        self.not_held = limits_not_held(delegation.controllers, delegation.why_not)
        self._terms = terms_of(offer.offered, config.kind_settings, config.max_runs)
        self._on_loop = Services()
        self._stopping = False
        self.settings = config
        self.kinds = InstalledKinds(installed, config.access, config.node, config.run_as)
        configured, agreed = {seed.id: (seed.host, seed.raft_port) for seed in config.members}, folder.agreed()
        self._first_start = not agreed and not cluster.known
        self.history = HistoryStore(folder.path / HISTORY, lambda error: self._on_loop.call(self._on_loop.fail, error))
        self._reserve = Reserve(folder.path / "raft")
        bounds = config.bounds.on(space_of(folder.path).total_bytes)
        start_id = secrets.token_hex(8)
        # The parts below are made before the core, and call it later, from threads that start after the core is made.
        self._machine = StateMachine(lambda change: self._core.on_change(change))  # noqa: PLW0108
        self._raft = self._make_raft(at_start(config.node, configured, agreed), cluster, start_id)
        self._heartbeat = self._make_heartbeat(cluster, start_id)
        self._runner = self._make_runner(bounds, delegation)
        self._exports = self._make_exports()
        self._updates = Updates(config.node, self.history, lambda: self._raft.role.ready, self._exports)
        self._placement_thread = PlacementThread()
        self._sender = ChannelSender(
            SenderSettings(
                node=config.node,
                access=config.access,
                secrets_dir=config.secrets_dir,
                env_allow=config.env_allow,
                variables=config.variables,
                own=config.own,
            ),
            self.now_us,
        )
        self._launch_watch = LaunchWatch(config.node, self.state, lambda why: self._set_wrong("start", why))
        self._core = self._make_core(
            CoreSettings(
                me=config.node,
                session=folder.session,
                max_runs=config.max_runs,
                first_members=config.members,
                configured=configured,
                agreed=agreed,
                kinds=self._terms,
            )
        )
        # Methods of `NodePort` that the core implements.
        self.propose, self.wait_index = self._core.propose, self._core.wait_index
        changes = self._core.membership.changes
        self.add_member, self.remove_member = changes.add, changes.remove
        # The parts below read from the core, or watch over it.
        self.lateness = ThreadLag(Worst(), self._raft.lateness, self._heartbeat.lateness, self._heartbeat.answers)
        self.start_delay = self._updates.start_delay
        self._watchdog = RaftWatchdog(STILL_S)
        self.peers = PeerClient(config.secret, self.state, cluster, config.node)
        self._removal_watch = RemovalWatch(self._core, lambda: self._core.membership.joining.has_joined, self.peers)
        self._auto_join = self._make_auto_join()
        self.bootstraps = BootstrapBoard(config.node)
        self._gap_filler = GapFiller(config.node, self.history, self.peers, self.state, self.bootstraps)
        self._retention = Retention(folder.path, self.history, self.state, history_bytes=bounds.history_bytes)
        self._disk = self._make_disk_watch()

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
            version=version(),
        )
        owner = RaftOwner(
            lambda role: self._core.on_role(role),  # noqa: PLW0108 - made later
            failed=lambda error: self._on_loop.call(self._on_loop.fail, error),
            wait_for_room=WaitForRoom(self._reserve.release, lambda: self._disk.wake()),  # noqa: PLW0108 - made later
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

    def _make_runner(self, bounds: Bounds, delegation: Delegation) -> Runner:
        most = replace(self._config.limits, scratch=bounds.scratch_bytes, log=bounds.log_bytes)
        return Runner(
            self._folder.path,
            lambda event: self._core.on_event(event),  # noqa: PLW0108
            AttemptLimits(most=most, umask=self._config.umask, landlock=self._landlock),
            preparations_of(self._offered, self._config.kind_settings),
            self._config.access,
            self._config.command_roots,
            delegation,
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
                public_holidays=lambda *asked: asyncio.to_thread(public_holidays, *asked),
                keep_addresses=lambda addresses: asyncio.to_thread(self._folder.keep_agreed, addresses),
                digest=self.digest_of,
                lacking=lambda task: lacking_secrets(self.state(), task, self.kinds, self._config),
            ),
            self._launch_watch,
        )

    def _make_exports(self) -> Exports:
        config = self._config
        secrets = config.export_secrets
        return Exports(
            config.node,
            trace_client(config.node, secrets) if config.traces else None,
            lineage_client(secrets, self.kinds.datasets) if config.lineage else None,
            progress=self._progress_of,
            now_us=self.now_us,
            ready=lambda: self._raft.role.ready,
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

    # -- called by the parts

    def _set_wrong(self, what: str, why: str | None) -> None:
        self._core.membership.self_drain.set(what, why)

    def _progress_of(self, run_id: str) -> Progress | None:
        said = self._core.controller.progress.get(run_id)
        return None if said is None else Progress(said.done, said.total, said.unit)

    def _join_of(self, after: int, at_us: int) -> Join:
        return join_of(self._config, self._seed, self._heartbeat.port, self._offered, after, at_us)

    def _order_of(self, run: Run, deadline_s: float) -> Order:
        needs = needs_here(run, self._config, self._offered)
        # A prepared process cannot read the user's credential files, so use one only where no such file exists.
        prepared = next(credential_files(needs.own_credentials, os.environ), None) is None
        params = run.spec.params if run.params is None else run.params
        references = self.kinds.references(run.spec.kind, params, run.action, run.args or {})
        secrets = secrets_of(self._config, references)
        uid = None
        if apart(run, self._config, self._offered, needs):
            uid = lowest_free(self._config.work_uids, self._runner.uids)
        state = self._machine.state
        each = state.each.get(run.task)
        fares = state.tasks.get(run.task) if each is None else part_of(each, run.member)
        return order_of(
            run,
            self._config,
            self._offered,
            deadline_s,
            secrets,
            needs,
            prepared=prepared,
            uid=uid,
            cluster=state.cluster_id,
            succeeded_at_us=None if fares is None else fares.succeeded_at_us,
            times=times_of(state, run),
            traceparent=self._exports.traceparent(run.run_id, state.cluster_id, run.token),
        )

    async def digest_of(self, state: State, due: DueDigest) -> DigestSummary:
        """Work out a digest, in a thread of its own: it may read a day's runs and visits all tasks."""

        def work_out() -> DigestSummary:
            tally = self.history.tally(due.after, due.since_us)
            return digest_summary(state, due, tally, self.now_us())

        return await in_side_thread(work_out, DIGEST_S)

    def state(self) -> State:
        """Return the state as applied here."""
        return self._machine.state

    def now_us(self) -> int:
        """Return the wall clock, in microseconds since the epoch."""
        return self._core.now_us()
