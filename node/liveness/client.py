"""Connects to the leader for heartbeats. Connects again when the connection ends or the leader does not answer."""

import errno
import selectors
import socket
from typing import Final

from node.liveness.link import Credentials, Link, LinkOwner
from node.liveness.port_probe import connecting
from node.liveness.wire import Message
from node.runtime.dns import Resolver

AGAIN_S: Final = 0.25
"""The wait between two attempts to connect."""

UNANSWERED_S: Final = 1.0
"""A connection without an answer for this long is closed, because TCP itself may take minutes in a partition."""


class HeartbeatClient:
    """Keeps one connection to the leader, for `owner`. `tick` must be called several times a second."""

    def __init__(
        self, selector: selectors.BaseSelector, credentials: Credentials, resolver: Resolver, owner: LinkOwner
    ) -> None:
        self._selector, self._credentials, self._resolver, self._owner = selector, credentials, resolver, owner
        self._target: tuple[str, int] | None = None
        self._socket: socket.socket | None = None
        self._link: Link | None = None
        self._since_s = self._next_s = 0.0

    def follow(self, target: tuple[str, int] | None, now_s: float) -> None:
        """Connect to this host and port, and close any connection to another one. None: only disconnect."""
        if target != self._target:
            self.close()
            self._target, self._next_s = target, now_s
            self.tick(now_s)

    def send(self, message: Message) -> None:
        """Send a message if there is a connection, else drop it, because a late heartbeat is useless."""
        if self._link is not None:
            self._link.send(message)

    def answered(self, now_s: float) -> None:
        """Note that the leader has answered."""
        self._since_s = now_s

    def tick(self, now_s: float) -> None:
        """Close a connection on which the leader does not answer, and connect if there is no connection."""
        if self._link is not None and self._link.closed:
            self._link = None
        idle = self._socket is None and self._link is None
        if not idle and now_s - self._since_s >= UNANSWERED_S:
            self.close()
            idle = True
        if idle and self._target is not None and now_s >= self._next_s:
            self._next_s = now_s + AGAIN_S
            self._dial(*self._target, now_s)

    def close(self) -> None:
        """Close the connection, with a goodbye."""
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
        self._link = Link(sock, self._selector, self._credentials, self._owner, dialled=True)
