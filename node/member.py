"""A member of the cluster: wires the parts together, and is what the API's routes ask.

Three threads meet here. Raft's applies entries and tells of roles; it notes what ended, shows the heartbeats what
they need to know, and leaves the rest to the event loop. The heartbeats' brings leases to the supervisors and
verdicts on other members to Raft, without passing through the loop: a loop that is busy is not death.
"""

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from node.backfill import Backfill
from node.broadcast import Broadcast
from node.conduct import Conduct
from node.config import Config
from node.duty.ownership import Ownership
from node.duty.step import LeaseView
from node.execution.order import Order, log_path
from node.execution.runner import Runner
from node.folder import Folder, seeds_as_addresses
from node.history import History
from node.http.kinds import InstalledKinds
from node.http.surface import Placed, Progress, Update
from node.joining import Joining
from node.lapses import tell_of_lapses
from node.leadership import Leadership
from node.liveness.detector import Verdict
from node.liveness.heartbeat import Heartbeat, boottime_s
from node.liveness.lease import NO_LEASE, LeaseNow
from node.liveness.view import Peer, View
from node.machine import Change, Machine
from node.peers import Peers
from node.placing import Placing
from node.proposing import Proposing, now_us
from node.raft.adapter import Raft
from node.raft.errors import ChangeRefused, RaftError
from node.raft.machine import Role
from node.state.codec import pack_batch
from node.state.entries import AddMember, Entry, Join, MarkDown, RemoveMember, Seed
from node.state.value import Result, Run, State
from tasks.kinds import KindEntry

_log = logging.getLogger("rota.member")

HAND_OVER_S: Final = 1.5
"""How long an orderly stop waits for attempts to leave off by themselves."""

VERDICT_S: Final = 2.0
CHANGE_S: Final = 10.0


class Member:
    """One member, from `start` to `stop`. Implements `node.http.surface.Node`.

    `failed` is set to what went wrong when the member cannot go on; whoever serves it ends then.
    """

    def __init__(self, config: Config, folder: Folder, seed: Seed, kinds: Mapping[str, KindEntry]) -> None:
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._config = config
        self._folder = folder
        self._seed = seed
        self._targets = kinds
        self.failed: asyncio.Future[Exception] = loop.create_future()
        self.facts = config
        self.kinds = InstalledKinds(kinds)
        self.history = History(folder.path / "history.db")
        self._machine = Machine(self._on_change)
        self._raft = Raft(
            config.node,
            folder.addresses(config),
            folder.path / "raft",
            config.secret,
            self._machine,
            pack_batch,
            self._on_role,
            bind_host=config.bind,
            on_failure=lambda error: self._on_loop(self._fail, error),
        )
        self._proposing = Proposing(config.node, folder.session, self._raft.propose)
        self._heartbeat = Heartbeat(
            config.node,
            config.bind,
            config.heartbeat_port,
            config.secret.encode(),
            self._on_lease,
            self._on_verdict,
            _end_process,
        )
        self._looking = threading.Lock()
        self._lease = NO_LEASE
        self._runner = Runner(folder.path, self._on_event)
        self._conduct = Conduct(
            config.node,
            config.max_runs,
            self._runner,
            self.propose,
            self.state,
            self._live_lease,
            self._order_of,
        )
        self._placing = Placing(self._on_placed)
        self._leadership = Leadership(config.node, config.members, self.state, lambda: self.role, self.propose)
        self._joining = Joining(
            config.node, self.state, self.propose, self._join, self._runner.kill_all, self._on_joined
        )
        self.peers = Peers(config.secret, self.state)
        self._backfill = Backfill(config.node, self.history, self.peers, self.state)
        self._shown: Ownership | None = None
        self._broadcast: Broadcast[Update] = Broadcast()
        self._index_waits: dict[asyncio.Future[None], int] = {}
        self._services: dict[str, asyncio.Task[None]] = {}
        self._stopping = False

    # -- beginning and end

    async def start(self) -> None:
        """Begin. Raises what `Raft.start`, `Heartbeat.start` and `Runner.start` raise."""
        await self._runner.start()
        self._heartbeat.start()
        services = {
            "placing": self._placing.run(),
            "leadership": self._leadership.run(),
            "joining": self._joining.run(),
            "lapses": tell_of_lapses(lambda: self._stopping or self.lease_held, lambda: self.role.leader),
            "backfill": self._backfill.run(),
        }
        self._services = {name: self._serve(service) for name, service in services.items()}
        self._raft.start()

    async def stop(self) -> None:
        """Stop in good order: hand over what runs, say so, and close."""
        self._stopping = True
        await self._hand_over()
        await self.close()

    async def _hand_over(self) -> None:
        """Leave off what runs here, and say that this member is down."""
        await self._conduct.hand_over_all(HAND_OVER_S)
        # It would take "stopped" for a verdict of the others, and join again.
        self._services["joining"].cancel()
        if self._joining.standing:
            try:
                down = MarkDown(now_us(), self._config.node, self._joining.incarnation, "stopped", 0)
                await self.propose(down, VERDICT_S)
            except RaftError as error:
                _log.warning("stopping without having said so: %s", error)

    async def close(self) -> None:
        """Close everything, in whatever state it is."""
        self._broadcast.close()
        for service in self._services.values():
            service.cancel()
        await asyncio.gather(*self._services.values(), return_exceptions=True)
        await self._conduct.close()
        await self._runner.close()
        await asyncio.to_thread(self._heartbeat.stop)
        await asyncio.to_thread(self._raft.stop)
        await asyncio.to_thread(self.history.close)
        self._folder.close()

    def _serve(self, service: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(service)
        task.add_done_callback(self._served)
        return task

    def _served(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not self.failed.done():
            self.failed.set_result(error)

    # -- what Raft tells, in its thread

    def _on_change(self, change: Change) -> None:
        if change.touched is None:
            self.history.jumped(change.after.index)
        self.history.record(change.after.index, change.ended)
        if change.after.members is not change.before.members or change.after.lead != change.before.lead:
            self._look()
        self._on_loop(self._changed, change)

    def _on_role(self, role: Role) -> None:
        self._look()
        self._on_loop(self._role_changed, role)

    def _look(self) -> None:
        """Show the heartbeats what they need to know. Called from Raft's thread and from the loop."""
        with self._looking:
            self._heartbeat.look(self._view())

    def _view(self) -> View:
        state, role = self._machine.state, self._raft.role
        peers = {
            member.id: Peer(member.incarnation, member.status, member.host, member.heartbeat_port)
            for member in state.members.values()
        }
        lead_applied = state.lead.term == role.term and state.lead.member == self._config.node
        return View(
            self._config.node, self._joining.incarnation, role.term, role.leader, lead_applied, peers, state.settings
        )

    def _on_loop(self, call: Any, *args: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *args)

    # -- what the heartbeats tell, in their thread

    def _on_lease(self, lease: LeaseNow) -> None:
        before, self._lease = self._lease, lease
        self._runner.renew(lease.deadline_s)
        if lease.period != before.period or lease.deadline_s < before.deadline_s:
            self._on_loop(self._conduct.stir)

    def _on_verdict(self, verdict: Verdict) -> None:
        _log.warning("%s is taken to be down: %s", verdict.member, verdict.reason)
        self._proposing.send(
            MarkDown(now_us(), verdict.member, verdict.incarnation, verdict.reason, verdict.term), VERDICT_S
        )

    # -- on the loop

    def _changed(self, change: Change) -> None:
        state = change.after
        for wait, index in list(self._index_waits.items()):
            if index <= state.index and not wait.done():
                wait.set_result(None)
        if state.members is not change.before.members:
            addresses = {member.id: (member.host, member.raft_port) for member in state.members.values()}
            self._folder.save_addresses(addresses)
            for member, address in addresses.items():
                self._raft.relocate(member, address)
        own = state.members.get(self._config.node)
        if own is not None and own.leaving and "leaving" not in self._services:
            _log.warning("this node is being removed from the cluster: handing over what runs")
            self._services["leaving"] = self._serve(self._hand_over())
        self._placing.look(change)
        self._leadership.stir()
        self._joining.stir()
        self._broadcast.send(change)

    def _role_changed(self, role: Role) -> None:
        _log.debug("%s", role)
        self._leadership.stir()
        self._joining.stir()

    def _on_placed(self, state: State, ownership: Ownership, touched: frozenset[str] | None) -> None:
        if ownership is not self._shown:
            self._broadcast.send(Placed(self._shown, ownership))
            self._shown = ownership
        self._conduct.look(state, ownership, touched)

    def _on_joined(self) -> None:
        self._look()
        self._conduct.stir()

    def _on_event(self, event: Any) -> None:
        self._conduct.on_event(event)

    def _join(self, at_us: int) -> Join:
        config = self._config
        return Join(
            at_us,
            config.node,
            self._seed.host,
            self._seed.raft_port,
            self._seed.http_port,
            self._heartbeat.port,
            config.labels,
            config.capacity,
            tuple(sorted(self._targets)),
            member.incarnation if (member := self.state().members.get(config.node)) else 0,
        )

    def _live_lease(self) -> LeaseView | None:
        if not (self.lease_held and self._joining.standing):
            return None
        return LeaseView(self._joining.incarnation, self._lease.period)

    def _order_of(self, run: Run) -> Order:
        spec = run.spec
        kind = self._targets.get(spec.kind)
        return Order(
            run.run_id,
            run.task,
            spec.kind,
            kind.target if kind else "",
            spec.params if run.params is None else run.params,
            run.attempts[-1].attempt,
            run.token,
            run.fire_at_us,
            run.checkpoint,
            spec.timeout_s,
            self._lease.deadline_s,
            str(self._config.secrets_dir),
            self._config.env_allow,
            {"RUN_SPARK_MASTER": self._config.spark_master},
        )

    # -- what the routes ask

    @property
    def role(self) -> Role:
        """Where this member stands in Raft."""
        role = self._raft.role
        return replace(role, ready=False) if self._stopping else role

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
        return await self._placing.placed(self.state().epoch, timeout_s)

    async def propose(self, entry: Entry, timeout_s: float) -> Result:
        """Commit an entry."""
        return await self._proposing.propose(entry, timeout_s)

    async def barrier(self, timeout_s: float) -> None:
        """Commit nothing."""
        await asyncio.wrap_future(self._raft.barrier(timeout_s))

    async def wait_index(self, index: int, timeout_s: float) -> bool:
        """Wait until `index` is applied here."""
        if self.state().index >= index:
            return True
        wait = self._loop.create_future()
        self._index_waits[wait] = index
        try:
            async with asyncio.timeout(timeout_s):
                await wait
        except TimeoutError:
            return False
        finally:
            del self._index_waits[wait]
        return True

    async def add_member(self, seed: Seed, timeout_s: float) -> Result:
        """Let a new member in: into the state, then into Raft; out of both if Raft cannot take it now."""
        result = await self.propose(AddMember(now_us(), seed), timeout_s)
        if result.ok:
            try:
                added = self._raft.add_member(seed.id, seeds_as_addresses((seed,))[seed.id], timeout_s)
                await asyncio.wrap_future(added)
            except ChangeRefused as error:
                await self.propose(RemoveMember(now_us(), seed.id), timeout_s)
                return Result("busy", detail=str(error))
        return result

    async def remove_member(self, member: str, timeout_s: float) -> Result:
        """Let a member go: out of the state, so that its work moves, then out of Raft."""
        if member == self._config.node:
            return Result("self", detail="a member cannot remove itself: ask another one")
        result = await self.propose(RemoveMember(now_us(), member), timeout_s)
        if result.ok:
            if not await self._gone(member, timeout_s):
                return Result(
                    "busy", detail=f"{member} is handing over what it runs: ask again, or undrain it to keep it"
                )
            try:
                await asyncio.wrap_future(self._raft.remove_member(member, timeout_s))
            except ChangeRefused as error:
                return Result("busy", detail=str(error))
        return result

    async def _gone(self, member: str, timeout_s: float) -> bool:
        """Wait until somebody is no member any more."""
        end_s = self._loop.time() + timeout_s
        while member in self.state().members and self._loop.time() < end_s:
            await self.wait_index(self.state().index + 1, end_s - self._loop.time())
        return member not in self.state().members

    def progress(self, run_id: str) -> Progress | None:
        """How far an attempt on this member is."""
        said = self._conduct.progress.get(run_id)
        return None if said is None else Progress(said.done, said.total, said.unit)

    def waiting(self, task: str) -> str | None:
        """Why what is due has not begun."""
        if task not in self._conduct.waiting:
            return None
        return f"{self._config.node} runs {self._config.max_runs} attempts already (ROTA_MAX_RUNS)"

    def log_path(self, run_id: str, attempt: int) -> Path:
        """Where an attempt's log is kept here."""
        return log_path(self._folder.path, run_id, attempt)

    def changes(self) -> AsyncIterator[Update]:
        """What changes from now on."""
        return self._broadcast.listen()


def _end_process(error: BaseException) -> None:
    """The heartbeats cannot go on: end at once, with every worker (their supervisors see the channel close)."""
    _log.critical("the heartbeats of this node have failed, and without them it is no member", exc_info=error)
    os._exit(1)
