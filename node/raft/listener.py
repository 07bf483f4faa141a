"""Takes calls on the Raft port, and goes on doing so when there is no file descriptor for one.

The library closes its listener when a call cannot be taken, and then lets its thread do nothing at all before it
listens again: no heartbeats, no elections.
"""

import errno
import logging
import socket
from collections.abc import Callable
from typing import Any, Final

from pysyncobj.monotonic import monotonic
from pysyncobj.poller import POLL_EVENT_TYPE

from node.runtime.dns import look_up

REST_S: Final = 0.2
"""A call that cannot be taken waits for so long: the poller would tell of it again and again."""

WAITING_CALLS: Final = 128

_CROWDED: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

logger = logging.getLogger(__name__)


class Listener:
    """In the place of the library's TcpServer. Used in Raft's thread.

    on_call: gets the socket of each call. make_room: closes some connection that can be spared, if there is one, and
    says whether there was.
    """

    def __init__(
        self,
        poller: Any,
        host: str,
        port: int,
        buffer_bytes: int,
        on_call: Callable[[socket.socket], None],
        make_room: Callable[[], bool],
    ) -> None:
        self._poller, self._host, self._port, self._buffer_bytes = poller, host, port, buffer_bytes
        self._on_call, self._make_room = on_call, make_room
        self._address: str | None = None
        self._socket: socket.socket | None = None
        self._rests_until_s: float | None = None
        self._told = False

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
        self._hear()

    def unbind(self) -> None:
        """Listen no more."""
        self._rests_until_s = None
        if self._socket is not None:
            self._poller.unsubscribe(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def attend(self) -> None:
        """Take calls again after a rest. To be called with each tick."""
        if self._rests_until_s is None or monotonic() < self._rests_until_s:
            return
        self._rests_until_s = None
        if self._socket is not None:
            self._hear()
            return
        try:
            self.bind()
        except OSError as error:
            self._rest(error)

    def _hear(self) -> None:
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
            if error.errno not in _CROWDED or not self._make_room():
                self._rest(error)
            return
        self._told = False
        try:
            _prepare(caller, self._buffer_bytes)
        except OSError:
            caller.close()
        else:
            self._on_call(caller)

    def _rest(self, error: OSError) -> None:
        """Members that are connected already notice nothing of it."""
        self._rests_until_s = monotonic() + REST_S
        if self._socket is not None:
            self._poller.unsubscribe(self._socket.fileno())
        if not self._told:
            self._told = True
            logger.warning("no calls of members can be taken (%s): trying again", error)


def _prepare(sock: socket.socket, buffer_bytes: int) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setblocking(False)
