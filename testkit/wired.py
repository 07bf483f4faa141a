"""Members of a Raft cluster in one thread: the product's own consensus, intake, transport, journal and snapshots, with
a clock that stands still unless it is told, and links that a test cuts, delays and empties.

Only sockets are left out: a `Wire` stands for the library's TcpConnection. Messages are packed and checked on the way,
as they are between processes; what a member sent before it died can still arrive, until the two are connected anew.
"""

import os
import pickle
import random
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pysyncobj.syncobj
import pysyncobj.transport
from pysyncobj.tcp_connection import CONNECTION_STATE

import node.raft.amnesia_recovery
import node.raft.consensus
import node.raft.duplicate_starts
import node.raft.elections
import node.raft.founding_inquiry
import node.raft.inbound
import node.raft.log_store
import node.raft.transport
from node.identity.cluster_id import ClusterId
from node.raft import messages
from node.raft.addresses import Book
from node.raft.consensus import Consensus, configuration
from node.raft.journal import SqliteJournal
from node.raft.log_store import open_folder
from node.raft.ports import RaftTiming
from node.raft.transport import Transport
from node.runtime.dns import Resolver

Message = dict[str, Any]


class QuickJournal(SqliteJournal):
    """A journal whose disk never loses power: it need not be synced."""

    def _connect(self, path: Path) -> sqlite3.Connection:
        db = super()._connect(path)
        db.execute("PRAGMA synchronous=OFF")
        return db


class Wire:
    """One end of a connection."""

    def __init__(self, world: "World", here: str, there: str) -> None:
        self._world, self._here, self._there = world, here, there
        self.state = CONNECTION_STATE.CONNECTED
        self.ready = True
        self.peer = "127.0.0.1"
        self.sent: list[Message] = []
        self.backlog_bytes = 0
        self.refused_s = float("-inf")

    def send(self, message: Message) -> None:
        self.sent.append(message)
        self._world.post(self._here, self._there, message)

    def getSendBufferSize(self) -> int:  # noqa: N802 - the library's name
        return self.backlog_bytes

    def disconnect(self) -> None:
        self.state = CONNECTION_STATE.DISCONNECTED


class WiredTransport(Transport):
    """The transport, without its sockets."""

    def _createServer(self) -> None:  # noqa: N802 - the library's names, here and below
        self._server = SimpleNamespace(attend=lambda: None, unbind=lambda: None)
        self._ready = True
        self.namesakes.claim.settled, self.namesakes.claim.alone = True, False

    def _connectIfNecessary(self) -> None:  # noqa: N802
        """The world connects."""

    def _shouldConnect(self, node: object) -> bool:  # noqa: N802
        return False


class NoCalls:
    """Nobody is called: in this world those who know one another are connected."""

    def __init__(self, *_: object) -> None:
        """Of whom and for whom does not matter."""

    def ask(self, *_: object) -> None:
        """Not asked."""

    def soon(self, _node: object) -> None:
        """Not even soon."""

    def hang_up(self, _node: object) -> None:
        """Nothing is open."""

    def under_way(self, _node: object) -> None:
        """Nothing is open."""

    def called(self) -> list[Any]:
        """Nobody."""
        return []

    def begun_s(self, _node: object) -> float:
        """Never."""
        return float("-inf")

    def refused_s(self, _node: object) -> float:
        """Never."""
        return float("-inf")

    def end(self) -> None:
        """Nothing is open."""


class Wired:
    """A member that runs. `applied` is what its machine has been given, in order."""

    def __init__(self, world: "World", me: str, cluster: Iterable[str], timing: RaftTiming) -> None:
        self.me = me
        self.applied: list[bytes] = []
        self.terms: list[int] = []
        addresses = dict.fromkeys({*cluster, me}, ("127.0.0.1", 1))
        book = Book(addresses, Resolver())
        folder = open_folder(world.folder / me, me, [book.text(name) for name in addresses])
        conf = configuration(timing, "", "127.0.0.1:1", folder.journal)
        conf.password = None
        self.consensus = Consensus(
            me,
            folder,
            book,
            timing,
            conf,
            ClusterId(),
            self._apply,
            self._capture,
            self._restore,
            self.terms.append,
        )
        self.transport: WiredTransport = self.consensus.transport
        self._world = world

    def _apply(self, data: bytes) -> None:
        self.applied.append(data)
        self._world.on_apply(self)

    def _capture(self) -> Callable[[], Iterator[bytes]]:
        applied = list(self.applied)
        return lambda: iter([pickle.dumps(applied)])

    def _restore(self, pieces: Iterable[bytes]) -> None:
        self.applied = [entry for piece in pieces for entry in pickle.loads(piece)]

    def take(self, sender: str, message: Message) -> None:
        """A message arrives."""
        if sender in self.transport._nodeAddrToNode:
            self.transport._onMessageReceived(self.node(sender), message)

    def node(self, member: str) -> Any:
        """The library's node for another member."""
        return self.transport._nodeAddrToNode[member]

    def wire_to(self, member: str) -> Wire:
        """This end of the connection with another member."""
        wire: Wire = self.transport._connections[self.node(member)]
        return wire

    def sent_to(self, member: str, kind: str) -> list[Message]:
        """The messages of a kind that went to a member on the present connection."""
        return [message for message in self.wire_to(member).sent if message["type"] == kind]

    def tick(self) -> None:
        """Let it do what is due."""
        self.consensus.tick(0.0)
        writer = self.consensus.snapshots._writer
        if writer is not None:
            writer.join()


class World:
    """The members by name, the links between them, and the clock."""

    def __init__(self, folder: Path, members: Iterable[str], timing: RaftTiming | None = None, seed: int = 0) -> None:
        self.folder = folder
        self.names = tuple(members)
        self.timing = timing or RaftTiming()
        self.rng = random.Random(seed)
        self.now_s = 1_000.0
        self.running: dict[str, Wired] = {}
        self.links: dict[tuple[str, str], deque[Message]] = {}
        self.on_apply: Callable[[Wired], None] = lambda _member: None

    @contextmanager
    def clock(self) -> Iterator[None]:
        """The modules under test read this world's clock, and their chances from its seed."""
        with mock.patch.multiple("time", time_ns=lambda: int(self.now_s * 1e9)):
            patches: list[Any] = [
                mock.patch("os.fsync"),
                mock.patch.object(pysyncobj.syncobj, "monotonicTime", self._now),
                mock.patch.object(pysyncobj.syncobj, "random", self.rng),
                mock.patch.object(pysyncobj.transport, "monotonicTime", self._now),
                mock.patch.object(node.raft.elections, "random", self.rng),
                mock.patch.object(node.raft.consensus, "Transport", WiredTransport),
                mock.patch.object(node.raft.founding_inquiry, "Calls", NoCalls),
                mock.patch.object(node.raft.duplicate_starts, "Calls", NoCalls),
                mock.patch.object(node.raft.log_store, "SqliteJournal", QuickJournal),
            ]
            raft = node.raft
            modules = (
                raft.consensus,
                raft.elections,
                raft.founding_inquiry,
                raft.inbound,
                raft.duplicate_starts,
                raft.amnesia_recovery,
                raft.transport,
            )
            patches += [mock.patch.object(module, "monotonic", self._now) for module in modules]
            for patch in patches:
                patch.start()
            try:
                yield
            finally:
                for name in list(self.running):
                    self.crash(name)
                for patch in patches:
                    patch.stop()

    def _now(self) -> float:
        return self.now_s

    # -- verbs

    def start(self, *names: str) -> None:
        """Start these members, or all; connected to nobody yet."""
        for name in names or self.names:
            self.running[name] = Wired(self, name, self.names, self.timing)

    def found(self, cluster_id: str) -> None:
        """All that run are of a cluster from now on."""
        for member in self.running.values():
            member.consensus.belong_to(cluster_id)

    def crash(self, name: str) -> None:
        """Kill it: what it had not written is gone, what it had sent is still on its way."""
        member = self.running.pop(name)
        member.consensus.journal._db.close()
        member.consensus.journal._witness.close()
        notifier = member.consensus._SyncObj__pipeNotifier
        for end in (notifier._PipeNotifier__pipeR, notifier._PipeNotifier__pipeW):
            os.close(end)
        for (_, there), queue in self.links.items():
            if there == name:
                queue.clear()

    def connect(self, one: str, other: str) -> None:
        """Connect two anew: what was under way between them is lost."""
        for here, there in ((one, other), (other, one)):
            if here in self.running:
                self._disconnect(self.running[here], there)
            self.links[here, there] = deque()
        if one not in self.running or other not in self.running:
            return
        for here, there in ((one, other), (other, one)):
            transport = self.running[here].transport
            theirs = self.running[there].consensus.cluster.known
            known = transport._nodeAddrToNode.get(there) or transport._unlisted(there, theirs)
            if known is not None:
                wire = transport._connections[known] = Wire(self, here, there)
                transport._clusters[wire] = theirs
                transport._onNodeConnected(known)

    def cut(self, one: str, other: str) -> None:
        """Both notice that they are no longer connected."""
        for here, there in ((one, other), (other, one)):
            self.links.pop((here, there), None)
            if here in self.running:
                self._disconnect(self.running[here], there)

    def _disconnect(self, member: Wired, other: str) -> None:
        known = member.transport._nodeAddrToNode.get(other)
        wire = member.transport._connections.pop(known, None)
        if wire is not None:
            wire.disconnect()
            member.transport._onNodeDisconnected(known)

    def connect_all(self) -> None:
        """Connect all that run."""
        names = sorted(self.running)
        for number, one in enumerate(names):
            for other in names[number + 1 :]:
                self.connect(one, other)

    def connected(self, one: str, other: str) -> bool:
        """Whether `one` thinks so."""
        member = self.running.get(one)
        if member is None:
            return False
        return member.transport._connections.get(member.transport._nodeAddrToNode.get(other)) is not None

    def post(self, here: str, there: str, message: Message) -> None:
        """Put a message on its way."""
        if (here, there) in self.links:
            self.links[here, there].append(messages.unpack(messages.pack(message)))

    def deliver(self, here: str, there: str) -> bool:
        """Let the next message on a link arrive; False if there was none."""
        queue = self.links.get((here, there))
        if not queue or there not in self.running:
            return False
        message = queue.popleft()
        if self.connected(there, here):
            self.running[there].take(here, message)
        return True

    def run(self, seconds: float, step_s: float = 0.01, *, paused: Iterable[str] = ()) -> None:
        """Let time pass for all but those that are paused: everything is delivered at once."""
        still = set(paused)
        for _ in range(round(seconds / step_s)):
            self.now_s += step_s
            for name in [name for name in self.running if name not in still]:
                self.running[name].tick()
            while sum(self.deliver(*link) for link in list(self.links) if link[1] not in still):
                pass

    def until(self, condition: Callable[[], Any], seconds: float = 20.0, *, paused: Iterable[str] = ()) -> Any:
        """Let time pass until something is so."""
        for _ in range(round(seconds / 0.01)):
            if found := condition():
                return found
            self.run(0.01, paused=paused)
        raise AssertionError(f"not within {seconds} s of this world's time")

    def agree(self, data: bytes, *, of: Iterable[str] = ()) -> None:
        """Have an entry proposed, and applied by these members, or all that run."""
        names = list(of)
        self.until(self.leader).consensus.put(data)
        self.until(lambda: all(self.running[name].applied[-1:] == [data] for name in names or self.running))

    def lead(self) -> tuple[Wired, Wired, Wired]:
        """The leader of three, and the two others."""
        leader: Wired = self.until(self.leader)
        one, other = (self.running[name] for name in self.names if name != leader.me)
        return leader, one, other

    def leader(self) -> Wired | None:
        """The leader of the latest term among those that run."""
        leaders = [member for member in self.running.values() if member.consensus.is_leader]
        return max(leaders, key=lambda member: member.consensus.raftCurrentTerm, default=None)
