"""Keeps the finished runs whole: fetches what this member skipped from the others."""

import asyncio
import logging
import random
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from node.peer.portions import Gap, Portion
from node.peer.protocol import PeerAway
from node.state.value import State

_log = logging.getLogger("rota.history")

ROUND_S: Final = 2.0
ROUND_S_MAX: Final = 60.0
"""Between two rounds, when nobody can fill what is missing."""


class Holes(Protocol):
    """What is needed of `node.history.store.HistoryStore`."""

    def gaps(self) -> Sequence[Gap]:
        """What is missing."""

    def fill(self, gap: Gap, portion: Portion) -> None:
        """Take a portion of a gap. Raises `ValueError` if it is none."""


class Others(Protocol):
    """What is needed of `node.peer.client.Peers`."""

    async def history(self, member: str, gap: Gap, /) -> Portion | None:
        """The first that a member has of a gap; None if it has nothing of it. Raises `PeerAway`."""


class Backfill:
    """Asks the other members, one after another, for the runs that ended in a gap of this one's history.

    What one of them has not, the next is asked for: that none has all of it keeps back nothing that they have.
    """

    def __init__(
        self,
        me: str,
        history: Holes,
        others: Others,
        state: Callable[[], State],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._me = me
        self._history = history
        self._others = others
        self._state = state
        self._sleep = sleep

    async def run(self) -> None:
        """Serve until cancelled."""
        round_s, before = ROUND_S, None
        while True:
            try:
                gaps = await asyncio.to_thread(self._history.gaps)
                for gap in gaps:
                    await self._fill(gap)
            except sqlite3.Error as error:
                _log.error("finished runs cannot be fetched: %s; trying again", error)
                gaps = ()
            # Where nobody has what is missing, asking more often does not help.
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
        """Take all that a member has of a gap. What it has not."""
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
