"""Keeps the finished runs whole: fetches what this member skipped from the others."""

import asyncio
import logging
import random
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from node.history.store import Gap, Portion
from node.peers import PeerAway
from node.state.value import State

_log = logging.getLogger("rota.history")

ROUND_S: Final = 2.0
ROUND_S_MAX: Final = 60.0
"""Between two rounds, when nobody can fill what is missing."""


class Holes(Protocol):
    """What is needed of `node.history.History`."""

    def gaps(self) -> Sequence[Gap]:
        """What is missing."""

    def fill(self, gap: Gap, portion: Portion) -> None:
        """Take a portion. Raises `ValueError`."""


class Others(Protocol):
    """What is needed of `node.peers.Peers`."""

    async def history(self, member: str, gap: Gap, /) -> Portion | None:
        """What a member has of a gap. Raises `PeerAway`."""


class Backfill:
    """Asks the other members, one after another, for the runs that ended in a gap of this one's history."""

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
        for member in others:
            try:
                while gap.after < gap.through:
                    portion = await self._others.history(member, gap)
                    if portion is None:
                        break  # it has a gap there itself
                    if portion.through <= gap.after:
                        raise ValueError(f"{member} sent nothing of what was asked for")
                    await asyncio.to_thread(self._history.fill, gap, portion)
                    gap = Gap(portion.through, gap.through)
                else:
                    _log.info("fetched the finished runs up to index %d from %s", gap.through, member)
                    return
            except (PeerAway, ValueError) as error:
                _log.debug("cannot fetch finished runs: %s", error)
