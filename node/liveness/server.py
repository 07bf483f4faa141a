"""The heartbeat port, and the connections that members have made to it."""

import errno
import selectors
import socket
from typing import Final

from node.liveness.link import Credentials, Link, LinkOwner
from node.runtime.dns import look_up

UNKNOWN_S: Final = 3.0
"""A connection is closed if its other side has not proved within this time that it is a member."""

IDLE_S: Final = 30.0
"""A member's connection is closed after this long without a message; the member connects again when it sends one."""

ALIVE_S: Final = 1.0
"""A connection that is silent for longer may be dead, as a live member sends a heartbeat every quarter of a second."""

CONNECTIONS_MAX: Final = 256

_CROWDED: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class PortInUseError(Exception):
    """The node cannot listen on its heartbeat port."""


class HeartbeatServer:
    """Listens on `host` and `port` (0: the kernel chooses; see `port`) from its construction. `owner` is called back.

    Raises PortInUseError.
    """

    def __init__(
        self, host: str, port: int, selector: selectors.BaseSelector, credentials: Credentials, owner: LinkOwner
    ) -> None:
        self._selector, self._credentials, self._owner = selector, credentials, owner
        self._listener = _listen(host, port)
        self.port: int = self._listener.getsockname()[1]
        self._links: list[Link] = []
        self._now_s = 0.0
        self._listening = False

    def tick(self, now_s: float) -> None:
        """Close unknown and idle connections. To be called about four times a second."""
        self._now_s = now_s
        if not self._listening:
            self._selector.register(self._listener, selectors.EVENT_READ, lambda _: self._accept())
            self._listening = True
        for link in list(self._links):
            unknown = link.member is None and now_s - link.since_s >= UNKNOWN_S
            if unknown or now_s - max(link.since_s, link.heard_s) >= IDLE_S:
                link.part()

    def is_of(self, link: Link, member: str) -> bool:
        """Whether the connection belongs to that member. A member's newest connection replaces its earlier ones.

        But if an earlier connection, of another start of the member, sent a message a moment ago, two processes use the
        member's name; then the newer connection is refused.
        """
        if link.member is None:
            others = [other for other in self._links if other.member == member and other is not link]
            there = [other for other in others if other.start != link.start]
            if any(self._now_s - other.heard_s < ALIVE_S for other in there):
                where = there[0].address
                self._owner.refused(link.address, f"another process runs as {member}, at {where}, and was there first")
                link.part()
                return False
            link.member = member
            for other in others:
                other.part()
        return link.member == member

    def ended(self, link: Link) -> None:
        """Forget a closed connection, if it was made to this port."""
        if link in self._links:
            self._links.remove(link)

    def close(self) -> None:
        """Close all connections, with a goodbye, and stop listening."""
        for link in list(self._links):
            link.part()
        self._listener.close()

    def _accept(self) -> None:
        """Accept one connection. Without a free descriptor, close an unknown connection or pause till `tick`."""
        try:
            sock, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno in _CROWDED and (unknown := self._unknown()):
                unknown[0].part()
                return
            self._owner.refused("anybody", f"{error}; retrying")
            self._selector.unregister(self._listener)
            self._listening = False
            return
        if len(self._links) >= CONNECTIONS_MAX:
            (self._unknown() or self._links)[0].part()
        link = Link(sock, self._selector, self._credentials, self._owner, dialled=False)
        link.since_s = self._now_s
        self._links.append(link)

    def _unknown(self) -> list[Link]:
        """Return the connections whose other side has not yet proved to be a member, oldest first."""
        return [link for link in self._links if link.member is None]


def _listen(host: str, port: int) -> socket.socket:
    try:
        address = look_up(host)
        if address is None:
            raise OSError(f"{host} has no address")
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.create_server((address, port), family=family, backlog=128)
    except OSError as error:
        raise PortInUseError(
            f"cannot listen for heartbeats on {host}:{port}: {error}. Is this node running already? "
            "Otherwise set another port or address."
        ) from error
    listener.setblocking(False)
    return listener
