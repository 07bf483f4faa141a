"""Non-blocking DNS for Raft's and the heartbeat thread: a slow resolver must not cost a leadership or a lease."""

import ipaddress
import socket
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

FRESH_S: Final = 1.0
"""An address older than this is looked up again when it is used: a restarted container may have another one."""

UNANSWERED_S: Final = 2.0
"""A look-up without an answer for this long does not prevent another one of the same name."""

Resolve = Callable[[str], str | None]


def look_up(host: str, ask: Callable[..., list[Any]] = socket.getaddrinfo) -> str | None:
    """The address of a name, IPv4 if it has one; None if it has none. Blocks."""
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
        """The last known address of a host; None if there is none yet. Never blocks."""
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
