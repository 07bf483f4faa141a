"""Tells the cluster how many attempts this member runs at once (`node.state.places`), after each of its joins."""

import asyncio
from collections.abc import Awaitable, Callable

from node.membership.own_entries import keep_committed
from node.replication.proposer import MemberPort
from node.state.offers import RULES_OFFERS, TellPlaces
from node.state.places import Places


class PlacesTeller:
    """Proposes `places` whenever the state has others for this member's incarnation."""

    def __init__(
        self, member: MemberPort, places: Places, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._port = member
        self._places = places
        self._sleep = sleep
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """Check again, because the members or the leader have changed."""
        self._changed.set()

    async def run(self) -> None:
        """Run until cancelled."""
        await keep_committed(self._port, self._untold, self._changed, self._sleep)

    def _untold(self, incarnation: int) -> TellPlaces | None:
        """Return the entry if the state does not have these places. None: it does, or its rules have no such entry."""
        state = self._port.state()
        member = state.members.get(self._port.me)
        if member is None or state.lead.rules < RULES_OFFERS or member.places == self._places:
            return None
        return TellPlaces(self._port.now_us(), self._port.me, incarnation, self._places)
