"""The bootstraps that a member knows: its own, and the announced ones of others. Used on the event loop.

A bootstrap is a member's fetching of the finished runs that it lacks (`node.history.gap_filler`).

The board is not replicated. A member announces its bootstrap to the others while it fetches, once a second at most, and
at the end. In a cluster in which no member lacks runs, there are no messages and no timers.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from time import monotonic
from typing import Final, NamedTuple, Protocol

from node.peer.bootstrap import Bootstrap
from node.peer.protocol import PeerAway
from node.state.value import State

_log = logging.getLogger("rota.history")

TELL_S: Final = 1.0
"""Seconds between two announcements."""

TELL_TIMEOUT_S: Final = 2.0

STALE_S: Final = 150.0
"""An unfinished bootstrap that was announced longer ago is not shown. Its member would announce it at least every
minute (`node.history.gap_filler.ROUND_S_MAX`), so the member has ended or is unreachable."""


class Heard(NamedTuple):
    """A bootstrap that another member announced at `at_s` on this member's monotonic clock."""

    at_s: float
    bootstrap: Bootstrap


class BootstrapListener(Protocol):
    """The part of `node.peer.client.PeerClient` that is used here."""

    async def tell_bootstrap(self, member: str, bootstrap: Bootstrap, timeout_s: float, /) -> None:
        """Announce this member's bootstrap to `member`. Raises `PeerAway`."""


class BootstrapBoard:
    """The latest bootstrap of each member, as far as `me` knows."""

    def __init__(self, me: str, clock: Callable[[], float] = monotonic) -> None:
        self._me = me
        self._clock = clock
        self._heard: dict[str, Heard] = {}
        self._changed = asyncio.Event()
        self.own: Bootstrap | None = None

    def publish(self, bootstrap: Bootstrap) -> None:
        """Set this member's bootstrap, and have it announced."""
        self.own = bootstrap
        self._changed.set()

    def hear(self, bootstrap: Bootstrap) -> None:
        """Note the bootstrap that another member has announced."""
        if bootstrap.member != self._me:
            self._heard[bootstrap.member] = Heard(self._clock(), bootstrap)

    def known(self, state: State) -> dict[str, Bootstrap]:
        """Return the latest known bootstraps, by member."""
        found = current(self._heard, state, self._clock())
        return found if self.own is None else {**found, self._me: self.own}

    async def announce(
        self,
        listeners: BootstrapListener,
        state: Callable[[], State],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Announce each published bootstrap to the other members, at most once in `TELL_S`. Run until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            own, members = self.own, state().members.values()
            assert own is not None
            others = [member.id for member in members if member.id != self._me and member.status != "down"]
            await asyncio.gather(*(_tell(listeners, other, own) for other in others))
            await sleep(TELL_S)


def current(heard: Mapping[str, Heard], state: State, now_s: float) -> dict[str, Bootstrap]:
    """Return the bootstraps in `heard` that are of members in `state`, and not out of date at `now_s`."""
    return {
        member: bootstrap
        for member, (at_s, bootstrap) in heard.items()
        if member in state.members
        and (bootstrap.finished_us is not None or (now_s - at_s < STALE_S and state.members[member].status != "down"))
    }


async def _tell(listeners: BootstrapListener, member: str, bootstrap: Bootstrap) -> None:
    try:
        await listeners.tell_bootstrap(member, bootstrap, TELL_TIMEOUT_S)
    except PeerAway as away:
        _log.debug("%s is not told of the bootstrap of %s: %s", member, bootstrap.member, away)
