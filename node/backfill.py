"""Keeps the finished runs whole: fetches what this member skipped, and forgets what is too old."""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final

from node.history import Gap, History
from node.peers import PeerAway, Peers
from node.proposing import now_us
from node.state.value import State

_log = logging.getLogger("rota.history")

ROUND_S: Final = 2.0
FORGET_S: Final = 3600.0
_DAY_US: Final = 86_400_000_000


class Backfill:
    """Asks the other members, one after another, for the runs that ended in a gap of this one's history."""

    def __init__(self, me: str, history: History, peers: Peers, state: Callable[[], State]) -> None:
        self._me = me
        self._history = history
        self._peers = peers
        self._state = state
        self._forgotten_at = 0.0

    async def run(self) -> None:
        """Serve until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            for gap in await asyncio.to_thread(self._history.gaps):
                await self._fill(gap)
            if loop.time() - self._forgotten_at > FORGET_S:
                self._forgotten_at = loop.time()
                keep_us = self._state().settings.history_days * _DAY_US
                await asyncio.to_thread(self._history.forget, now_us() - keep_us)
            await asyncio.sleep(ROUND_S)

    async def _fill(self, gap: Gap) -> None:
        others = [member.id for member in self._state().members.values() if member.id != self._me]
        random.shuffle(others)
        for member in others:
            try:
                while gap.after < gap.through:
                    portion = await self._peers.history(member, gap)
                    if portion is None:
                        break  # it has a gap there itself
                    await asyncio.to_thread(self._history.fill, gap, portion)
                    gap = Gap(portion.through, gap.through)
                else:
                    _log.info("fetched the finished runs up to index %d from %s", gap.through, member)
                    return
            except (PeerAway, ValueError) as error:
                _log.debug("cannot fetch finished runs: %s", error)
