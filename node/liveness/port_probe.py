"""Probes whether a process listens on a member's heartbeat port: one connection attempt, without waiting."""

import errno
import selectors
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

WAIT_S: Final = 1.0
"""A probe without an answer after this time counts as not refused."""


def connecting(address: str, port: int) -> tuple[socket.socket, int]:
    """Begin to connect without waiting. Returns the socket and the error number so far, mostly EINPROGRESS."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    return sock, sock.connect_ex((address, port))


@dataclass(frozen=True, slots=True)
class _PortProbe:
    socket: socket.socket
    since_s: float
    answer: Callable[[bool], None]


class PortProber:
    """Probes ports with a selector that its owner waits on."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self._selector = selector
        self._open: list[_PortProbe] = []

    def probe(self, address: str, port: int, now_s: float, answer: Callable[[bool], None]) -> None:
        """Call `answer(True)` once the connection is refused, `answer(False)` on any other outcome."""
        try:
            sock, code = connecting(address, port)
        except OSError:
            answer(False)
            return
        if code != errno.EINPROGRESS:
            sock.close()
            answer(code == errno.ECONNREFUSED)
            return
        probe = _PortProbe(sock, now_s, answer)
        self._open.append(probe)
        self._selector.register(sock, selectors.EVENT_WRITE, lambda _: self._decided(probe))

    def tick(self, now_s: float) -> None:
        """Give up the probes that have waited for `WAIT_S`."""
        for probe in [probe for probe in self._open if now_s - probe.since_s >= WAIT_S]:
            self._close(probe, refused=False)

    def close(self) -> None:
        """Drop all probes, without an answer."""
        for probe in self._open:
            self._selector.unregister(probe.socket)
            probe.socket.close()
        self._open = []

    def _decided(self, probe: _PortProbe) -> None:
        code = probe.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        self._close(probe, refused=code == errno.ECONNREFUSED)

    def _close(self, probe: _PortProbe, *, refused: bool) -> None:
        self._open.remove(probe)
        self._selector.unregister(probe.socket)
        probe.socket.close()
        probe.answer(refused)
