"""Where clients come in: the listening sockets, and the connections that are accepted from them.

asyncio's own server accepts without a limit; where the process has no descriptors left, it writes a line with a
traceback for each try, a hundred at a time, and tries again all the more often.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from aiohttp import web

from node.http.connection import ClientConnection, Patience
from node.http.connection_limits import Doors, origin_of

BACKLOG: Final = 4_096
"""Connections that wait to be accepted (the kernel's `net.core.somaxconn` at most). What finds the queue full tries
again after a second or three: a client that asks would be among those.
"""

AT_ONCE: Final = 64
"""Connections accepted before others have their turn on the loop."""

PAUSE_S: Final = 0.5
"""Until the next try, where a connection could not be accepted: no descriptors, or no memory."""

LOOK_S: Final = 1.0
"""Between two looks for connections that have waited for too long."""

TELL_S: Final = 30.0
"""Between two lines of the log that say that there is no room."""

_log = logging.getLogger("rota.http")


class Listening(web.BaseSite):
    """Serves `runner` on the addresses of a host (port 0: one that the kernel gives), to `clients` at once."""

    __slots__ = (
        "_accepting",
        "_bear",
        "_doors",
        "_host",
        "_options",
        "_patience",
        "_port",
        "_sockets",
        "_sweeping",
        "_tell_at_s",
        "_told_refused",
    )

    def __init__(
        self,
        runner: web.BaseRunner,
        host: str,
        port: int,
        doors: Doors[ClientConnection],
        patience: Patience,
        bear: Callable[[], Mapping[str, str]],
    ) -> None:
        super().__init__(runner)
        self._host = host
        self._port = port
        self._doors = doors
        self._patience = patience
        self._bear = bear
        self._sockets: list[socket.socket] = []
        self._accepting: set[asyncio.Task[None]] = set()
        self._sweeping: asyncio.TimerHandle | None = None
        self._told_refused = 0
        self._tell_at_s = 0.0

    @property
    def name(self) -> str:
        """Where it serves."""
        return f"http://{self._host}:{self.port}"

    @property
    def port(self) -> int:
        """The port, once it listens."""
        return int(self._sockets[0].getsockname()[1]) if self._sockets else self._port

    async def start(self) -> None:
        """Listen. Raises `OSError`."""
        await super().start()
        loop = asyncio.get_running_loop()
        self._sockets = _listening(self._host, self._port)
        for sock in self._sockets:
            loop.add_reader(sock.fileno(), self._accept, sock)
        self._sweeping = loop.call_later(LOOK_S, self._sweep)

    async def stop(self) -> None:
        """Listen no more. Connections that are open are the runner's to close."""
        await super().stop()
        loop = asyncio.get_running_loop()
        if self._sweeping is not None:
            self._sweeping.cancel()
        for sock in self._sockets:
            loop.remove_reader(sock.fileno())
            sock.close()
        self._sockets.clear()

    # -- accepting

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(listening, error)
                return
            origin = origin_of(address[0])
            admission = self._doors.admit(origin)
            if admission.leaves is not None:
                admission.leaves.abort()
            if not admission.admitted:
                sock.close()
                continue
            sock.setblocking(False)
            task = asyncio.get_running_loop().create_task(self._take(sock, origin))
            self._accepting.add(task)
            task.add_done_callback(self._accepting.discard)

    async def _take(self, sock: socket.socket, origin: str) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(partial(self._connection, origin), sock)
        except OSError as error:
            sock.close()
            _log.warning("a client's connection could not be taken: %s", error)

    def _connection(self, origin: str) -> ClientConnection:
        server = self._runner.server
        assert server is not None
        return ClientConnection(
            server,
            self._doors,
            origin,
            self._patience,
            self._bear,
            loop=asyncio.get_running_loop(),
            access_log=None,
        )

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        """Leave new connections in the kernel's queue for a while: asked again at once, it would say the same."""
        loop = asyncio.get_running_loop()
        _log.error("no connection can be accepted (%s); trying again every %g s", error.strerror, PAUSE_S)
        loop.remove_reader(listening.fileno())
        loop.call_later(PAUSE_S, self._resume, listening)

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            asyncio.get_running_loop().add_reader(listening.fileno(), self._accept, listening)

    # -- deadlines

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweeping = loop.call_later(LOOK_S, self._sweep)
        now_s = loop.time()
        for connection in list(self._doors.overdue(now_s - self._patience.request_s)):
            connection.abort()
        for connection in list(self._doors):
            if not connection.closing:
                continue
            if connection.closing_since_s is None:
                connection.closing_since_s = now_s
            elif now_s - connection.closing_since_s > self._patience.closing_s:
                connection.abort()
        turned_away = self._doors.refused + self._doors.pushed_out
        if turned_away > self._told_refused and now_s >= self._tell_at_s:
            self._tell_at_s = now_s + TELL_S
            _log.warning(
                "%d clients are connected, and there is room for %d: %d connections have been closed for others "
                "so far, those without a request first",
                len(self._doors),
                self._doors.clients,
                turned_away,
            )
            self._told_refused = turned_away


def _listening(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on every address of a host, all on one port. Raises `OSError`."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    made: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            sock = socket.socket(family, socket.SOCK_STREAM)
            made.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            given = made[0].getsockname()[1] if port == 0 and len(made) > 1 else address[1]
            sock.bind((address[0], given, *address[2:]))
            sock.listen(BACKLOG)
            sock.setblocking(False)
    except OSError:
        for sock in made:
            sock.close()
        raise
    return made
