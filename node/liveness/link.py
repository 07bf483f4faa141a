"""One heartbeat connection: a socket that never blocks, and the channel over it."""

import errno
import itertools
import os
import selectors
import socket
from dataclasses import dataclass
from typing import Final, Protocol

from node.identity.cluster_id import ClusterId
from node.liveness.wire import NONCE_BYTES, BadPeerError, Bye, HeartbeatChannel, Message, StrangerError

OUT_BYTES_MAX: Final = 4096
"""What the other side does not take is dropped beyond this: a stale heartbeat is worth nothing."""

_ENDED_BY_PEER: Final = {errno.ECONNRESET, errno.EPIPE}
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Passport:
    """What a node shows: the key made of the members' secret, its name, its cluster, and which start of it this is."""

    key: bytes
    me: str
    cluster: ClusterId
    start: str = ""


class Owner(Protocol):
    """Whoever has links: told what happens on them, in the thread that waits on the selector."""

    def opened(self, link: "Link") -> None:
        """Messages can be sent now."""

    def came(self, link: "Link", message: Message) -> None:
        """A message has come."""

    def ended(self, link: "Link", *, by_peer: bool) -> None:
        """The connection is closed; `by_peer`: the other side ended it without a goodbye (it died, most likely)."""

    def refused(self, address: str, why: str) -> None:
        """What came was not a member's; `ended` follows."""


class Link:
    """A connection, registered with a selector until it is closed.

    `member` is whose it is, once its owner knows. `since_s` and `heard_s` are the owner's notes of when it came
    and was last heard.
    """

    def __init__(
        self, sock: socket.socket, selector: selectors.BaseSelector, passport: Passport, owner: Owner, *, dialled: bool
    ) -> None:
        self.number, self.dialled = next(_numbers), dialled
        self.member: str | None = None
        self.since_s = self.heard_s = 0.0
        self.closed = False
        self._socket, self._selector, self._owner = sock, selector, owner
        nonce = os.urandom(NONCE_BYTES)
        self._channel = HeartbeatChannel(
            passport.key, passport.me, passport.cluster, nonce, dialled=dialled, start=passport.start
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
        """Which start of its member the other side is, once it has said so."""
        return self._channel.their_start

    @property
    def address(self) -> str:
        """The address of the other side."""
        return self._address()

    def send(self, message: Message) -> None:
        """Sends it, or drops it where the connection is stuck or not open."""
        if self.open and len(self._out) < OUT_BYTES_MAX:
            self._write(self._channel.pack(message))

    def part(self) -> None:
        """Closes on purpose, and says so if that is possible."""
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
            if not isinstance(error, StrangerError):  # of which the log knows
                self._owner.refused(self._address(), str(error))
            if farewell := self._channel.farewell(error):
                self._write(farewell)  # so that it is known there, too
            self._end(by_peer=False)
            return
        if self.open and not was_open:
            self._write(self._channel.introduction())
            self._owner.opened(self)
        for message in messages:
            self._parting = self._parting or isinstance(message, Bye)
            if not self.closed:
                self._owner.came(self, message)

    def _write(self, data: bytes) -> None:
        """An error is not judged here: reading finds it again, after what had still arrived."""
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
            return "an address that is gone"
