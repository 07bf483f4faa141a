"""Who may be connected to the API, and for how long without a request: values in, decisions out.

There is room for `clients` connections, and for half as many from one address that is not this machine's (a proxy has
one address for all who come through it). Where there is no room, the connection goes that has waited longest for a
request of its client, of the address that has most of these: whoever opens connections and says nothing pushes out
its own. Connections whose request is being answered stay; if there are no others, a newcomer is refused.
"""

import ipaddress
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Generic, TypeVar

C = TypeVar("C")

THIS_MACHINE: Final = "this machine"


@dataclass(frozen=True, slots=True)
class Admission(Generic[C]):
    """Whether a newcomer may come in, and who has to go for it."""

    admitted: bool
    leaves: C | None = None


@lru_cache(maxsize=1024)
def origin_of(host: str) -> str:
    """Whose connections count together: one IPv4 address, one IPv6 network of 64 bits, this machine.

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


class Doors(Generic[C]):
    """The connections there are, by the origin of each, and which of them wait for a request and since when."""

    def __init__(self, clients: int) -> None:
        self.clients = clients
        self.refused = 0
        """How many newcomers there was no room for."""
        self.pushed_out = 0
        """How many connections without a request had to go for others."""
        self._origins: dict[C, str] = {}
        self._counts: dict[str, int] = {}
        self._waiting: dict[str, OrderedDict[C, float]] = {}

    def __len__(self) -> int:
        return len(self._origins)

    def __iter__(self) -> Iterator[C]:
        return iter(self._origins)

    def admit(self, origin: str) -> Admission[C]:
        """Whether one more from `origin` may come in; the connection that leaves for it is struck off here."""
        most = self.clients if origin == THIS_MACHINE else max(1, self.clients // 2)
        leaves: C | None = None
        if self._counts.get(origin, 0) >= most:
            leaves = self._longest_waiting(origin)
        elif len(self._origins) >= self.clients:
            busiest = max(self._waiting, key=lambda one: len(self._waiting[one]), default=None)
            leaves = None if busiest is None else self._longest_waiting(busiest)
        else:
            return Admission(True)
        if leaves is None:
            self.refused += 1
            return Admission(False)
        self.pushed_out += 1
        self.leave(leaves)
        return Admission(True, leaves)

    def enter(self, one: C, origin: str, now_s: float) -> None:
        """A connection begins; it waits for a request from now on."""
        self._origins[one] = origin
        self._counts[origin] = self._counts.get(origin, 0) + 1
        self.waits(one, now_s)

    def waits(self, one: C, now_s: float) -> None:
        """A connection waits for its client's next request from now on."""
        origin = self._origins.get(one)
        if origin is not None:
            waiting = self._waiting.setdefault(origin, OrderedDict())
            waiting[one] = now_s
            waiting.move_to_end(one)

    def asks(self, one: C) -> None:
        """The head of a request has arrived."""
        origin = self._origins.get(one)
        if origin is not None and (waiting := self._waiting.get(origin)) is not None:
            waiting.pop(one, None)
            if not waiting:
                del self._waiting[origin]

    def leave(self, one: C) -> None:
        """A connection is over, or will be at once."""
        self.asks(one)
        origin = self._origins.pop(one, None)
        if origin is not None:
            self._counts[origin] -= 1
            if not self._counts[origin]:
                del self._counts[origin]

    def overdue(self, before_s: float) -> Iterator[C]:
        """Those that have waited for a request since `before_s` or longer."""
        for waiting in list(self._waiting.values()):
            for one, since_s in list(waiting.items()):
                if since_s > before_s:
                    break
                yield one

    def _longest_waiting(self, origin: str) -> C | None:
        return next(iter(self._waiting.get(origin, ())), None)
