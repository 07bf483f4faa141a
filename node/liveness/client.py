"""The connection to the leader: dialled, and dialled again when it ends or nothing is answered."""

import errno
import selectors
import socket
from typing import Final

from node.liveness.link import Link, Owner, Passport
from node.liveness.port_probe import connecting
from node.liveness.wire import Message
from node.runtime.dns import Resolver

AGAIN_S: Final = 0.25
"""Between two tries."""

PATIENCE_S: Final = 1.0
"""A connection without an answer for this long is given up: after a cut TCP itself may take minutes."""


class Dialler:
    """Keeps one connection to whoever leads, for `owner`. To be ticked several times a second."""

    def __init__(self, selector: selectors.BaseSelector, passport: Passport, resolver: Resolver, owner: Owner) -> None:
        self._selector, self._passport, self._resolver, self._owner = selector, passport, resolver, owner
        self._target: tuple[str, int] | None = None
        self._socket: socket.socket | None = None
        self._link: Link | None = None
        self._since_s = self._next_s = 0.0

    def to(self, target: tuple[str, int] | None, now_s: float) -> None:
        """Whom to be connected with: host and port, or None for nobody."""
        if target != self._target:
            self.close()
            self._target, self._next_s = target, now_s
            self.tick(now_s)

    def send(self, message: Message) -> None:
        """Sends it if there is a connection; a heartbeat that cannot be sent now is worth nothing later."""
        if self._link is not None:
            self._link.send(message)

    def answered(self, now_s: float) -> None:
        """The other side has said something."""
        self._since_s = now_s

    def tick(self, now_s: float) -> None:
        """Dials, or gives up what has been silent for too long."""
        if self._link is not None and self._link.closed:
            self._link = None
        idle = self._socket is None and self._link is None
        if not idle and now_s - self._since_s >= PATIENCE_S:
            self.close()
            idle = True
        if idle and self._target is not None and now_s >= self._next_s:
            self._next_s = now_s + AGAIN_S
            self._dial(*self._target, now_s)

    def close(self) -> None:
        """Ends the connection, with a goodbye."""
        if self._socket is not None:
            self._selector.unregister(self._socket)
            self._socket.close()
            self._socket = None
        if self._link is not None:
            self._link.part()
            self._link = None

    def _dial(self, host: str, port: int, now_s: float) -> None:
        address = self._resolver.address(host)
        if address is None:
            return
        try:
            sock, code = connecting(address, port)
        except OSError:
            return
        if code not in (0, errno.EINPROGRESS):
            sock.close()
            return
        self._socket, self._since_s = sock, now_s
        self._selector.register(sock, selectors.EVENT_WRITE, lambda _: self._connected(sock))

    def _connected(self, sock: socket.socket) -> None:
        self._selector.unregister(sock)
        self._socket = None
        if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            sock.close()
            return
        self._link = Link(sock, self._selector, self._passport, self._owner, dialled=True)
