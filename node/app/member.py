"""A member of the cluster, from its start to its stop, with the methods that the API's routes call.

`node.app.core` decides and acts; `node.app.member_parts` puts it on sockets, processes, files and clocks.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Final

from node.app.lacking_secrets import lacking_secrets
from node.app.member_parts import MemberParts
from node.duty.hold import Hold, hold_of
from node.duty.overdue import Overdue
from node.duty.ownership import Ownership
from node.execution.order import log_path
from node.http.node_port import ClusterUpdate
from node.identity.mismatches import Mismatch
from node.liveness.wall_clock import CLOCK
from node.membership.join_request import JoinRequest
from node.notify.dead_man import DeadMansSwitch, PingView, late_tasks
from node.peer.protocol import RunProgress
from node.peer.vitals import MemberVitals
from node.raft.founding.founding import FoundingWait, Outlook
from node.raft.ports import RaftRole
from node.state.channel import Channel
from node.telemetry.lease_monitor import monitor_lease
from node.telemetry.raft_watchdog import watch_raft
from node.telemetry.thread_lag import watch_loop
from node.tracing.export_thread import ExportCount
from tasks.version import version

_log = logging.getLogger("rota.member")

CLOSE_S: Final = 3.0
"""How long `close` waits for killed attempts, in seconds. An attempt that hangs in the kernel may take longer."""


class LocalMember(MemberParts):
    """One member, from `start` to `stop`, of `cluster`. Implements `node.http.node_port.NodePort`.

    When the member cannot go on, it sets `failed` to the error; the caller then closes the member.
    """

    # -- start and end

    async def start(self, join_request: JoinRequest | None = None) -> None:
        """Start the member. With a `join_request`, the cluster may not know the member yet.

        Raises the errors of `Raft.start`, `Heartbeat.start` and `Runner.start`.
        """
        await self._runner.start()
        self._exports.start()
        self._heartbeat.start()
        self._core.start()
        services = {
            "removal-watch": self._removal_watch.run(),
            "auto-join": self._auto_join.run(),
            "lease": monitor_lease(lambda: self._stopping or self.lease_held, lambda: self.role.leader),
            "raft watchdog": watch_raft(self._watchdog, lambda: self._raft.turns),
            "loop lag": watch_loop(self.lateness.loop),
            "gap filler": self._gap_filler.run(),
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
        await asyncio.to_thread(self._raft.start)  # it loads the state, which may be large
        if join_request is not None:
            self._on_loop.serve("join-request", join_request.enter())

    async def stop(self) -> None:
        """Stop in order: hand over the runs, have this member marked down, and close."""
        self._stopping = True
        try:
            await self._core.leave()
        finally:
            await self.close()

    async def close(self) -> None:
        """Close all parts, whatever state they are in."""
        self._stopping = True
        self._updates.close()
        await self._on_loop.end()
        await self._core.controller.close()
        for what, closing in (
            ("the attempts", self._runner.close(CLOSE_S)),
            ("the heartbeats", asyncio.to_thread(self._heartbeat.stop)),
            ("Raft", asyncio.to_thread(self._raft.stop)),
            ("the history", asyncio.to_thread(self.history.close)),
            ("traces and lineage", asyncio.to_thread(self._exports.close)),
        ):
            try:
                await closing
            except Exception:  # noqa: BLE001 - the rest must be closed all the same
                _log.exception("%s could not be closed in good order", what)
        self._placement_thread.close()
        self._folder.close()

    @property
    def failed(self) -> "asyncio.Future[Exception]":
        """A future that is set to the error once this member cannot go on."""
        return self._on_loop.failed

    # -- called by the API's routes

    @property
    def role(self) -> RaftRole:
        """This member's role in Raft; not `ready` while the member stops or cannot do its work."""
        role = self._raft.role
        if self._watchdog.blocked:  # the role of Raft's last turn is out of date
            return replace(role, ready=False, has_quorum=False)
        return replace(role, ready=False) if self._stopping or self._core.controller.failing else role

    @property
    def outlook(self) -> Outlook:
        """What this node waits for while it belongs to no cluster; None once it does."""
        outlook = self._auto_join.outlook
        if outlook is None and self._first_start and self._raft.turns < 2:
            # The API serves requests before Raft's thread asks the other members.
            others = {seed.id for seed in self._config.members} - {self._config.node}
            return FoundingWait(silent=tuple(sorted(others)))
        return outlook

    @property
    def mismatches(self) -> list[Mismatch]:
        """The nodes recently in contact with this one that are incompatible with it."""
        return self._raft.mismatches.now()

    @property
    def lease_held(self) -> bool:
        """Whether this member has a live lease."""
        return self._core.lease_held

    @property
    def lease_lapsed_us(self) -> int | None:
        """When its last lease ended, in microseconds since the epoch; None: it has one, or never had one."""
        return self._core.lease_lapsed_us

    def ownership(self) -> Ownership:
        """Return the latest placement."""
        return self._core.placement.ownership

    async def placed(self, timeout_s: float) -> Ownership:
        """Return the placement of the present epoch; if it is not computed within `timeout_s`, the latest one."""
        return await self._core.placed(timeout_s)

    async def barrier(self, timeout_s: float) -> None:
        """Commit an empty entry, and return once it is applied here."""
        await asyncio.wrap_future(self._raft.barrier(timeout_s))

    async def leave_out(self, members: frozenset[str], timeout_s: float) -> str | None:
        """Found a cluster without these members. Returns why it was not founded (a sentence), or None."""
        return await asyncio.wait_for(asyncio.wrap_future(self._raft.leave_out(members)), timeout_s)

    @cached_property
    def _dead_man(self) -> DeadMansSwitch:
        return DeadMansSwitch(self, self._sender.ping)

    @property
    def pinged(self) -> PingView | None:
        """The outcome of this leader's last ping to the outside watcher; None: it does not lead, or has not pinged."""
        return self._dead_man.last

    async def late_tasks(self) -> list[str]:
        """Return the tasks that are overdue, or have a breached deadline."""
        late = await asyncio.to_thread(late_tasks, self.state())
        return sorted(late | (await self.overdue()).names)

    async def test_channel(self, name: str, definition: Channel) -> str:
        """Send a test message on a channel. Returns the receiver's answer."""
        return await self._sender.test(self.state().cluster_id, name, definition, self._core.now_us())

    def progress(self, run_id: str) -> RunProgress | None:
        """Return how far an attempt on this member is, and since when it is frozen; None if neither is known."""
        controller = self._core.controller
        said, frozen_since_us = controller.progress.get(run_id), controller.frozen_since_us.get(run_id)
        if said is None:
            return None if frozen_since_us is None else RunProgress(frozen_since_us=frozen_since_us)
        return RunProgress(said.done, said.total, said.unit, frozen_since_us)

    async def hold(self, task: str) -> Hold | None:
        """Return what holds a due task that this member owns; None: the task is about to be claimed."""
        view = self._core.controller.view_of(task, self.lease_held)
        if (hold := hold_of(view)) is not None:
            return hold
        return hold_of(replace(view, lacking=await lacking_secrets(self.state(), task, self.kinds, self._config)))

    def vitals(self) -> MemberVitals:
        """Return the facts about this member that only it knows."""
        space = self._disk.space
        total_bytes, free_bytes = (None, None) if space is None else (space.total_bytes, space.free_bytes)
        return MemberVitals(
            version(),
            self.lease_held,
            total_bytes,
            free_bytes,
            CLOCK.off_us,
            not_kept=(*self.not_kept, *self.not_held),
        )

    async def overdue(self) -> Overdue:
        """Return the tasks that are due and have not begun."""
        return await self._core.controller.overdue()

    def log_path(self, run_id: str, attempt: int) -> Path:
        """Return the path of an attempt's log on this member."""
        return log_path(self._folder.path, run_id, attempt)

    @property
    def exports(self) -> Sequence[ExportCount]:
        """How many spans and events of lineage this process has sent and dropped; empty: it sends none."""
        return self._exports.counts

    def changes(self) -> AsyncIterator[ClusterUpdate]:
        """Return all updates from this call on."""
        return self._updates.listen()
