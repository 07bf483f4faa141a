"""Non-blocking DNS for Raft's and the heartbeats' threads, so that a slow resolver costs no leadership and no lease."""

import ipaddress
import socket
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

FRESH_S: Final = 1.0
"""An address older than this is looked up again on use, because a restarted container may have another address."""

UNANSWERED_S: Final = 2.0
"""After this time, a look-up that is still open no longer prevents another look-up of the same name."""

Resolve = Callable[[str], str | None]


def look_up(host: str, ask: Callable[..., list[Any]] = socket.getaddrinfo) -> str | None:
    """Return the address of a host name, IPv4 if there is one; None if the name has no address. Blocks."""
    try:
        found = ask(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return None
    found.sort(key=lambda each: each[0] != socket.AF_INET)
    return str(found[0][4][0]) if found else None


class Resolver:
    """Caches the addresses of names, and refreshes them in the background. Any thread may use it.

    `on_found` is called, in another thread, when a look-up has ended.
    """

    def __init__(
        self,
        on_found: Callable[[], None] = lambda: None,
        fresh_s: float = FRESH_S,
        resolve: Resolve = look_up,
        unanswered_s: float = UNANSWERED_S,
    ) -> None:
        self._on_found = on_found
        self._fresh_s = fresh_s
        self._unanswered_s = unanswered_s
        self._resolve = resolve
        self._known: dict[str, tuple[float, str | None]] = {}
        self._asking: dict[str, float] = {}
        self._lock = threading.Lock()

    def address(self, host: str) -> str | None:
        """Return the last known address of a host; None if no address is known yet. Never blocks."""
        try:
            return str(ipaddress.ip_address(host))
        except ValueError:
            pass
        with self._lock:
            asked_at, address = self._known.get(host, (float("-inf"), None))
            now = monotonic()
            if now - asked_at > self._fresh_s and now - self._asking.get(host, float("-inf")) > self._unanswered_s:
                self._asking[host] = now
                threading.Thread(target=self._ask, args=(host,), name=f"resolve {host}", daemon=True).start()
        return address

    def _ask(self, host: str) -> None:
        address = self._resolve(host)
        with self._lock:
            self._known[host] = (monotonic(), address or self._known.get(host, (0.0, None))[1])
            self._asking.pop(host, None)
        self._on_found()
