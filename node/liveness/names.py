"""Addresses of hosts, without ever waiting: looked up in other threads, kept briefly, the last good one for long."""

import ipaddress
import logging
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

KEEP_S = 5.0
"""An address is looked up again after this long: a container may come back with another one."""

_log = logging.getLogger(__name__)


@dataclass
class _Known:
    address: str | None = None
    asked_s: float = float("-inf")
    asking: bool = False


class Names:
    """Resolves host names for a thread that must not wait.

    A resolver that hangs holds up one thread a host, and nobody else. `found` is called, in such a thread, when
    a look-up has ended.
    """

    def __init__(self, found: Callable[[], None]) -> None:
        self._found = found
        self._known: dict[str, _Known] = {}

    def address(self, host: str) -> str | None:
        """The host's address as last known, at once; None if none was ever found. Starts a look-up if it is time."""
        if _is_address(host):
            return host
        known = self._known.setdefault(host, _Known())
        if not known.asking and time.monotonic() - known.asked_s >= KEEP_S:
            known.asking, known.asked_s = True, time.monotonic()
            threading.Thread(target=self._ask, args=(host, known), name=f"rota-name-{host}", daemon=True).start()
        return known.address

    def _ask(self, host: str, known: _Known) -> None:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            known.address = str(found[0][4][0])
        except OSError as error:
            _log.debug("no address for %s now: %s", host, error)
        finally:
            known.asking = False
        self._found()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
