# ruff: noqa: N802, N803 - the library calls its transport by these names
"""The library's TCP transport, changed: connections time out, and messages are checked by `Inbound`.

Each side first names itself and its cluster: the dialler in its `hello`, which also names the member that it calls, and
the listener in its first message; both do so again when they learn their cluster. A member counts as connected only
after this, since another node may answer at a member's old address. No message is accepted from another cluster
(`node.identity.cluster_id`).
"""

import logging
from functools import partial
from typing import Any

from pysyncobj.node import Node
from pysyncobj.tcp_connection import CONNECTION_STATE

from node.identity.mismatches import Mismatch, MismatchCode
from node.raft.core.parts import RaftCore
from node.raft.transport.acknowledgements import Acknowledgements
from node.raft.transport.callers import Callers
from node.raft.transport.duplicate_starts import DuplicateStarts
from node.raft.transport.unlisted import OpenTransport
from node.raft.wire.connections import replace_dialled_connections
from node.raft.wire.encryption import VERSION_CHARS_MAX, CallerClaim, RefusalCode
from node.raft.wire.listener import RaftListener
from node.raft.wire.messages import MESSAGE_BYTES, BadMessage, Message

PING_S = 1.0
STRANGER_S = 2.0
"""The pause between two dials of a member at whose port another node answers."""
REPEAT_HEARTBEATS = 1.5
"""An unchanged acknowledgement is repeated only after this many heartbeats, so every other heartbeat is acknowledged. A
leader waits far longer for its followers (`RaftTiming.quorum_s`), and each message wakes both sides."""
TAKEN_S = 0.8
"""The pause between two dials of a member that has admitted another start of this member."""
BACKLOG_BYTES = 8 << 20
"""Appends are dropped while a connection's buffer has more bytes than this. The library sends them again later."""
PIECE_BACKLOG_BYTES = 4 << 20
"""Parts of a snapshot wait while a connection's buffer has more bytes than this."""
BAD_LOGGED_MAX = 64
"""The limit of kinds of bad messages that are remembered as already logged. When there are more, all are forgotten."""

logger = logging.getLogger(__name__)

replace_dialled_connections()


class Transport(OpenTransport):
    """The connections of a member. Used in Raft's thread.

    Differences from the library:
    - Acknowledgements wait for the journal (`acknowledgements`).
    - A dial or a handshake that hangs times out; idle connections are kept alive.
    - Only members are accepted (`callers`), and one start of each (`duplicate_starts`). Members of the same cluster
      that the log does not list yet are accepted too (`unlisted`).
    - Messages cannot add or remove members.
    """

    _server: Any

    def __init__(self, syncObj: RaftCore, selfNode: Node, otherNodes: set[Node]) -> None:
        self.heard: dict[str, float] = {}
        """For each member: when its latest message arrived."""
        self._acknowledgements = Acknowledgements(REPEAT_HEARTBEATS * syncObj.timing.heartbeat_s)
        self._sent: dict[Node, float] = {}
        self._bad_logged: set[tuple[str, str]] = set()
        self.duplicate_starts = DuplicateStarts(syncObj, self, syncObj.start_id)
        self._callers = Callers(syncObj, self, self._onNewIncomingConnection)
        super().__init__(syncObj, selfNode, otherNodes)

    def setOnUtilityMessageCallback(self, message: str, callback: Any) -> None:
        """Do nothing: members are added and removed through `Raft`, not by messages."""

    # -- messages

    def _onMessageReceived(self, node: Node, message: Message) -> None:
        if node not in self._nodes:
            return
        kind, connection = message["type"], self._connections.get(node)
        if kind == "cluster":
            self._introduced(node, message)
        elif kind == "probe":
            self.duplicate_starts.probed(connection, message)
        elif kind == "probe_answer":
            self.duplicate_starts.answered(connection, message)
        elif kind == "taken":
            self.duplicate_starts.taken(node, message)
            self._disconnect(node, TAKEN_S)
        elif connection in self._clusters:
            self.heard[node.id] = self._consensus.clock()
            self._consensus.inbound.take(node, message)

    def _bad(self, node: Node, error: BadMessage) -> None:
        """Log a member's message that this version cannot read, once for each kind of error. The message is dropped."""
        if (node.id, str(error)) not in self._bad_logged:
            if len(self._bad_logged) >= BAD_LOGGED_MAX:
                self._bad_logged.clear()
            self._bad_logged.add((node.id, str(error)))
            logger.warning("dropped a message from %s: %s; does it run another version of Rota?", node.id, error)

    def pass_to_library(self, node: Node, message: Message) -> None:
        """Pass a message to the library."""
        super()._onMessageReceived(node, message)

    def send(self, node: Node, message: Message) -> bool:
        """Send a message, or keep it until the journal is on the disk if it is an acknowledgement.

        Returns False if the message was neither sent nor kept.
        """
        if message["type"] == "next_node_idx":
            self._acknowledgements.add(node, {**message, "term": self._consensus.raftCurrentTerm})
            return True
        if message["type"] == "request_vote":
            assert self._consensus.recovery.votes, "a member that may not vote does not stand for election"
            message = self._consensus.recovery.vote_request(message)
        if message["type"] == "response_vote":
            self._consensus.recovery.become_voter()
            message = self._consensus.recovery.vote(node, message)
        return self._put(node, message)

    def _put(self, node: Node, message: Message) -> bool:
        connection = self._connections.get(node)
        if connection not in self._clusters:  # not connected, or not identified yet
            return False
        if message["type"] == "append_entries" and self.backlog(node) > BACKLOG_BYTES:
            return False
        self._sent[node] = self._consensus.clock()
        # The library's `send` would look the connection up again afterwards. If sending breaks the connection, an
        # unlisted member is forgotten, and that look-up would fail.
        connection.send(message)
        return connection in self._clusters

    def backlog(self, node: object) -> int:
        """Return the number of bytes that wait in the buffer of a member's connection."""
        connection = self._connections.get(node)
        return connection.getSendBufferSize() if connection is not None else 0

    def has_room(self, node: object) -> bool:
        """Whether a member's connection can take another part of a snapshot."""
        return self.backlog(node) < PIECE_BACKLOG_BYTES

    def _acknowledge(self) -> None:
        """Send the acknowledgements that waited for the journal."""
        for node, message in self._acknowledgements.take(self._consensus.raftCurrentTerm):
            connection, now_s = self._connections.get(node), self._consensus.clock()
            if not self._acknowledgements.is_repeated(node, connection, message, now_s) and self._put(node, message):
                self._acknowledgements.sent(node, connection, message, now_s)

    # -- the identity and the cluster of the other end

    def cluster_of(self, node: Node) -> str:
        """Return the id of the cluster to which a connected member says that it belongs; empty without a cluster."""
        return self._clusters.get(self._connections.get(node), "")

    def announce(self) -> None:
        """Send the others the cluster id that this member has just learnt; disconnect members of other clusters."""
        for node, connection in list(self._connections.items()):
            if connection.ready:
                connection.send(self.introduction())
            if connection in self._clusters:
                self._disconnect_stranger(node, self._clusters[connection])

    def introduction(self) -> Message:
        """Return the message in which this member introduces itself."""
        here = self._consensus
        introduction = {"type": "cluster", "id": here.cluster.known, "member": here.me, "start": here.start_id}
        return {**introduction, "version": here.version, "term": here.raftCurrentTerm}

    def hello(self, called: Node, *, asks: bool) -> Message:
        """Return a dialler's first message. `asks`: it only asks for admission of this start (`duplicate_starts`)."""
        here = self._consensus
        port = int(here.conf.bindAddress.rpartition(":")[2])
        hello = {"type": "hello", "member": here.me, "cluster": here.cluster.known, "called": called.id}
        return {**hello, "start": here.start_id, "version": here.version, "port": port, "asks": asks}

    def _introduced(self, node: Node, message: Message) -> None:
        """Handle the introduction of the node at the other end of a member's connection."""
        theirs, member = message["id"], message["member"]
        if self._disconnect_stranger(node, theirs):
            return
        if member != node.id:
            self._mismatch(node, "mistaken", other=member)
            self._disconnect(node)
            return
        self._consensus.inquiry.called_by_member(node.id, theirs)
        connection = self._connections[node]
        if connection in self._clusters:
            self._clusters[connection] = theirs
        elif not self.duplicate_starts.waits(connection):
            where = f"{connection.peer}:{node.port}"
            admit = partial(self._admit, node, connection, theirs, message["version"], message["term"])
            self.duplicate_starts.enter(node, connection, message["start"], where, admit)

    def _admit(self, node: Node, connection: Any, cluster_id: str, version: str, term: int = 0) -> None:
        """Count a member as connected. The other end has been identified as this member and its only start."""
        self._clusters[connection] = cluster_id
        if version != self._consensus.version:
            self._mismatch(node, "mixed", version=version[:VERSION_CHARS_MAX])
        else:
            self._consensus.mismatches.clear(node.id)
        connection.limit_bytes = MESSAGE_BYTES
        connection.on_bad = partial(self._bad, node)
        if self.dials(node):
            self.duplicate_starts.connected(node, term)
        self._onNodeConnected(node)

    def take_call(self, node: Node, connection: Any, hello: Message) -> None:
        """Use a call, which the member began with `hello`, as the connection with it."""
        before = self._connections.get(node)
        if before in self._clusters and before is not connection:
            self.duplicate_starts.parted(node)  # meanwhile it may have admitted another start of this member
        self._to_dial.discard(node)
        self._calls.add(connection)
        self._unknownConnections.discard(connection)
        self._callers.discard(connection)
        self._connections[node] = connection
        connection.setOnMessageReceivedCallback(partial(self._onMessageReceived, node))
        self._admit(node, connection, hello["cluster"], hello["version"])
        connection.send(self.introduction())
        if before is not None and before is not connection:
            before.disconnect()  # the member has dialled again, and the library would leave the old connection open

    def is_ours(self, node: Node, cluster_id: str) -> bool:
        """Whether a node that names `cluster_id` as its cluster may belong to this member's cluster."""
        return self._consensus.cluster.stranger(node.id, cluster_id) is None

    def _disconnect_stranger(self, node: Node, cluster_id: str) -> bool:
        if self.is_ours(node, cluster_id):
            return False
        self._mismatch(node, "cluster", other=cluster_id)
        self._disconnect(node)
        return True

    def _disconnect(self, node: Node, pause_s: float = STRANGER_S) -> None:
        self._lastConnectAttempt[node] = self._consensus.clock() + pause_s
        self._connections[node].disconnect()

    # -- connections

    def _onTick(self) -> None:
        """Flush the journal and send acknowledgements. Called by the library before it waits for events."""
        self._consensus.journal.flush()
        self._acknowledge()

    def care(self, now_s: float) -> None:
        """Dial the members that this one has to dial, keep connections alive, and end those that hang."""
        if not self.ready:
            return  # the library binds the port first
        self._server.attend()
        super()._onTick()
        self._dial_silent(now_s)
        for node, connection in list(self._connections.items()):
            if connection.state == CONNECTION_STATE.DISCONNECTED:
                continue
            if connection not in self._clusters:
                if now_s - self._lastConnectAttempt.get(node, now_s) > self._consensus.timing.dial_s:
                    if connection.unanswered:
                        self._mismatch(node, "silent")
                    connection.disconnect()
            elif now_s - self._sent.get(node, 0.0) > PING_S:
                self._put(node, {"type": "ping"})
        self._callers.step(now_s)

    def _createServer(self) -> None:
        here = self._consensus
        self._server = RaftListener(
            here._poller, here.conf.bindAddress, here.conf.recvBufferSize, self._callers, here.clock
        )

    def _onOutgoingConnected(self, conn: Any) -> None:
        """Handle a successful dial: send this side's greeting. The other end then has to introduce itself."""
        conn.setOnMessageReceivedCallback(partial(self._onMessageReceived, self._connToNode(conn)))
        conn.on_greeted = partial(self._greeted, conn)
        conn.on_mismatch = partial(self._refused, conn)
        conn.mine = self._consensus.claim
        conn.greet()

    def _greeted(self, conn: Any) -> None:
        """Handle the other end's nonce: send the hello, which names both members."""
        conn.send(self.hello(self._connToNode(conn), asks=False))

    def _refused(self, conn: Any, code: RefusalCode, theirs: CallerClaim) -> None:
        """Record that a dialled node is incompatible with this one, and dial it again after a pause."""
        node = self._connToNode(conn)
        if node is not None:
            self._mismatch(node, code, version=theirs.version)
            self._lastConnectAttempt[node] = self._consensus.clock() + STRANGER_S

    def _mismatch(self, node: Node, code: MismatchCode, *, version: str = "", other: str = "") -> None:
        self._consensus.mismatches.note(
            Mismatch(
                member=node.id,
                address=f"{node.host}:{node.port}",
                code=code,
                claimed=False,
                version=version,
                other=other,
            )
        )

    def _onNewIncomingConnection(self, conn: Any) -> None:
        super()._onNewIncomingConnection(conn)
        self._callers.add(conn)

    def _onIncomingMessageReceived(self, conn: Any, message: Message) -> None:
        self._callers.introduced(conn, message)

    def refused_s(self, node: Node) -> float:
        """Return when the last dial of a member that got "connection refused" began; -inf if there was no such dial."""
        connection = self._connections.get(node)
        return connection.refused_s if connection is not None else float("-inf")

    def dial_soon(self, node: Node) -> None:
        """Let the next dial of a member begin without a pause, unless it was postponed on purpose."""
        if self._lastConnectAttempt.get(node, 0.0) <= self._consensus.clock():
            self._lastConnectAttempt.pop(node, None)

    def _onDisconnected(self, conn: Any) -> None:
        self._clusters.pop(conn, None)
        self._callers.discard(conn)
        node = self._connToNode(conn)
        super()._onDisconnected(conn)
        self.duplicate_starts.ended(conn)
        self._forget_call(conn, node)

    def _onNodeDisconnected(self, node: Node) -> None:
        super()._onNodeDisconnected(node)
        self.heard.pop(node.id, None)
        self._consensus.mismatches.clear(node.id, "mixed")
        self.duplicate_starts.parted(node)
        self._consensus.connection_lost(node)

    def destroy(self) -> None:
        """Close all connections."""
        self.duplicate_starts.close()
        super().destroy()
