"""What a leader owes the cluster on its election: to found it, if it is new, and to say that it leads."""

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Final

from node.conduct import Propose
from node.proposing import now_us
from node.raft.errors import RaftError
from node.raft.machine import Role
from node.state.entries import Found, Seed, TakeLead
from node.state.value import State

_log = logging.getLogger("rota.leadership")

PROPOSE_S: Final = 2.0


class Leadership:
    """Proposes `Found` and `TakeLead` whenever this member is elected. Runs on the event loop."""

    def __init__(
        self,
        me: str,
        seeds: tuple[Seed, ...],
        state: Callable[[], State],
        role: Callable[[], Role],
        propose: Propose,
    ) -> None:
        self._me = me
        self._seeds = seeds
        self._state = state
        self._role = role
        self._propose = propose
        self._changed = asyncio.Event()

    def stir(self) -> None:
        """The role has changed."""
        self._changed.set()

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._owes():
                try:
                    await self._pay()
                except RaftError as error:
                    _log.debug("elected, and cannot say so yet: %s", error)

    def _owes(self) -> bool:
        role, state = self._role(), self._state()
        return role.is_leader and (
            not state.cluster_id or state.lead.term != role.term or state.lead.member != self._me
        )

    async def _pay(self) -> None:
        if not self._state().cluster_id:
            await self._propose(Found(now_us(), secrets.token_hex(8), self._seeds), PROPOSE_S)
        term = self._role().term
        result = await self._propose(TakeLead(now_us(), self._me, term), PROPOSE_S)
        if result.ok:
            _log.info("leading since term %d", term)
        elif self._role().term == term:
            # Refused in its own term: a later leader's word was applied first, and Raft will tell us of it.
            await asyncio.sleep(0.05)
