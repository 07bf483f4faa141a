"""Decides which clients may connect to the API, which connections were idle for too long, and how much memory strangers
may hold. Pure.

There is room for `clients` connections, and for half as many from one remote address (a proxy's clients share its
address). This machine's own addresses may use all of it. When there is no room, the address with most idle connections
loses the one that has been idle for longest: an address that opens connections and sends nothing loses its own.
Connections whose request is being answered are kept; if there are no others, the new one is refused.

Strangers are connections whose sender is not authenticated yet. All of them together hold `HELD_BYTES` of memory at
most. Beyond that, the connections that hold most are closed; among those of about the same size, the oldest. So a small
request that arrives at once, as from a client or a browser, is let in whatever the others send.
"""

import ipaddress
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Generic, TypeVar

C = TypeVar("C")
THIS_MACHINE: Final = "this machine"
HELD_BYTES: Final = 16 * 1024 * 1024
"""The most memory that all strangers may hold together: heads, bodies and answers that they do not read.

A client's request holds about 4 KiB until its sender is authenticated: all `CLIENTS_MAX` may send one at once.
"""

SMALL_BYTES: Final = 16 * 1024
"""Connections that hold less count as equally large. A browser's request with its cookies holds 4 to 10 KiB."""


@dataclass(frozen=True, slots=True)
class Admission(Generic[C]):
    """Whether a new connection is admitted, and the idle one that is closed for it."""

    admitted: bool
    evicted: C | None = None


@lru_cache(maxsize=1024)
def origin_of(host: str) -> str:
    """Return the origin of a host, whose connections count together: an IPv4 address, an IPv6 /64, or this machine.

    >>> origin_of("10.0.0.7"), origin_of("2001:db8::1"), origin_of("::ffff:127.0.0.1")
    ('10.0.0.7', '2001:db8::/64', 'this machine')
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            network = ipaddress.ip_network((address, 64), strict=False)
            return THIS_MACHINE if address.is_loopback else str(network)
        address = address.ipv4_mapped
    return THIS_MACHINE if address.is_loopback else str(address)


class ConnectionLimits(Generic[C]):
    """The open connections by origin, and which of them are idle (wait for a request) since when.

    Times are in seconds of one monotonic clock.
    """

    def __init__(self, clients: int, held_bytes: int = HELD_BYTES) -> None:
        self.clients = clients
        self._most_held_bytes = held_bytes
        self._held_bytes = 0
        self._held: dict[C, int] = {}
        self._by_size: dict[int, dict[C, None]] = {}
        self.refused = 0
        """How many new connections were refused."""
        self.evicted = 0
        """How many connections were closed for others."""
        self._origins: dict[C, str] = {}
        self._counts: dict[str, int] = {}
        self._idle: dict[str, OrderedDict[C, float]] = {}

    def __len__(self) -> int:
        return len(self._origins)

    def __iter__(self) -> Iterator[C]:
        return iter(self._origins)

    def admit(self, origin: str) -> Admission[C]:
        """Decide whether to admit one more connection from `origin`. Stops counting the one that is evicted for it."""
        most = self.clients if origin == THIS_MACHINE else max(1, self.clients // 2)
        evicted: C | None = None
        if self._counts.get(origin, 0) >= most:
            evicted = self._longest_idle(origin)
        elif len(self._origins) >= self.clients:
            busiest = max(self._idle, key=lambda one: len(self._idle[one]), default=None)
            evicted = None if busiest is None else self._longest_idle(busiest)
        else:
            return Admission(True)
        if evicted is None:
            self.refused += 1
            return Admission(False)
        self.evicted += 1
        self.remove(evicted)
        return Admission(True, evicted)

    def add(self, connection: C, origin: str, now_s: float) -> None:
        """Count a new connection, which is idle from now on."""
        self._origins[connection] = origin
        self._counts[origin] = self._counts.get(origin, 0) + 1
        self.mark_idle(connection, now_s)

    def mark_idle(self, connection: C, now_s: float) -> None:
        """Note that a connection waits for its client's next request from now on."""
        origin = self._origins.get(connection)
        if origin is not None:
            idle = self._idle.setdefault(origin, OrderedDict())
            idle[connection] = now_s
            idle.move_to_end(connection)

    def mark_busy(self, connection: C) -> None:
        """Keep a connection, whatever it holds, until its request is answered: the sender is authenticated."""
        self.release(connection)
        self._end_idleness(connection)

    def remove(self, connection: C) -> None:
        """Stop counting a connection, which has ended or is about to end."""
        self.release(connection)
        self._end_idleness(connection)
        origin = self._origins.pop(connection, None)
        if origin is not None:
            self._counts[origin] -= 1
            if not self._counts[origin]:
                del self._counts[origin]

    def hold(self, connection: C, held_bytes: int) -> list[C]:
        """Note how much a stranger's connection holds. Returns the ones to close, which are no longer counted here.

        >>> limits: ConnectionLimits[str] = ConnectionLimits(9, held_bytes=100_000)
        >>> [limits.hold(name, size) for name, size in (("a", 9_000), ("b", 70_000), ("c", 9_000), ("d", 20_000))]
        [[], [], [], ['b']]
        """
        before = self._held.get(connection)
        if before is None or _size_class(before) != _size_class(held_bytes):
            self.release(connection)
            self._by_size.setdefault(_size_class(held_bytes), {})[connection] = None
            before = 0
        self._held[connection] = held_bytes
        self._held_bytes += held_bytes - before
        closed: list[C] = []
        while self._held_bytes > self._most_held_bytes:
            largest = self._by_size[max(self._by_size)]
            closed.append(next(iter(largest)))
            self.evicted += 1
            self.remove(closed[-1])
        return closed

    def release(self, connection: C) -> None:
        """Note that a connection holds nothing: its request was answered, or its sender is authenticated."""
        held_bytes = self._held.pop(connection, None)
        if held_bytes is not None:
            self._held_bytes -= held_bytes
            of_size = self._by_size[_size_class(held_bytes)]
            del of_size[connection]
            if not of_size:
                del self._by_size[_size_class(held_bytes)]

    def idle_since(self, since_s: float) -> Iterator[C]:
        """Yield the connections that have been idle since `since_s` or longer."""
        for idle in list(self._idle.values()):
            for connection, idle_s in list(idle.items()):
                if idle_s > since_s:
                    break
                yield connection

    def _longest_idle(self, origin: str) -> C | None:
        return next(iter(self._idle.get(origin, ())), None)

    def _end_idleness(self, connection: C) -> None:
        origin = self._origins.get(connection)
        if origin is not None and (idle := self._idle.get(origin)) is not None:
            idle.pop(connection, None)
            if not idle:
                del self._idle[origin]


def _size_class(held_bytes: int) -> int:
    """Return 0 for less than `SMALL_BYTES`, and one more for each doubling."""
    return (held_bytes // SMALL_BYTES).bit_length()
