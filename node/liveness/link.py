"""One heartbeat connection: a socket that never blocks, and the channel over it."""

import errno
import itertools
import os
import selectors
import socket
from dataclasses import dataclass
from typing import Final, Protocol

from node.identity.cluster_id import ClusterId
from node.liveness.wire import NONCE_BYTES, BadPeerError, Bye, ForeignClusterError, HeartbeatChannel, Message

OUT_BYTES_MAX: Final = 4096
"""With more unsent bytes than this, messages are dropped, because a stale heartbeat is useless."""

_ENDED_BY_PEER: Final = {errno.ECONNRESET, errno.EPIPE}
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Credentials:
    """How a node identifies itself: the key derived from the members' secret, its name, its cluster, its start id."""

    key: bytes
    me: str
    cluster: ClusterId
    start: str = ""


class LinkOwner(Protocol):
    """The callbacks of a link, which the thread that waits on the selector calls."""

    def opened(self, link: "Link") -> None:
        """The link is authenticated, so messages can be sent."""

    def received(self, link: "Link", message: Message) -> None:
        """A message has arrived."""

    def ended(self, link: "Link", *, by_peer: bool) -> None:
        """The connection is closed; `by_peer`: the other side closed it without a goodbye (most likely it died)."""

    def refused(self, address: str, why: str) -> None:
        """The other side is not a member; `ended` follows."""


class Link:
    """A connection, registered with a selector until it is closed.

    The owner sets `member`, the id of the other side once known; `since_s`, when it connected; and `heard_s`, when it
    last sent a message.
    """

    def __init__(
        self,
        sock: socket.socket,
        selector: selectors.BaseSelector,
        credentials: Credentials,
        owner: LinkOwner,
        *,
        dialled: bool,
    ) -> None:
        self.number, self.dialled = next(_numbers), dialled
        self.member: str | None = None
        self.since_s = self.heard_s = 0.0
        self.closed = False
        self._socket, self._selector, self._owner = sock, selector, owner
        nonce = os.urandom(NONCE_BYTES)
        self._channel = HeartbeatChannel(
            credentials.key, credentials.me, credentials.cluster, nonce, dialled=dialled, start=credentials.start
        )
        self._out = b""
        self._events = selectors.EVENT_READ
        self._parting = False
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(sock, self._events, self._ready)
        self._write(self._channel.greeting())

    @property
    def open(self) -> bool:
        """Whether messages can be sent."""
        return self._channel.ready and not self.closed

    @property
    def start(self) -> str:
        """The start id of the other side, once it has sent it."""
        return self._channel.their_start

    @property
    def address(self) -> str:
        """The address of the other side."""
        return self._address()

    def send(self, message: Message) -> None:
        """Send a message, or drop it if the connection is blocked or not open."""
        if self.open and len(self._out) < OUT_BYTES_MAX:
            self._write(self._channel.pack(message))

    def part(self) -> None:
        """Close the connection deliberately, with a goodbye if that can be sent."""
        if not self.closed:
            self.send(Bye())
            self._end(by_peer=False)

    def _ready(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._write(b"")
        if mask & selectors.EVENT_READ and not self.closed:
            self._read()

    def _read(self) -> None:
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(by_peer=error.errno in _ENDED_BY_PEER and not self._parting)
            return
        if not data:
            self._end(by_peer=not self._parting)
            return
        was_open = self.open
        try:
            messages = self._channel.feed(data)
        except BadPeerError as error:
            if not isinstance(error, ForeignClusterError):  # that error has been logged already
                self._owner.refused(self._address(), str(error))
            if farewell := self._channel.farewell(error):
                self._write(farewell)  # so that the other side can log it, too
            self._end(by_peer=False)
            return
        if self.open and not was_open:
            self._write(self._channel.introduction())
            self._owner.opened(self)
        for message in messages:
            self._parting = self._parting or isinstance(message, Bye)
            if not self.closed:
                self._owner.received(self, message)

    def _write(self, data: bytes) -> None:
        """Send as much as the socket takes.

        Errors are ignored here, because the next read raises them again, after the data that arrived before them.
        """
        self._out += data
        try:
            sent = self._socket.send(self._out) if self._out else 0
        except OSError as error:
            sent = 0 if isinstance(error, BlockingIOError) else len(self._out)
        self._out = self._out[sent:]
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._out else 0)
        if self._events != wanted:
            self._events = wanted
            self._selector.modify(self._socket, wanted, self._ready)

    def _end(self, *, by_peer: bool) -> None:
        if not self.closed:
            self.closed = True
            self._selector.unregister(self._socket)
            self._socket.close()
            self._owner.ended(self, by_peer=by_peer)

    def _address(self) -> str:
        try:
            return f"{self._socket.getpeername()[0]}"
        except OSError:
            return "a closed connection"
