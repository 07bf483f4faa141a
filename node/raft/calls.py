"""Calls of one question: to whoever is at a member's Raft port, of whatever cluster, and known to it or not."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pysyncobj.monotonic import monotonic
from pysyncobj.tcp_connection import CONNECTION_STATE

from node.raft.connections import Connection
from node.raft.messages import Message

if TYPE_CHECKING:
    from node.raft.consensus import Consensus

ANSWER_BYTES: Final = 256 << 10
"""The largest answer."""

CALL_S: Final = 2.0
"""A call that has had no answer for so long is given up."""


class Calls:
    """One at a time to each member. Used in Raft's thread. `on_answer` gets each answer."""

    def __init__(self, consensus: "Consensus", on_answer: Callable[[Message], None]) -> None:
        self._consensus = consensus
        self._on_answer = on_answer
        self._open: dict[str, tuple[Connection, float]] = {}
        self._begun_s: dict[str, float] = {}

    def ask(self, member: str, question: Message, now_s: float, again_s: float) -> None:
        """Call a member, unless a call is under way, or the last one was begun less than `again_s` ago."""
        connection, since_s = self._open.get(member, (None, 0.0))
        if connection is not None:
            if now_s - since_s > CALL_S:
                self._hang_up(member)
            return
        if now_s - self._begun_s.get(member, float("-inf")) < again_s:
            return
        self._begun_s[member] = now_s
        self._call(member, question)

    def _call(self, member: str, question: Message) -> None:
        here = self._consensus
        node, conf = here.book.node(member), here.conf
        connection = Connection(
            here._poller,
            timeout=conf.connectionTimeout,
            sendBufferSize=conf.sendBufferSize,
            recvBufferSize=conf.recvBufferSize,
        )
        connection.encryptor = here.encryptor

        def greeted() -> None:
            connection.limit_bytes = ANSWER_BYTES
            connection.send(question)

        def answered(message: Message) -> None:
            self._hang_up(member)
            if message["type"] == "founding_answer" and message["member"] == member:
                self._on_answer(message)

        connection.on_greeted = greeted
        connection.setOnConnectedCallback(connection.greet)
        connection.setOnMessageReceivedCallback(answered)
        connection.setOnDisconnectedCallback(lambda: self._ended(member, connection))
        self._open[member] = (connection, monotonic())
        if not connection.connect(node.ip, node.port):
            self._hang_up(member)

    def _hang_up(self, member: str) -> None:
        connection, _ = self._open.pop(member, (None, 0.0))
        if connection is not None and connection.state != CONNECTION_STATE.DISCONNECTED:
            connection.disconnect()

    def _ended(self, member: str, connection: Connection) -> None:
        if self._open.get(member, (None, 0.0))[0] is connection:
            del self._open[member]

    def end(self) -> None:
        """Hang up on all."""
        for member in list(self._open):
            self._hang_up(member)
