"""What a leader owes the cluster on its election: to found it, if it is new, and to say that it leads."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from node.control.controller import Propose
from node.liveness.wall_clock import now_us
from node.raft.errors import RaftError
from node.raft.ports import RaftRole
from node.state.entries import FoundCluster, Seed, TakeLead
from node.state.value import RULES, State

_log = logging.getLogger("rota.leadership")

PROPOSE_S: Final = 2.0
PAUSE_S: Final = 0.05
PAUSE_S_MAX: Final = 2.0
"""Between two tries that were refused: each is an entry in the log."""


class Leadership:
    """Proposes `FoundCluster` and `TakeLead` whenever this member is elected. Runs on the event loop.

    `seeds` are the members of a new cluster, as far as they are Raft's `members`: some may have been left out of the
    founding by hand. Who leads and has been removed says nothing: it is about to hand over.
    """

    def __init__(
        self,
        me: str,
        seeds: tuple[Seed, ...],
        state: Callable[[], State],
        role: Callable[[], RaftRole],
        propose: Propose,
        members: Callable[[], frozenset[str]],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._me = me
        self._seeds = seeds
        self._state = state
        self._role = role
        self._propose = propose
        self._members = members
        self._sleep = sleep
        self._changed = asyncio.Event()

    def stir(self) -> None:
        """The role has changed."""
        self._changed.set()

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            pause_s = PAUSE_S
            while self._owes():
                if not await self._paid():
                    await self._sleep(pause_s)
                    pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def _owes(self) -> bool:
        role, state = self._role(), self._state()
        if not role.is_leader:
            return False
        if not state.cluster_id:
            return True
        return self._me in state.members and (state.lead.term != role.term or state.lead.member != self._me)

    async def _paid(self) -> bool:
        term = self._role().term
        try:
            if not self._state().cluster_id:
                members = self._members()
                seeds = tuple(seed for seed in self._seeds if seed.id in members)
                await self._propose(FoundCluster(now_us(), secrets.token_hex(8), seeds), PROPOSE_S)
            result = await self._propose(TakeLead(now_us(), self._me, term, RULES), PROPOSE_S)
        except RaftError as error:
            _log.debug("elected, and cannot say so yet: %s", error)
            return False
        if result.ok:
            _log.info("leading since term %d", term)
        # Else, most likely, a later leader's word was applied first, and Raft will tell of it.
        return result.ok
