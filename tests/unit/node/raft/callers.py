"""A connection to a member's transport, and what callers say."""

from typing import Any

from pysyncobj.tcp_connection import CONNECTION_STATE

from node.raft.wire.connections import HANDSHAKE_BYTES
from testkit.raft.wired import Wired


class Caller:
    """A connection that a caller has opened to a member; the keys have been exchanged."""

    def __init__(self) -> None:
        self.state = CONNECTION_STATE.CONNECTED
        self.ready = True
        self.peer = "10.0.0.9"
        self.greeted = False
        self.sent: list[Any] = []
        self.on_message: Any = None
        self.on_disconnected: Any = None
        self.on_greeted: Any = None
        self.on_bad: Any = None
        self.on_mismatch: Any = None
        self.mine: Any = None
        self.unanswered = False
        self.limit_bytes = HANDSHAKE_BYTES
        self.refused_s = float("-inf")

    def setOnMessageReceivedCallback(self, callback: Any) -> None:  # noqa: N802 - the library's names
        self.on_message = callback

    def setOnDisconnectedCallback(self, callback: Any) -> None:  # noqa: N802
        self.on_disconnected = callback

    def send(self, message: Any) -> None:
        self.sent.append(message)

    def greet(self) -> None:
        self.greeted = True

    def disconnect(self) -> None:
        was_open, self.state = self.open, CONNECTION_STATE.DISCONNECTED
        if was_open and self.on_disconnected:
            self.on_disconnected()

    @property
    def open(self) -> bool:
        return bool(self.state == CONNECTION_STATE.CONNECTED)


def call(member: Wired) -> Caller:
    caller = Caller()
    member.transport._onNewIncomingConnection(caller)
    return caller


def hello(member: str, called: str, start: str = "", *, asks: bool = False) -> Any:
    said = {"type": "hello", "member": member, "cluster": "", "called": called}
    return {**said, "start": start, "version": "", "port": 1, "asks": asks}


def ours(member: str, start: str = "", term: int = 1) -> Any:
    return {"type": "cluster", "id": "", "member": member, "start": start, "version": "", "term": term}


def dial(member: Wired, other: str) -> Caller:
    """The member's connection to the address of another, as soon as the keys are exchanged there."""
    made = Caller()
    made.ready = False
    node = member.node(other)
    member.transport._onNodeDisconnected(node)
    member.transport._connections[node] = made
    made.on_disconnected = lambda: member.transport._onDisconnected(made)
    member.transport._onOutgoingConnected(made)
    assert (made.greeted, made.sent) == (True, [])
    made.on_greeted()
    return made
