"""The listening sockets of the API, and the connections that are accepted from them.

asyncio's own server accepts without a limit. Once the process has no descriptors left, it logs a traceback for each
failed accept, a hundred at a time, and retries more often.
"""

import asyncio
import ctypes
import logging
import socket
from functools import partial
from random import Random
from typing import Final

from aiohttp import web

from node.http.door.connection import ClientConnection, ConnectionTimeouts
from node.http.door.connection_limits import ConnectionLimits, origin_of
from node.runtime.aligned import to_grid

BACKLOG: Final = 4_096
"""How many connections may wait to be accepted (the kernel's `net.core.somaxconn` at most).

A client that finds the queue full retries after one to three seconds.
"""

AT_ONCE: Final = 64
"""How many connections are accepted before the event loop runs something else."""

PAUSE_S: Final = 0.5
"""Seconds until the next try after an accept failed because descriptors or memory had run out."""

SWEEP_S: Final = 1.0
"""Seconds between two sweeps, which close connections past their deadlines."""

CROWD: Final = 256
"""The number of closed connections after which the memory that they took is given back to the system."""

WARN_S: Final = 30.0
"""Seconds between two log lines about connections that were refused or closed for others."""

_log = logging.getLogger("rota.http")


class Listener(web.BaseSite):
    """Serves `runner` on the addresses of a host (port 0: chosen by the kernel), to as many clients as `limits` admits.

    `rng` draws the delays of answers to bytes that are not HTTP.
    """

    __slots__ = (
        "_accepting",
        "_crowd",
        "_host",
        "_limits",
        "_next_warning_s",
        "_options",
        "_port",
        "_rng",
        "_sockets",
        "_sweeping",
        "_timeouts",
        "_warned_count",
    )

    def __init__(
        self,
        runner: web.BaseRunner,
        host: str,
        port: int,
        limits: ConnectionLimits[ClientConnection],
        timeouts: ConnectionTimeouts,
        rng: Random | None = None,
    ) -> None:
        super().__init__(runner)
        self._host = host
        self._port = port
        self._limits = limits
        self._timeouts = timeouts
        self._rng = rng or Random()
        self._sockets: list[socket.socket] = []
        self._accepting: set[asyncio.Task[None]] = set()
        self._sweeping: asyncio.TimerHandle | None = None
        self._crowd = 0
        self._warned_count = 0
        self._next_warning_s = 0.0

    @property
    def name(self) -> str:
        """Its URL."""
        return f"http://{self._host}:{self.port}"

    @property
    def port(self) -> int:
        """The port; if it was 0, the one that the kernel chose, once `start` has returned."""
        return int(self._sockets[0].getsockname()[1]) if self._sockets else self._port

    async def start(self) -> None:
        """Listen. Raises `OSError`."""
        await super().start()
        loop = asyncio.get_running_loop()
        self._sockets = _listening_sockets(self._host, self._port)
        for sock in self._sockets:
            loop.add_reader(sock.fileno(), self._accept, sock)
        self._sweeping = loop.call_later(to_grid(SWEEP_S, loop.time()), self._sweep)

    async def stop(self) -> None:
        """Stop listening. The runner closes the open connections."""
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
            admission = self._limits.admit(origin)
            if admission.evicted is not None:
                admission.evicted.abort()
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
            _log.warning("an accepted connection could not be set up: %s", error)

    def _connection(self, origin: str) -> ClientConnection:
        server = self._runner.server
        assert server is not None
        return ClientConnection(
            server,
            self._limits,
            origin,
            self._timeouts,
            self._rng,
            loop=asyncio.get_running_loop(),
            access_log=None,
        )

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        """Leave new connections in the kernel's queue for a while: an accept that is retried at once fails again."""
        loop = asyncio.get_running_loop()
        _log.error("no connection can be accepted (%s); retrying every %g s", error.strerror, PAUSE_S)
        loop.remove_reader(listening.fileno())
        loop.call_later(PAUSE_S, self._resume, listening)

    def _resume(self, listening: socket.socket) -> None:
        if listening in self._sockets:
            asyncio.get_running_loop().add_reader(listening.fileno(), self._accept, listening)

    # -- deadlines

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        self._sweeping = loop.call_later(to_grid(SWEEP_S, now_s), self._sweep)
        for connection in list(self._limits.idle_since(now_s - self._timeouts.request_s)):
            connection.abort()
        for connection in list(self._limits):
            if not connection.closing:
                continue
            if connection.closing_since_s is None:
                connection.closing_since_s = now_s
            elif now_s - connection.closing_since_s > self._timeouts.closing_s:
                connection.abort()
        self._crowd = max(self._crowd, len(self._limits))
        if len(self._limits) <= self._crowd - CROWD:
            self._crowd = len(self._limits)
            loop.run_in_executor(None, _give_memory_back)
        turned_away = self._limits.refused + self._limits.evicted
        if turned_away > self._warned_count and now_s >= self._next_warning_s:
            self._next_warning_s = now_s + WARN_S
            _log.warning(
                "%d of at most %d clients are connected; %d connections have been refused or closed for others so far, "
                "idle ones first",
                len(self._limits),
                self._limits.clients,
                turned_away,
            )
            self._warned_count = turned_away


def _listening_sockets(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on every address of a host, on the same port. Raises `OSError`."""
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


def _give_memory_back() -> None:
    """Have the C library return to the system the freed memory that it keeps for later allocations.

    Takes milliseconds. Does nothing if the C library is not glibc.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))
