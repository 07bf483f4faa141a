"""Incoming connections to the Raft port, until the member at the other end is identified."""

import socket
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from pysyncobj.node import Node

from node.identity.mismatches import Mismatch
from node.raft.core.parts import RaftCore
from node.raft.transport.duplicate_starts import DuplicateStarts
from node.raft.wire.connections import PeerConnection
from node.raft.wire.encryption import CallerClaim, RefusalCode
from node.raft.wire.messages import Message

UNKNOWN_S: Final = 5.0
"""A caller is disconnected if it is not identified as a member within this time."""
UNKNOWN_MAX: Final = 64
"""The limit of callers that are not identified yet. Beyond it, each new caller displaces the oldest one. A member
introduces itself within milliseconds, so the oldest caller is hardly a member, but the new one may be."""


class CallersTransport(Protocol):
    """The part of the transport that `Callers` needs."""

    duplicate_starts: DuplicateStarts

    def listed(self, name: str) -> Node | None:
        """Return the node of a member that this log lists, or that was accepted as unlisted; else None."""

    def accept_unlisted(self, name: str, cluster_id: str) -> Node | None:
        """Accept a caller that this log does not list, and return its node; None if it is refused."""

    def reached(self, node: Node) -> bool:
        """Whether a member is connected, and the connected process is known to be the only one of that member."""

    def dials(self, node: Node) -> bool:
        """Whether this member dials `node`, and not the other way round."""

    def introduction(self) -> Message:
        """Return the message in which this member introduces itself."""

    def take_call(self, node: Node, connection: Any, hello: Message) -> None:
        """Use a call, which the member began with `hello`, as the connection with it."""


class Callers:
    """The callers that are not identified yet. Used in Raft's thread.

    begin: makes the library watch a new connection, and pass its messages to `introduced`.
    """

    def __init__(self, consensus: RaftCore, transport: CallersTransport, begin: Callable[[Any], None]) -> None:
        self._consensus, self._transport, self._begin = consensus, transport, begin
        self._since_s: dict[Any, float] = {}
        """The callers, oldest first, and when each called."""

    # -- for the listener

    def called(self, caller: socket.socket) -> None:
        """Handle the socket of a new call."""
        conf = self._consensus.conf
        connection = PeerConnection(
            self._consensus._poller,
            socket=caller,
            timeout=conf.connectionTimeout,
            sendBufferSize=conf.sendBufferSize,
            recvBufferSize=conf.recvBufferSize,
        )
        connection.mine = self._consensus.claim
        connection.on_mismatch = partial(self._refused, connection)
        self._begin(connection)

    def make_room(self) -> bool:
        """Disconnect the oldest caller. Returns whether there was one."""
        oldest = next(iter(self._since_s), None)
        if oldest is not None:
            oldest.disconnect()
        return oldest is not None

    # -- for the transport

    def add(self, connection: Any) -> None:
        """Add a new caller, which has to introduce itself."""
        self._since_s[connection] = self._consensus.clock()
        if len(self._since_s) > UNKNOWN_MAX:
            self.make_room()

    def discard(self, connection: Any) -> None:
        """Remove a caller that is identified now, or has disconnected."""
        self._since_s.pop(connection, None)

    def step(self, now_s: float) -> None:
        """Disconnect the callers that were not identified within UNKNOWN_S."""
        for connection, since_s in list(self._since_s.items()):
            if now_s - since_s > UNKNOWN_S:
                connection.disconnect()

    def _refused(self, connection: PeerConnection, code: RefusalCode, theirs: CallerClaim) -> None:
        """Record a caller that has another build or secret. Ignore one that does not speak the members' protocol."""
        if code != "no-member":
            mismatch = Mismatch(theirs.member, connection.peer, code, claimed=True, version=theirs.version)
            self._consensus.mismatches.note(mismatch)

    def introduced(self, connection: Any, message: Message) -> None:
        """Handle the first message of a caller. Since it could be decrypted, the caller has the members' secret."""
        if message["type"] == "founding":
            # Any node may ask about the cluster, even if it is no member by this log. The caller then disconnects.
            connection.setOnMessageReceivedCallback(lambda _message: connection.disconnect())
            connection.send(self._consensus.inquiry.answer(message))
        elif message["type"] == "hello":
            self._greeted(connection, message)
        else:
            connection.disconnect()

    def _greeted(self, connection: Any, message: Message) -> None:
        transport = self._transport
        name, theirs, called, asks = message["member"], message["cluster"], message["called"], message["asks"]
        if self._consensus.cluster.stranger(name, theirs) is not None:
            self._consensus.mismatches.note(Mismatch(name, connection.peer, "cluster", other=theirs))
        if self._consensus.cluster.stranger(name, theirs) is not None or called != self._consensus.me:
            # The caller gets this member's introduction, so that it can log which node it has reached. It disconnects
            # by itself, or is disconnected after UNKNOWN_S.
            connection.setOnMessageReceivedCallback(lambda _message: connection.disconnect())
            connection.send(transport.introduction())
            return
        self._consensus.inquiry.called_by_member(name, theirs)
        node = transport.listed(name) or (None if asks else transport.accept_unlisted(name, theirs))
        dialled = node is not None and not asks and transport.reached(node) and transport.dials(node)
        if node is None or (dialled and not transport.duplicate_starts.differs(node, message["start"])):
            connection.disconnect()  # not a member, or a member that this side has dialled
            return
        connection.setOnMessageReceivedCallback(lambda _message: None)  # ignored until this start is admitted
        if asks:
            admit = partial(self._admit_inquirer, connection)
        else:
            admit = partial(transport.take_call, node, connection, message)
        where = f"{connection.peer}:{message['port']}"
        transport.duplicate_starts.enter(node, connection, message["start"], where, admit, asks=asks)

    def _admit_inquirer(self, connection: Any) -> None:
        """Admit the call of a member that this side dials, and that only asks whether this start of it is accepted."""
        self.discard(connection)
        connection.setOnMessageReceivedCallback(partial(self._inquirer_said, connection))
        connection.send(self._transport.introduction())

    def _inquirer_said(self, connection: Any, message: Message) -> None:
        if message["type"] == "probe_answer":
            self._transport.duplicate_starts.answered(connection, message)
        elif message["type"] != "ping":
            connection.disconnect()
