"""Knocking at a member's heartbeat port: is anybody there? One connection attempt, never waited for."""

import errno
import selectors
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

WAIT_S: Final = 1.0
"""A knock that is not answered by then is no refusal."""


def connecting(address: str, port: int) -> tuple[socket.socket, int]:
    """Begins a connection without waiting: the socket, and the error number so far (EINPROGRESS mostly)."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    return sock, sock.connect_ex((address, port))


@dataclass(frozen=True, slots=True)
class _Knock:
    socket: socket.socket
    since_s: float
    answer: Callable[[bool], None]


class Knocker:
    """Knocks at ports, with a selector that somebody else waits on."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._open: list[_Knock] = []

    def knock(self, address: str, port: int, now_s: float, answer: Callable[[bool], None]) -> None:
        """`answer(True)` is called if the connection is refused, `answer(False)` if anything else becomes of it."""
        try:
            sock, code = connecting(address, port)
        except OSError:
            answer(False)
            return
        if code != errno.EINPROGRESS:
            sock.close()
            answer(code == errno.ECONNREFUSED)
            return
        knock = _Knock(sock, now_s, answer)
        self._open.append(knock)
        self._selector.register(sock, selectors.EVENT_WRITE, lambda _: self._decided(knock))

    def tick(self, now_s: float) -> None:
        """Gives up those that wait for too long."""
        for knock in [knock for knock in self._open if now_s - knock.since_s >= WAIT_S]:
            self._close(knock, refused=False)

    def close(self) -> None:
        """Forgets all of them, without an answer."""
        for knock in self._open:
            self._selector.unregister(knock.socket)
            knock.socket.close()
        self._open = []

    def _decided(self, knock: _Knock) -> None:
        code = knock.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        self._close(knock, refused=code == errno.ECONNREFUSED)

    def _close(self, knock: _Knock, *, refused: bool) -> None:
        self._open.remove(knock)
        self._selector.unregister(knock.socket)
        knock.socket.close()
        knock.answer(refused)
