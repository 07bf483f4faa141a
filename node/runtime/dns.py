"""Addresses of hosts for threads that must not wait: a resolver that hangs must not unseat a leader or end a lease."""

import ipaddress
import socket
import threading
from collections.abc import Callable
from time import monotonic
from typing import Final

FRESH_S: Final = 1.0
"""An address is looked up again after so long, when it is asked for: a container may come back with another one."""

PATIENCE_S: Final = 2.0
"""A name is asked for again, beside a question that has had no answer for so long."""

Resolve = Callable[[str], str | None]


def look_up(host: str) -> str | None:
    """The address of a name, IPv4 if there is one; None if it has none. May take long."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    found.sort(key=lambda each: each[0] != socket.AF_INET)
    return str(found[0][4][0]) if found else None


class Resolver:
    """Remembers what names resolved to, and refreshes it in the background. For any thread.

    `address` never blocks: it answers with what was known last, and None if that is nothing yet. `on_found` is told, in
    a thread of its own, when an address may have become known.
    """

    def __init__(
        self, on_found: Callable[[], None] = lambda: None, fresh_s: float = FRESH_S, resolve: Resolve = look_up
    ) -> None:
        self._on_found = on_found
        self._fresh_s = fresh_s
        self._resolve = resolve
        self._known: dict[str, tuple[float, str | None]] = {}
        self._asking: dict[str, float] = {}
        self._lock = threading.Lock()

    def address(self, host: str) -> str | None:
        """The address to dial for a host now, or None if it is not known (yet)."""
        try:
            return str(ipaddress.ip_address(host))
        except ValueError:
            pass
        with self._lock:
            asked_at, address = self._known.get(host, (float("-inf"), None))
            now = monotonic()
            if now - asked_at > self._fresh_s and now - self._asking.get(host, float("-inf")) > PATIENCE_S:
                self._asking[host] = now
                threading.Thread(target=self._ask, args=(host,), name=f"resolve {host}", daemon=True).start()
        return address

    def _ask(self, host: str) -> None:
        address = self._resolve(host)
        with self._lock:
            self._known[host] = (monotonic(), address or self._known.get(host, (0.0, None))[1])
            self._asking.pop(host, None)
        self._on_found()
