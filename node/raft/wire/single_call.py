"""Calls (connections) that carry one question to a node's Raft port. The node need not be a member of this cluster."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from pysyncobj import SyncObjConf
from pysyncobj.node import Node

from node.identity.mismatches import Mismatch, Mismatches
from node.raft.wire.connections import PeerConnection
from node.raft.wire.encryption import CallerClaim, RefusalCode, Seal
from node.raft.wire.messages import Message

ANSWER_BYTES: Final = 256 << 10
"""The largest answer, in bytes."""

_NEVER_S: Final = float("-inf")


class LibraryPort(Protocol):
    """The library's settings, poller and key for a connection; and `mismatches`, which records incompatible nodes."""

    conf: SyncObjConf
    encryptor: Seal
    mismatches: Mismatches
    _poller: Any

    @property
    def claim(self) -> CallerClaim:
        """This node's claim, which it sends to the nodes that it calls."""


class SingleCalls:
    """One call at a time to each node. Used in Raft's thread.

    on_answer: receives each message, with the called node and the connection, which stays open until `hang_up`. on_end:
    receives the node whenever a call has ended.
    """

    def __init__(
        self,
        library: LibraryPort,
        on_answer: Callable[[Node, PeerConnection, Message], None],
        on_end: Callable[[Node], None] = lambda _node: None,
    ) -> None:
        self._library = library
        self._on_answer, self._on_end = on_answer, on_end
        self._open: dict[Node, PeerConnection] = {}
        self._begun_s: dict[Node, float] = {}
        self._refused_s: dict[Node, float] = {}

    def ask(self, node: Node, question: Message, now_s: float, again_s: float) -> None:
        """Call a node, unless a call is under way, or the last one began less than `again_s` ago."""
        if node in self._open or now_s - self._begun_s.get(node, _NEVER_S) < again_s:
            return
        self._begun_s[node] = now_s
        conf = self._library.conf
        connection = PeerConnection(
            self._library._poller,
            timeout=float("inf"),  # never times out: `hang_up` ends it
            sendBufferSize=conf.sendBufferSize,
            recvBufferSize=conf.recvBufferSize,
        )
        connection.encryptor = self._library.encryptor
        connection.mine = self._library.claim

        def mismatch(code: RefusalCode, theirs: CallerClaim) -> None:
            self._library.mismatches.note(Mismatch(node.id, f"{node.host}:{node.port}", code, version=theirs.version))

        def greeted() -> None:
            connection.limit_bytes = ANSWER_BYTES
            connection.send(question)

        connection.on_greeted, connection.on_mismatch = greeted, mismatch
        connection.setOnConnectedCallback(connection.greet)
        connection.setOnMessageReceivedCallback(partial(self._on_answer, node, connection))
        connection.setOnDisconnectedCallback(partial(self._ended, node, connection))
        self._open[node] = connection
        if not connection.connect(node.ip, node.port):
            self._ended(node, connection)

    def soon(self, node: Node) -> None:
        """Let the next call to a node begin without a pause."""
        self._begun_s.pop(node, None)

    def under_way(self, node: Node) -> PeerConnection | None:
        """Return the connection of the call to a node; None if no call is under way."""
        return self._open.get(node)

    def called(self) -> list[Node]:
        """Return the nodes to which a call is under way."""
        return list(self._open)

    def begun_s(self, node: Node) -> float:
        """Return when the last call to a node began; -inf before the first call."""
        return self._begun_s.get(node, _NEVER_S)

    def refused_s(self, node: Node) -> float:
        """Return when the last call to a node that got "connection refused" began; -inf if there was no such call."""
        return self._refused_s.get(node, _NEVER_S)

    def hang_up(self, node: Node) -> None:
        """End the call to a node, if a call is under way."""
        if node in self._open:
            self._open[node].disconnect()

    def _ended(self, node: Node, connection: PeerConnection) -> None:
        if self._open.get(node) is connection:
            del self._open[node]
            self._refused_s[node] = max(self.refused_s(node), connection.refused_s)
            self._on_end(node)

    def close(self) -> None:
        """End all calls."""
        for node in self.called():
            self.hang_up(node)
