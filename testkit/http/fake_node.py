"""A cluster without Raft, heartbeats or processes: entries go straight to the real `apply`.

`FakeNode` implements `node.http.node_port.NodePort`. The nodes of a `FakeCluster` share its state and history. `fault`
makes the next proposals fail as Raft would.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from prometheus_client import Histogram
from pydantic import BaseModel, Field

from node.duty.digests import DigestSummary, DueDigest, RunTally, digest_summary
from node.duty.hold import Hold
from node.duty.overdue import Overdue
from node.duty.ownership import Ownership
from node.history.bootstrap_board import BootstrapBoard
from node.history.store import HistoryStore
from node.http.node_port import ClusterUpdate, PlacementComputed
from node.identity.mismatches import Mismatch
from node.notify.dead_man import PingView
from node.notify.teller import NotSent
from node.peer.protocol import RunProgress
from node.peer.vitals import MemberVitals
from node.raft.founding.founding import FoundingWait, Outlook
from node.raft.ports import RaftRole
from node.replication.state_machine import StateChange, StateMachine
from node.settings.row import SettingsReader
from node.settings.table import NodeSettings
from node.state.channel import Channel
from node.state.codec import pack_batch
from node.state.entries import Entry, Proposal, ProposalId, Seed
from node.state.members import AddMember, FoundCluster, Join, RemoveMember
from node.state.value import Result, State
from node.telemetry.thread_lag import ThreadLag, Worst, start_delays
from node.tracing.export_thread import ExportCount
from tasks.installed_kinds import InstalledKinds, KindEntry
from tasks.kind import Context

SECRET = "a secret between members"
HOST = "rota.example"
NOW_US = 1_795_000_000_000_000
LEADER = RaftRole(term=3, leader="node-1", is_leader=True, has_quorum=True, ready=True)


class Copy:
    """A kind for tests."""

    class Params(BaseModel):
        source: str
        times: int = Field(default=1, ge=1)
        also: list[str] = []

    def run(self, ctx: Context[Any]) -> dict[str, Any] | None:
        return None


class Broken:
    """Not a valid kind: it has no params."""

    Params: ClassVar[type[BaseModel]]


COPY = KindEntry("copy", "testkit.http.fake_node:Copy")
BROKEN = KindEntry("broken", "testkit.http.fake_node:Broken")


@dataclass
class FakeCluster:
    """The state, the history and the placement that all its nodes have in common."""

    folder: Path
    fault: Exception | None = None
    now_us: int = NOW_US

    def __post_init__(self) -> None:
        self.history = HistoryStore(self.folder / "history.sqlite")
        self.machine = StateMachine(self._changed)
        self.ownership = Ownership.of(self.machine.state)
        self.listeners: list[asyncio.Queue[ClusterUpdate]] = []
        self._applied = asyncio.Event()
        self._sequence = itertools.count(1)

    def close(self) -> None:
        self.history.close()

    def apply(self, entry: Entry) -> Result:
        """Commit an entry at once."""
        proposal = Proposal(ProposalId("fake", 1, next(self._sequence)), entry)
        [(_, result)] = self.machine.apply(pack_batch([proposal]))
        return result

    def ok(self, entry: Entry) -> dict[str, Any]:
        """Commit an entry that must be accepted."""
        result = self.apply(entry)
        assert result.ok, result
        return result.value

    def start(self, ports: dict[str, int], kinds: tuple[str, ...] = ("copy",)) -> None:
        """Found the cluster, and have all members join."""
        seeds = tuple(Seed(name, "127.0.0.1", 1000 + slot, port) for slot, (name, port) in enumerate(ports.items()))
        self.ok(FoundCluster(self.now_us, "c-1", seeds))
        for seed in seeds:
            self.join(seed, kinds)

    def join(self, seed: Seed, kinds: tuple[str, ...] = ("copy",)) -> None:
        """Have a member join."""
        labels = (("disk", "ssd"),)
        self.ok(Join(self.now_us, seed.id, seed.host, seed.raft_port, seed.http_port, 9, labels, 1, kinds, 0))

    async def wait_index(self, index: int, timeout_s: float) -> bool:
        """Wait until an index is applied."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.machine.state.index < index:
                    await self._applied.wait()
        except TimeoutError:
            return False
        return True

    def _changed(self, change: StateChange) -> None:
        self.history.record(change.after.index, change.ended)
        placed = PlacementComputed(self.ownership, self.ownership.follow(change.after, change.touched))
        updates: list[ClusterUpdate] = [change]
        if placed.after is not placed.before:
            self.ownership = placed.after
            updates.append(placed)
        for listener in self.listeners:
            for update in updates:
                listener.put_nowait(update)
        self._applied.set()
        self._applied = asyncio.Event()


@dataclass
class FakeNode:
    """One member of a `FakeCluster`."""

    cluster: FakeCluster
    name: str = "node-1"
    token: str | None = None
    role: RaftRole = LEADER
    lease_held: bool = True
    lease_lapsed_us: int | None = None
    outlook: Outlook = None
    mismatches: list[Mismatch] = field(default_factory=list)
    kinds: InstalledKinds = field(default_factory=lambda: InstalledKinds({"copy": COPY}))
    reported: dict[str, RunProgress] = field(default_factory=dict)
    holds: dict[str, Hold] = field(default_factory=dict)
    receiver_says: str | None = None
    """The answer to a test message; None: it cannot be sent."""
    overdue_now: Overdue = field(default_factory=Overdue)
    pinged: PingView | None = None
    lateness: ThreadLag = field(default_factory=lambda: ThreadLag(Worst(), Worst(), Worst(), Worst()))
    exports: list[ExportCount] = field(default_factory=list)
    start_delay: Histogram = field(default_factory=start_delays)
    bootstraps: BootstrapBoard = field(init=False)
    settings: NodeSettings = field(init=False)

    def __post_init__(self) -> None:
        self.bootstraps = BootstrapBoard(self.name)
        given = {"ROTA_NODE": self.name, "ROTA_TOKEN": self.token or "", "ROTA_SECRET": SECRET, "ROTA_HOSTS": HOST}
        self.settings = NodeSettings(**SettingsReader(given).values(NodeSettings))

    @property
    def history(self) -> HistoryStore:
        return self.cluster.history

    def state(self) -> State:
        return self.cluster.machine.state

    def ownership(self) -> Ownership:
        return self.cluster.ownership

    async def placed(self, timeout_s: float) -> Ownership:
        return self.cluster.ownership

    async def propose(self, entry: Entry, timeout_s: float) -> Result:
        if self.cluster.fault is not None:
            raise self.cluster.fault
        return self.cluster.apply(entry)

    async def barrier(self, timeout_s: float) -> None:
        if self.cluster.fault is not None:
            raise self.cluster.fault

    async def wait_index(self, index: int, timeout_s: float) -> bool:
        return await self.cluster.wait_index(index, timeout_s)

    async def add_member(self, seed: Seed, timeout_s: float) -> Result:
        return await self.propose(AddMember(self.cluster.now_us, seed), timeout_s)

    async def leave_out(self, members: frozenset[str], timeout_s: float) -> str | None:
        if self.outlook is None:
            return "there is a cluster"
        self.outlook = FoundingWait(silent=("node-3",), without=tuple(sorted(members)))
        return None

    async def remove_member(self, member: str, timeout_s: float) -> Result:
        return await self.propose(RemoveMember(self.cluster.now_us, member), timeout_s)

    def progress(self, run_id: str) -> RunProgress | None:
        return self.reported.get(run_id)

    def vitals(self) -> MemberVitals:
        return MemberVitals("0.1.0", self.lease_held, 100 << 30, 60 << 30, 1500)

    async def overdue(self) -> Overdue:
        return self.overdue_now

    async def hold(self, task: str) -> Hold | None:
        return self.holds.get(task)

    def unoffered(self, kind: str) -> str | None:
        return None if kind == "copy" else "it is not installed there"

    async def test_channel(self, name: str, definition: Channel) -> str:
        if self.receiver_says is None:
            raise NotSent(f"{self.name} has no network")
        return self.receiver_says

    async def digest_of(self, state: State, due: DueDigest) -> DigestSummary:
        return digest_summary(state, due, RunTally(state.index, {}), self.cluster.now_us)

    def log_path(self, run_id: str, attempt: int) -> Path:
        return self.cluster.folder / self.name / run_id / f"{attempt}.log"

    def changes(self) -> AsyncIterator[ClusterUpdate]:
        queue: asyncio.Queue[ClusterUpdate] = asyncio.Queue()
        self.cluster.listeners.append(queue)

        async def follow() -> AsyncIterator[ClusterUpdate]:
            while True:
                yield await queue.get()

        return follow()
