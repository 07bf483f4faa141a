"""Members of a Raft cluster in one thread: the product's own consensus, transport, journal and snapshots, with a clock
that stands still unless it is advanced, and links that a test cuts, delays and empties.

Only sockets are left out: a `Wire` stands for the library's TcpConnection. Messages are packed and checked on the way,
as they are between processes; what a member sent before it died can still arrive, until the two are connected anew.
"""

import os
import pickle
import random
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pysyncobj.syncobj
import pysyncobj.transport
from pysyncobj.tcp_connection import CONNECTION_STATE

from node.identity.cluster_id import ClusterId
from node.raft.consensus import Consensus, ConsensusMember
from node.raft.environment import Environment
from node.raft.log.journal import SqliteJournal
from node.raft.log.log_store import Making, open_folder
from node.raft.ports import EntryApplier, RaftTiming
from node.raft.transport.transport import Transport
from node.raft.wire import messages
from node.raft.wire.addresses import AddressBook
from node.raft.wire.library_settings import configuration
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
        self.unanswered = False
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
        self.duplicate_starts.claim.settled, self.duplicate_starts.claim.alone = True, False

    def _connectIfNecessary(self) -> None:  # noqa: N802
        """The world connects members."""

    def _shouldConnect(self, node: object) -> bool:  # noqa: N802
        return False


class NoCalls:
    """A `SingleCallsPort` that calls no node: in this world members that know one another are connected."""

    def __init__(self, *_: object) -> None:
        """The arguments of `SingleCalls` are not used."""

    def ask(self, *_: object) -> None:
        """No call."""

    def soon(self, _node: object) -> None:
        """No call."""

    def hang_up(self, _node: object) -> None:
        """Nothing is open."""

    def under_way(self, _node: object) -> None:
        """Nothing is open."""

    def called(self) -> list[Any]:
        """None."""
        return []

    def begun_s(self, _node: object) -> float:
        """Never."""
        return float("-inf")

    def refused_s(self, _node: object) -> float:
        """Never."""
        return float("-inf")

    def close(self) -> None:
        """Nothing is open."""


class Wired:
    """A member that runs. `applied`: the entries that were applied here, in order."""

    def __init__(self, world: "World", me: str, cluster: Iterable[str], timing: RaftTiming) -> None:
        self.me = me
        self.applied: list[bytes] = []
        self.terms: list[int] = []
        self._world = world
        addresses = dict.fromkeys({*cluster, me}, ("127.0.0.1", 1))
        book = AddressBook(addresses, Resolver())
        texts = [book.text(name) for name in addresses]
        store = open_folder(world.folder / me, me, texts, making=world.making)
        conf = configuration(timing, "", "127.0.0.1:1", store.journal)
        conf.password = None
        member = ConsensusMember(me, book, timing, ClusterId())
        applier = EntryApplier(self.apply, self.capture, self.restore, self.term_began)
        self.consensus = Consensus(member, store, conf, applier, world.environment)
        self.transport = self.consensus.transport

    # -- `EntryApplier`

    def apply(self, data: bytes) -> None:
        self.applied.append(data)
        self._world.on_apply(self)

    def capture(self) -> Callable[[], Iterator[bytes]]:
        applied = list(self.applied)
        return lambda: iter([pickle.dumps(applied)])

    def restore(self, pieces: Iterable[bytes]) -> None:
        self.applied = [entry for piece in pieces for entry in pickle.loads(piece)]

    def term_began(self, term: int) -> None:
        self.terms.append(term)

    # -- what a test does with it

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
        """One turn: do what is due."""
        self.consensus.tick(0.0)
        writer = self.consensus.snapshots._writer
        if writer is not None:
            writer.join()


class World:
    """The members by name, the links between them, and what they take from outside: clock, chance, connections."""

    def __init__(self, folder: Path, members: Iterable[str], timing: RaftTiming | None = None, seed: int = 0) -> None:
        self.folder = folder
        self.names = tuple(members)
        self.timing = timing or RaftTiming()
        self.rng = random.Random(seed)
        self.now_s = 1_000.0
        self.environment = Environment(self._now, self.rng, WiredTransport, NoCalls)
        self.making = Making(QuickJournal, lambda: int(self.now_s * 1e9))
        self.running: dict[str, Wired] = {}
        self.links: dict[tuple[str, str], deque[Message]] = {}
        self.on_apply: Callable[[Wired], None] = lambda _member: None

    @contextmanager
    def clock(self) -> Iterator[None]:
        """The library goes by this world's clock and randomness, too; at the end all members are killed.

        The library offers no way to give it a clock, so the names in its modules are patched: here, and nowhere else.
        `os.fsync` is left out for speed alone: nothing here loses power.
        """
        with ExitStack() as stack:
            stack.enter_context(mock.patch.object(pysyncobj.syncobj, "monotonicTime", self._now))
            stack.enter_context(mock.patch.object(pysyncobj.transport, "monotonicTime", self._now))
            stack.enter_context(mock.patch.object(pysyncobj.syncobj, "random", self.rng))
            stack.enter_context(mock.patch("os.fsync"))
            try:
                yield
            finally:
                for name in list(self.running):
                    self.crash(name)

    def _now(self) -> float:
        return self.now_s

    # -- verbs

    def start(self, *names: str) -> None:
        """Start these members, or all, without connections."""
        for name in names or self.names:
            self.running[name] = Wired(self, name, self.names, self.timing)

    def found(self, cluster_id: str) -> None:
        """All that run belong to a cluster from now on."""
        for member in self.running.values():
            member.consensus.join_cluster(cluster_id)

    def crash(self, name: str) -> None:
        """Kill it: what it had not written is lost, what it had sent is still under way."""
        member = self.running.pop(name)
        member.consensus.journal._db.close()
        member.consensus.journal._flush_counter.close()
        notifier = member.consensus._SyncObj__pipeNotifier
        for end in (notifier._PipeNotifier__pipeR, notifier._PipeNotifier__pipeW):
            os.close(end)
        for (_, there), queue in self.links.items():
            if there == name:
                queue.clear()

    def connect(self, one: str, other: str) -> None:
        """Connect two anew: messages under way between them are lost."""
        for here, there in ((one, other), (other, one)):
            if here in self.running:
                self._disconnect(self.running[here], there)
            self.links[here, there] = deque()
        if one not in self.running or other not in self.running:
            return
        for here, there in ((one, other), (other, one)):
            transport = self.running[here].transport
            theirs = self.running[there].consensus.cluster.known
            known = transport.listed(there) or transport.accept_unlisted(there, theirs)
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
        """Whether `one` has a connection with `other`."""
        member = self.running.get(one)
        if member is None:
            return False
        return member.transport._connections.get(member.transport._nodeAddrToNode.get(other)) is not None

    def post(self, here: str, there: str, message: Message) -> None:
        """Send a message over a link."""
        if (here, there) in self.links:
            self.links[here, there].append(messages.unpack(messages.pack(message)))

    def deliver(self, here: str, there: str) -> bool:
        """Let the next message on a link arrive. Returns whether there was one."""
        queue = self.links.get((here, there))
        if not queue or there not in self.running:
            return False
        message = queue.popleft()
        if self.connected(there, here):
            self.running[there].take(here, message)
        return True

    def run(self, seconds: float, step_s: float = 0.01, *, paused: Iterable[str] = ()) -> None:
        """Let time pass for all members but the paused ones: every message is delivered at once."""
        still = set(paused)
        for _ in range(round(seconds / step_s)):
            self.now_s += step_s
            for name in [name for name in self.running if name not in still]:
                self.running[name].tick()
            while sum(self.deliver(*link) for link in list(self.links) if link[1] not in still):
                pass

    def until(self, condition: Callable[[], Any], seconds: float = 20.0, *, paused: Iterable[str] = ()) -> Any:
        """Let time pass until `condition` returns something true; returns that."""
        for _ in range(round(seconds / 0.01)):
            if found := condition():
                return found
            self.run(0.01, paused=paused)
        raise AssertionError(f"not within {seconds} s of simulated time")

    def agree(self, data: bytes, *, of: Iterable[str] = ()) -> None:
        """Propose an entry, and wait until these members, or all that run, have applied it."""
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
