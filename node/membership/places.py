"""Tells the cluster how many attempts this member runs at once (`node.state.places`), after each of its joins."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from node.raft.errors import RaftError
from node.replication.proposer import MemberPort
from node.state.offers import RULES_OFFERS, TellPlaces
from node.state.places import Places

_log = logging.getLogger("rota.member")

PROPOSE_S: Final = 2.0
"""How long one proposal may take."""

AGAIN_S: Final = 1.0
"""The wait between two proposals."""


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
        while True:
            await self._changed.wait()
            self._changed.clear()
            while (incarnation := self._untold()) is not None:
                entry = TellPlaces(self._port.now_us(), self._port.me, incarnation, self._places)
                try:
                    await self._port.propose(entry, PROPOSE_S)
                except RaftError as error:
                    _log.debug("the places of this node are not told yet, retrying: %s", error)
                if self._untold() is not None:
                    await self._sleep(AGAIN_S)

    def _untold(self) -> int | None:
        """Return the present incarnation if its places are not in the state. None: they are, or there is none.

        An earlier version cannot read the entry: it is proposed only under rules that have it.
        """
        state, incarnation = self._port.state(), self._port.standing()
        member = state.members.get(self._port.me)
        if member is None or incarnation is None or state.lead.rules < RULES_OFFERS:
            return None
        return None if member.places == self._places else incarnation
