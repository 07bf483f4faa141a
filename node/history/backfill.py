"""Fills the gaps in this member's finished runs from the other members."""

import asyncio
import logging
import random
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from node.peer.portions import Gap, Portion
from node.peer.protocol import PeerAway
from node.runtime.aligned import sleep_to_grid
from node.state.value import State

_log = logging.getLogger("rota.history")

ROUND_S: Final = 2.0
ROUND_S_MAX: Final = 60.0
"""Seconds between two rounds while no member can fill the gaps."""


class GapStore(Protocol):
    """The part of `node.history.store.HistoryStore` that is used here."""

    def gaps(self) -> Sequence[Gap]:
        """The gaps."""

    def fill(self, gap: Gap, portion: Portion) -> None:
        """Add a portion of a gap. Raises `ValueError` if it is not one."""


class HistorySource(Protocol):
    """The part of `node.peer.client.PeerClient` that is used here."""

    async def history(self, member: str, gap: Gap, /) -> Portion | None:
        """The first portion that a member has of a gap; None if it has none of it. Raises `PeerAway`."""


class Backfill:
    """Asks the other members, one after another, for the runs that ended in a gap of this member's history.

    The next one is asked for what the one before does not have, so that all is fetched even if no member has all.
    """

    def __init__(
        self,
        me: str,
        history: GapStore,
        others: HistorySource,
        state: Callable[[], State],
        sleep: Callable[[float], Awaitable[None]] = sleep_to_grid,
    ) -> None:
        self._me = me
        self._history = history
        self._others = others
        self._state = state
        self._sleep = sleep

    async def run(self) -> None:
        """Run until cancelled."""
        round_s, before = ROUND_S, None
        while True:
            try:
                gaps = await asyncio.to_thread(self._history.gaps)
                for gap in gaps:
                    await self._fill(gap)
            except sqlite3.Error as error:
                _log.error("finished runs cannot be fetched: %s; retrying", error)
                gaps = ()
            # Nothing was filled: no member has the missing runs, so ask less often.
            round_s = min(2 * round_s, ROUND_S_MAX) if gaps and gaps == before else ROUND_S
            before = gaps
            await self._sleep(round_s)

    async def _fill(self, gap: Gap) -> None:
        others = [member for member in self._state().members if member != self._me]
        random.shuffle(others)
        missing = [gap]
        for member in others:
            missing = [left for each in missing for left in await self._fetch(member, each)]

    async def _fetch(self, member: str, gap: Gap) -> list[Gap]:
        """Fetch all that a member has of a gap. Returns the rest."""
        missing, asked = [], gap
        try:
            while gap.after < gap.through and (portion := await self._others.history(member, gap)) is not None:
                await asyncio.to_thread(self._history.fill, gap, portion)
                missing.append(Gap(gap.after, portion.after))
                gap = Gap(portion.through, gap.through)
        except (PeerAway, ValueError) as error:
            _log.debug("cannot fetch finished runs: %s", error)
        if gap != asked:
            _log.info("fetched finished runs up to index %d from %s", gap.after, member)
        return [one for one in (*missing, gap) if one.after < one.through]
