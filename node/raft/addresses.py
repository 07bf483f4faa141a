"""Where the members are. Names are looked up in a thread of their own: a slow resolver must not unseat a leader."""

import ipaddress
import socket
import threading
from collections.abc import Callable
from time import monotonic

from pysyncobj import node as library

PATIENCE_S = 2.0
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
    """Remembers what names resolved to, and refreshes it in the background.

    `address` never blocks: it answers with what was known last, and None if that is nothing yet.
    """

    def __init__(self, fresh_s: float = 1.0, resolve: Resolve = look_up) -> None:
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


class Book:
    """The members' addresses, by id. What the configuration says goes before what the log remembers."""

    def __init__(self, addresses: dict[str, tuple[str, int]], resolver: Resolver) -> None:
        self._addresses = dict(addresses)
        self.resolver = resolver

    def put(self, member: str, address: tuple[str, int]) -> None:
        """A member is somewhere else now."""
        self._addresses[member] = address

    def __getitem__(self, member: str) -> tuple[str, int]:
        return self._addresses[member]

    def node(self, text: str) -> "MemberNode":
        """The library's node for "id" or "id host port", as the log writes it."""
        member, *rest = text.split(" ")
        if rest and member not in self._addresses:
            self._addresses[member] = (rest[0], int(rest[1]))
        return MemberNode(member, self)

    def text(self, member: str) -> str:
        """A member as the log writes it: "id host port"."""
        host, port = self._addresses[member]
        return f"{member} {host} {port}"


class MemberNode(library.TCPNode):  # type: ignore[misc]  # the library ships no types
    """A member as the library sees it. Its id is the member's, so that its address may change."""

    def __init__(self, member: str, book: Book) -> None:
        library.Node.__init__(self, member)
        self._book = book

    @property
    def address(self) -> str:
        """What a connection says first, and what decides who dials whom: the id."""
        return str(self.id)

    @property
    def host(self) -> str:
        """The host of its Raft port."""
        return self._book[self.id][0]

    @property
    def port(self) -> int:
        """Its Raft port."""
        return self._book[self.id][1]

    @property
    def ip(self) -> str | None:
        """The address to dial now, if known."""
        return self._book.resolver.address(self.host)

    def __repr__(self) -> str:
        return f"MemberNode({self.id})"
