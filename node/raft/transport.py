# ruff: noqa: N802, N803 - the library calls its transport by these names
"""The library's TCP transport, mended: connections that are given up in time, and messages that pass `Intake`."""

import logging
import socket
from functools import partial
from typing import Any

from pysyncobj.monotonic import monotonic
from pysyncobj.node import Node
from pysyncobj.tcp_connection import CONNECTION_STATE
from pysyncobj.transport import TCPTransport

from node.raft.connections import PeerConnection, mend_dialled
from node.raft.core import Core
from node.raft.duplicate_starts import Namesakes
from node.raft.listener import Listener
from node.raft.messages import MESSAGE_BYTES, BadMessage, Message

PING_S = 1.0
UNKNOWN_S = 5.0
UNKNOWN_MAX = 64
"""Callers that have not said who they are, at a time. The oldest goes for one more: a member says it within
milliseconds, so a newcomer may be one, and the oldest hardly; who only waits must not keep members out."""
STRANGER_S = 2.0
"""Between two calls of a member's port at which somebody else answers."""
TAKEN_S = 0.8
"""Between two calls of a member that has another start of this one."""
CALL_S = 3.0
"""A member that is to dial this one, and has not been connected for this long, is dialled from here: it may not know
this one yet."""
UNLISTED_MAX = 16
"""At most this many members are let in that the log here does not name."""
BACKLOG_BYTES = 8 << 20
"""More than this is not put into a connection's buffer: what is left out is sent again when it is missed."""
PIECE_BACKLOG_BYTES = 4 << 20
TOLD_MAX = 64
"""So many kinds of bad messages are remembered as told of; then they are told of anew."""

logger = logging.getLogger(__name__)

mend_dialled()


class Transport(TCPTransport):  # type: ignore[misc]  # the library ships no types
    """Differences: acknowledgements wait for the journal, once for all that came in together, and name their term;
    a dial or a handshake that hangs is given up; idle connections are kept alive, and their age known; nobody but
    members is let in, and no administration by message. A caller of the same cluster that the log here does not name is
    let in too (`unlisted`): the entry that names it has not come here yet, and the caller may be the leader that would
    send it. A server hears others whatever its own configuration says (Ongaro 2014, section 4.1). Each side says first
    who it is and which cluster it is of, and nothing of another cluster's is taken (`node.identity.cluster_id`): the
    dialler with the name of whom it calls, the listener in its first message, and both again once they know. A member
    counts as connected from then on, not before: at the address of one that is gone another may answer.
    """

    _server: Any

    def __init__(self, syncObj: Core, selfNode: Node, otherNodes: set[Node]) -> None:
        self.heard: dict[str, float] = {}
        self._consensus = syncObj
        self._acknowledgements: list[tuple[Node, Message]] = []
        self._told: dict[Node, tuple[object, Message, float]] = {}
        """The latest plain acknowledgement of each member: the connection, the message, and when it was put there."""
        self._sent: dict[Node, float] = {}
        self._unknown_since: dict[Any, float] = {}
        self._clusters: dict[object, str] = {}
        """By connection whose other side is known: which cluster that says it is of; empty: of none yet."""
        self._bad_told: set[tuple[str, str]] = set()
        self._mistaken: dict[str, str] = {}
        """By member: who answered in its place."""
        self.namesakes = Namesakes(syncObj, self, syncObj.start_id)
        self.unlisted: set[Node] = set()
        """The callers that are no members by the log here. They are asked for nothing, and do not count."""
        self._calls: set[Any] = set()
        """The connections of members that have called, as long as they are open."""
        self._to_call: set[Node] = set()
        """The members that are dialled from here though they are to dial: they have not done so for long."""
        self._apart_since: dict[Node, float] = {}
        super().__init__(syncObj, selfNode, otherNodes)

    def setOnUtilityMessageCallback(self, message: str, callback: Any) -> None:
        """Not offered: members are added and removed through `Raft`."""

    # -- messages

    def _onMessageReceived(self, node: Node, message: Message) -> None:
        if node not in self._nodes:
            return
        kind, connection = message["type"], self._connections.get(node)
        if kind == "cluster":
            self._introduced(node, message)
        elif kind == "probe":
            self.namesakes.probed(connection, message)
        elif kind == "probe_answer":
            self.namesakes.answered(connection, message)
        elif kind == "taken":
            self.namesakes.taken(node, message)
            self._part(node, TAKEN_S)
        elif connection in self._clusters:
            self.heard[node.id] = monotonic()
            self._consensus.intake.take(node, message)

    def _bad(self, node: Node, error: BadMessage) -> None:
        """A member has sent something that is no message. It is left out, and said once."""
        if (node.id, str(error)) not in self._bad_told:
            if len(self._bad_told) >= TOLD_MAX:
                self._bad_told.clear()
            self._bad_told.add((node.id, str(error)))
            logger.warning("a message from %s is left out: %s; is it of another version of Rota?", node.id, error)

    def hand_on(self, node: Node, message: Message) -> None:
        """Give a message to the library."""
        super()._onMessageReceived(node, message)

    def send(self, node: Node, message: Message) -> bool:
        """Send a message, or keep it until the journal is on the disk if it acknowledges something."""
        if message["type"] == "next_node_idx":
            self._acknowledgements.append((node, {**message, "term": self._consensus.raftCurrentTerm}))
            return True
        if message["type"] == "request_vote":
            assert self._consensus.recovery.votes, "nobody stands who may not vote"
            message = self._consensus.recovery.question(message)
        if message["type"] == "response_vote":
            self._consensus.recovery.now_votes()
            message = self._consensus.recovery.stamped(node, message)
        return self._put(node, message)

    def _put(self, node: Node, message: Message) -> bool:
        connection = self._connections.get(node)
        if connection not in self._clusters:  # nobody is there, or who it is has not been said
            return False
        if message["type"] == "append_entries" and self.backlog(node) > BACKLOG_BYTES:
            return False
        self._sent[node] = monotonic()
        return bool(super().send(node, message))

    def backlog(self, node: object) -> int:
        """Bytes that wait in a member's connection."""
        connection = self._connections.get(node)
        return connection.getSendBufferSize() if connection is not None else 0

    def has_room(self, node: object) -> bool:
        """Whether a member's connection can take another part of a snapshot."""
        return self.backlog(node) < PIECE_BACKLOG_BYTES

    def _acknowledge(self) -> None:
        """What came in since the last tick is on the disk now: say so. Answers to an earlier term's leader are void."""
        waiting, self._acknowledgements = self._acknowledgements, []
        term = self._consensus.raftCurrentTerm
        for position, (node, message) in enumerate(waiting):
            overtaken = position + 1 < len(waiting) and _plain(message) and _plain(waiting[position + 1][1])
            if message["term"] != term or (overtaken and waiting[position + 1][0] == node):
                continue
            if not self._told_lately(node, message) and self._put(node, message) and _plain(message):
                self._told[node] = self._connections.get(node), message, monotonic()

    def _told_lately(self, node: Node, message: Message) -> bool:
        """Whether the leader has heard just this a moment ago: each commit is told, and brings no news of our log."""
        connection, told, at_s = self._told.get(node, (None, None, 0.0))
        same = message == told and connection is self._connections.get(node)
        return same and monotonic() - at_s < self._consensus.timing.heartbeat_s / 2

    # -- who is there, and of which cluster

    def cluster_of(self, node: Node) -> str:
        """The cluster that a connected member says it is of; empty while it is of none."""
        return self._clusters.get(self._connections.get(node), "")

    def announce(self) -> None:
        """This member knows now which cluster it is of: tell the others, and part from those of another."""
        for node, connection in list(self._connections.items()):
            if connection.ready:
                super().send(node, self._ours())
            if connection in self._clusters:
                self._part_from_stranger(node, self._clusters[connection])

    def _ours(self) -> Message:
        here = self._consensus
        ours = {"type": "cluster", "id": here.cluster.known, "member": here.me, "start": here.start_id}
        return {**ours, "term": here.raftCurrentTerm}

    def _introduced(self, node: Node, message: Message) -> None:
        """Whoever is at the other end of a member's connection has said who it is."""
        theirs, member = message["id"], message["member"]
        if self._part_from_stranger(node, theirs):
            return
        if member != node.id:
            if self._mistaken.get(node.id) != member:
                self._mistaken[node.id] = member
                logger.warning("%s answers at the address of %s, which is not connected therefore", member, node.id)
            self._part(node)
            return
        self._mistaken.pop(node.id, None)
        self._consensus.inquiry.counted_on(node.id, theirs)
        connection = self._connections[node]
        if connection in self._clusters:
            self._clusters[connection] = theirs
        elif not self.namesakes.waits(connection):
            where = f"{connection.peer}:{node.port}"
            let_in = partial(self._let_in, node, connection, theirs, message["term"])
            self.namesakes.enter(node, connection, message["start"], where, let_in)

    def _let_in(self, node: Node, connection: Any, theirs: str, term: int = 0) -> None:
        """It is the member, and the one start of it: from now on it counts as connected."""
        self._clusters[connection] = theirs
        connection.limit_bytes = MESSAGE_BYTES
        connection.on_bad = partial(self._bad, node)
        if self.dials(node):
            self.namesakes.connected(node, term)
        self._onNodeConnected(node)

    def _part_from_stranger(self, node: Node, theirs: str) -> bool:
        if self._consensus.cluster.stranger(node.id, theirs) is None:
            return False
        self._part(node)
        return True

    def _part(self, node: Node, pause_s: float = STRANGER_S) -> None:
        self._lastConnectAttempt[node] = monotonic() + pause_s
        self._connections[node].disconnect()

    def _onOutgoingConnected(self, conn: Any) -> None:
        """A dial has succeeded. What comes is for the member from here on, which has to say first who it is."""
        conn.setOnMessageReceivedCallback(partial(self._onMessageReceived, self._connToNode(conn)))
        conn.on_greeted = partial(self._greeted, conn)
        conn.greet()

    def _greeted(self, conn: Any) -> None:
        """Whoever was dialled has sent its nonce: say who calls, and whom."""
        conn.send(self.hello(self._connToNode(conn), asks=False))

    # -- what `Namesakes` asks

    def hello(self, called: Node, *, asks: bool) -> Message:
        """What the caller says first. `asks`: only whether this start is let in (`namesakes`)."""
        here = self._consensus
        port = int(here.conf.bindAddress.rpartition(":")[2])
        hello = {"type": "hello", "member": here.me, "cluster": here.cluster.known, "called": called.id}
        return {**hello, "start": here.start_id, "port": port, "asks": asks}

    def others(self) -> set[Node]:
        """All other members, by the log."""
        return set(self._nodes) - self.unlisted

    def dials(self, node: Node) -> bool:
        """Whether this member dials that one, and not the other way round."""
        return bool(self._shouldConnect(node))

    def reached(self, node: Node) -> bool:
        """Whether a member is connected, and known to be the one start of it."""
        return self._connections.get(node) in self._clusters

    def is_ours(self, node: Node, theirs: str) -> bool:
        """Whether a member that says which cluster it is of may be of this one."""
        return self._consensus.cluster.stranger(node.id, theirs) is None

    def refused_s(self, node: Node) -> float:
        """When the last dial of that member began that was answered with "connection refused"; -inf if none was."""
        connection = self._connections.get(node)
        return connection.refused_s if connection is not None else float("-inf")

    def dial_soon(self, node: Node) -> None:
        """The next dial of that member need not wait, unless it is put off on purpose."""
        if self._lastConnectAttempt.get(node, 0.0) <= monotonic():
            self._lastConnectAttempt.pop(node, None)

    # -- members that do not know one another yet

    def _unlisted(self, name: str, theirs: str) -> Node | None:
        """The node of a caller that the log here does not name; None if it is not let in.

        It knows the secret and has this member in its log. A caller without a cluster could tell nothing.
        """
        if not theirs or len(self.unlisted) >= UNLISTED_MAX:
            return None
        node = self._consensus.book.node(name)
        self._nodes.add(node)
        self._nodeAddrToNode[node.address] = node
        self.unlisted.add(node)
        logger.info("%s is let in as a member of this cluster: the log here does not name it yet", name)
        return node

    def _forget_unlisted(self, node: Node) -> None:
        self.unlisted.discard(node)
        self._nodes.discard(node)
        self._connections.pop(node, None)
        self._nodeAddrToNode.pop(node.address, None)

    def addNode(self, node: Node) -> None:
        """A member by the log. One that has called before its entry came keeps its connection."""
        calling = self._connections.get(node) if node in self.unlisted else None
        self.unlisted.discard(node)
        super().addNode(node)
        if calling is not None:
            self._connections[node] = calling

    def dropNode(self, node: Node) -> None:
        """No member any more."""
        self.unlisted.discard(node)
        self._to_call.discard(node)
        self._apart_since.pop(node, None)
        super().dropNode(node)

    def _shouldConnect(self, node: Node) -> bool:
        if node in self.unlisted or node in self._preventConnectNodes:
            return False
        return node in self._to_call or bool(super()._shouldConnect(node))

    def _connectIfNecessarySingle(self, node: Node) -> bool:
        if self._connections.get(node) in self._calls and not self.reached(node) and self._shouldConnect(node):
            super().addNode(node)  # it had called; from here on it is dialled
        return bool(super()._connectIfNecessarySingle(node))

    def _call_silent(self, now_s: float) -> None:
        """Dial the members that are to dial, and have not."""
        for node in self._nodes - self.unlisted:
            if self.reached(node) or self._shouldConnect(node):
                self._apart_since.pop(node, None)
            elif now_s - self._apart_since.setdefault(node, now_s) > CALL_S:
                self._to_call.add(node)
                super().addNode(node)

    # -- connections

    def _onTick(self) -> None:
        """Called by the library before it waits for events."""
        self._consensus.journal.flush()
        self._acknowledge()
        self._server.attend()
        super()._onTick()
        now = monotonic()
        self._call_silent(now)
        for node, connection in list(self._connections.items()):
            if connection.state == CONNECTION_STATE.DISCONNECTED:
                continue
            if connection not in self._clusters:
                if now - self._lastConnectAttempt.get(node, now) > self._consensus.timing.dial_s:
                    connection.disconnect()
            elif now - self._sent.get(node, 0.0) > PING_S:
                self._put(node, {"type": "ping"})
        for connection, since in list(self._unknown_since.items()):
            if now - since > UNKNOWN_S:
                connection.disconnect()

    def _createServer(self) -> None:
        conf, poller = self._consensus.conf, self._consensus._poller
        host, port = conf.bindAddress.rsplit(":", 1)
        sizes = {"sendBufferSize": conf.sendBufferSize, "recvBufferSize": conf.recvBufferSize}

        def called(caller: socket.socket) -> None:
            connection = PeerConnection(poller, socket=caller, timeout=conf.connectionTimeout, **sizes)
            self._onNewIncomingConnection(connection)

        self._server = Listener(poller, host, int(port), conf.recvBufferSize, called, self._hang_up_on_oldest)

    def _onNewIncomingConnection(self, conn: Any) -> None:
        super()._onNewIncomingConnection(conn)
        self._unknown_since[conn] = monotonic()
        if len(self._unknown_since) > UNKNOWN_MAX:
            self._hang_up_on_oldest()

    def _hang_up_on_oldest(self) -> bool:
        """Of those who have not said who they are, if there are any."""
        oldest = next(iter(self._unknown_since), None)
        if oldest is not None:
            oldest.disconnect()
        return oldest is not None

    def _onIncomingMessageReceived(self, conn: Any, message: Message) -> None:
        """Somebody who has called says who it is. It has the secret: the message would not have been opened."""
        if message["type"] == "founding":
            # Whoever asks, a member by this log or not: it is to know of a cluster. It hangs up.
            conn.setOnMessageReceivedCallback(lambda _message: conn.disconnect())
            conn.send(self._consensus.inquiry.answer(message))
            return
        if message["type"] != "hello":
            conn.disconnect()
            return
        name, theirs, called, asks = message["member"], message["cluster"], message["called"], message["asks"]
        if self._consensus.cluster.stranger(name, theirs) is not None or called != self._consensus.me:
            # It is told who is here, so that it can say so where it runs. It hangs up, or is hung up on as unknown.
            conn.setOnMessageReceivedCallback(lambda _message: conn.disconnect())
            conn.send(self._ours())
            return
        self._consensus.inquiry.counted_on(name, theirs)
        node = self._nodeAddrToNode.get(name) or (None if asks else self._unlisted(name, theirs))
        dialled = node is not None and not asks and self.reached(node) and self._shouldConnect(node)
        if node is None or (dialled and not self.namesakes.differs(node, message["start"])):
            conn.disconnect()  # not a member, or one that this side has dialled
            return
        conn.setOnMessageReceivedCallback(lambda _message: None)  # until it is known that it is the one start
        let_in = partial(self._let_ask if asks else self._let_call, node, conn, theirs)
        self.namesakes.enter(node, conn, message["start"], f"{conn.peer}:{message['port']}", let_in, asks=asks)

    def _let_call(self, node: Node, conn: Any, theirs: str) -> None:
        """A member has dialled."""
        before = self._connections.get(node)
        if before in self._clusters and before is not conn:
            self.namesakes.parted(node)  # it has lost that connection, and may have had another start of this member
        self._to_call.discard(node)
        self._calls.add(conn)
        self._unknownConnections.discard(conn)
        self._unknown_since.pop(conn, None)
        self._connections[node] = conn
        conn.setOnMessageReceivedCallback(partial(self._onMessageReceived, node))
        self._let_in(node, conn, theirs)
        conn.send(self._ours())
        if before is not None and before is not conn:
            before.disconnect()  # the member has dialled anew: the library would leave the old one open

    def _let_ask(self, _node: Node, conn: Any, _theirs: str) -> None:
        """A member that is to be dialled inquires whether it may go by its name."""
        self._unknown_since.pop(conn, None)
        conn.setOnMessageReceivedCallback(partial(self._onInquirerSaid, conn))
        conn.send(self._ours())

    def _onInquirerSaid(self, conn: Any, message: Message) -> None:
        if message["type"] == "probe_answer":
            self.namesakes.answered(conn, message)
        elif message["type"] != "ping":
            conn.disconnect()

    def _onDisconnected(self, conn: Any) -> None:
        self._clusters.pop(conn, None)
        self._unknown_since.pop(conn, None)
        node = self._connToNode(conn)
        super()._onDisconnected(conn)
        self.namesakes.ended(conn)
        self._calls.discard(conn)
        if node in self.unlisted:
            self._forget_unlisted(node)

    def _onNodeDisconnected(self, node: Node) -> None:
        super()._onNodeDisconnected(node)
        self.heard.pop(node.id, None)
        self.namesakes.parted(node)
        self._consensus.lost(node)

    def destroy(self) -> None:
        """Close all connections."""
        self.namesakes.close()
        super().destroy()


def _plain(message: Message) -> bool:
    return bool(message["success"]) and not message["reset"]
