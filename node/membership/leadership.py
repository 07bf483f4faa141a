"""Takes the lead after an election: founds the cluster if it is new, and commits that this member leads."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

from node.raft.errors import RaftError
from node.replication.proposer import MemberPort
from node.state.entries import Seed
from node.state.members import FoundCluster, TakeLead
from node.state.value import RULES

_log = logging.getLogger("rota.leadership")

PROPOSE_S: Final = 2.0
PAUSE_S: Final = 0.05
PAUSE_S_MAX: Final = 2.0
"""The longest wait between two tries. It limits log growth, since each refused try is an entry in the log."""


class Leadership:
    """Proposes `FoundCluster` and `TakeLead` whenever this member is elected. Runs on the event loop.

    Those of `seeds` that are Raft's `voters` are the members of a new cluster, because an operator may have left out
    some at the founding. A removed leader proposes no entry, because it is about to hand over the leadership.
    `rng` draws the id of a new cluster.
    """

    def __init__(
        self,
        member: MemberPort,
        seeds: tuple[Seed, ...],
        voters: Callable[[], frozenset[str]],
        rng: Random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._port = member
        self._seeds = seeds
        self._voters = voters
        self._rng = rng
        self._sleep = sleep
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """Check again, because the role has changed."""
        self._changed.set()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            pause_s = PAUSE_S
            while self._unannounced():
                if not await self._announce():
                    await self._sleep(pause_s)
                    pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def _unannounced(self) -> bool:
        role, state, me = self._port.role(), self._port.state(), self._port.me
        if not role.is_leader:
            return False
        if not state.cluster_id:
            return True
        return me in state.members and (state.lead.term != role.term or state.lead.member != me)

    async def _announce(self) -> bool:
        port, term = self._port, self._port.role().term
        try:
            if not port.state().cluster_id:
                voters = self._voters()
                seeds = tuple(seed for seed in self._seeds if seed.id in voters)
                cluster_id = f"{self._rng.getrandbits(64):016x}"
                await port.propose(FoundCluster(port.now_us(), cluster_id, seeds), PROPOSE_S)
            result = await port.propose(TakeLead(port.now_us(), port.me, term, RULES), PROPOSE_S)
        except RaftError as error:
            _log.debug("elected, and the lead cannot be committed yet, retrying: %s", error)
            return False
        if result.ok:
            _log.info("leading since term %d", term)
        # If refused, the `TakeLead` of a later leader was probably applied first, and Raft will report that leader.
        return result.ok
