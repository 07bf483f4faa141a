"""Those who call: the heartbeat port, and the connections that members have made to it."""

import errno
import selectors
import socket
from typing import Final

from node.liveness.link import Link, Owner, Passport
from node.runtime.dns import look_up

STRANGER_S: Final = 3.0
"""A caller that has not shown by then that it is a member is hung up on."""

IDLE_S: Final = 30.0
"""A member's connection that has been silent for so long is closed; it dials again when it has something to say."""

ALIVE_S: Final = 1.0
"""A member that lives says something every quarter of a second."""

CALLERS_MAX: Final = 256

_CROWDED: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class PortInUseError(Exception):
    """The heartbeat port cannot be listened on."""


class Callers:
    """Listens on `host` and `port` (0: the kernel chooses; see `port`), from the start. Links go to `owner`.

    Raises PortInUseError.
    """

    def __init__(
        self, host: str, port: int, selector: selectors.BaseSelector, passport: Passport, owner: Owner
    ) -> None:
        self._selector, self._passport, self._owner = selector, passport, owner
        self._listener = _listen(host, port)
        self.port: int = self._listener.getsockname()[1]
        self._links: list[Link] = []
        self._now_s = 0.0
        self._hears = False

    def tick(self, now_s: float) -> None:
        """Hang up on strangers and on the idle. To be called about four times a second."""
        self._now_s = now_s
        if not self._hears:
            self._selector.register(self._listener, selectors.EVENT_READ, lambda _: self._accept())
            self._hears = True
        for link in list(self._links):
            stranger = link.member is None and now_s - link.since_s >= STRANGER_S
            if stranger or now_s - max(link.since_s, link.heard_s) >= IDLE_S:
                link.part()

    def is_of(self, link: Link, member: str) -> bool:
        """Whether the connection is that member's. A member's newest call takes the place of its earlier ones.

        But not of those of another start of the member that was heard a moment ago: then two processes have its name.
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
        """A connection is closed; it need not be one of these."""
        if link in self._links:
            self._links.remove(link)

    def close(self) -> None:
        """Hang up on everybody, with a goodbye, and listen no more."""
        for link in list(self._links):
            link.part()
        self._listener.close()

    def _accept(self) -> None:
        """One caller. If there is no room for it, a stranger gives way; without one, calls wait for the next tick."""
        try:
            sock, _ = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            if error.errno in _CROWDED and (strangers := self._strangers()):
                strangers[0].part()
                return
            self._owner.refused("anybody", f"{error}; trying again")
            self._selector.unregister(self._listener)
            self._hears = False
            return
        if len(self._links) >= CALLERS_MAX:
            (self._strangers() or self._links)[0].part()
        link = Link(sock, self._selector, self._passport, self._owner, dialled=False)
        link.since_s = self._now_s
        self._links.append(link)

    def _strangers(self) -> list[Link]:
        """The oldest first: a member shows soon that it is one."""
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
