"""Accepts connections (calls) on the Raft port, and survives a lack of file descriptors.

The library would close its listener when a call cannot be accepted, and stop its thread, with heartbeats and elections,
until it listens again.
"""

import errno
import logging
import socket
from collections.abc import Callable
from typing import Any, Final, Protocol

from pysyncobj.poller import POLL_EVENT_TYPE

from node.runtime.dns import look_up

REST_S: Final = 0.2
"""The pause after a call that cannot be accepted, which the poller would otherwise report again and again."""

WAITING_CALLS: Final = 128

_CROWDED: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

logger = logging.getLogger(__name__)


class CallersPort(Protocol):
    """Handles accepted calls."""

    def called(self, caller: socket.socket) -> None:
        """Handle the socket of a new call."""

    def make_room(self) -> bool:
        """Close a connection that is not needed. Returns whether there was one."""


class RaftListener:
    """A replacement for the library's TcpServer. Used in Raft's thread. `address` is "host:port"."""

    def __init__(
        self, poller: Any, address: str, buffer_bytes: int, callers: CallersPort, clock: Callable[[], float]
    ) -> None:
        host, port = address.rsplit(":", 1)
        self._poller, self._host, self._port, self._buffer_bytes = poller, host, int(port), buffer_bytes
        self._callers, self._clock = callers, clock
        self._address: str | None = None
        self._socket: socket.socket | None = None
        self._rests_until_s: float | None = None
        self._logged = False

    def bind(self) -> None:
        """Begin to listen. Raises OSError."""
        self._address = self._address or look_up(self._host)
        if self._address is None:
            raise OSError(f"{self._host} has no address")
        listener = socket.socket(socket.AF_INET6 if ":" in self._address else socket.AF_INET, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _prepare(listener, self._buffer_bytes)  # before it listens, so that calls have large windows
            listener.bind((self._address, self._port))
            listener.listen(WAITING_CALLS)
        except OSError:
            listener.close()
            raise
        self._socket = listener
        self._subscribe()

    def unbind(self) -> None:
        """Stop listening."""
        self._rests_until_s = None
        if self._socket is not None:
            self._poller.unsubscribe(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def attend(self) -> None:
        """Accept calls again after a pause. Called repeatedly by the transport."""
        if self._rests_until_s is None or self._clock() < self._rests_until_s:
            return
        self._rests_until_s = None
        if self._socket is not None:
            self._subscribe()
            return
        try:
            self.bind()
        except OSError as error:
            self._rest(error)

    def _subscribe(self) -> None:
        assert self._socket is not None
        self._poller.subscribe(self._socket.fileno(), self._called, POLL_EVENT_TYPE.READ | POLL_EVENT_TYPE.ERROR)

    def _called(self, _descriptor: int, event: int) -> None:
        if self._socket is None:
            return
        if event & POLL_EVENT_TYPE.ERROR:
            self.unbind()
            self._rest(OSError("the listening socket has failed"))
            return
        try:
            caller, _ = self._socket.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno not in _CROWDED or not self._callers.make_room():
                self._rest(error)
            return
        self._logged = False
        try:
            _prepare(caller, self._buffer_bytes)
        except OSError:
            caller.close()
        else:
            self._callers.called(caller)

    def _rest(self, error: OSError) -> None:
        """Accept no calls for REST_S. Connected members are not affected."""
        self._rests_until_s = self._clock() + REST_S
        if self._socket is not None:
            self._poller.unsubscribe(self._socket.fileno())
        if not self._logged:
            self._logged = True
            logger.warning("cannot accept connections of members (%s); trying again", error)


def _prepare(sock: socket.socket, buffer_bytes: int) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setblocking(False)
