"""Being a member: joins at the start, and again, in a new incarnation, after having been marked down.

Before it joins again, everything that still runs here is killed: the others may have taken it over
(DESIGN.md, section 7).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from node.conduct import Propose
from node.proposing import now_us
from node.raft.errors import RaftError
from node.state.entries import Join
from node.state.value import State

_log = logging.getLogger("rota.joining")

PROPOSE_S: Final = 5.0
PAUSE_S: Final = 0.2
"""Between two tries."""


class Joining:
    """Keeps this process a member. `incarnation` is the one it joined in, 0 before.

    `join` makes the entry, stamped with a time; `clear` kills what runs here and returns when it is gone;
    `joined` is called when there is a new incarnation.
    """

    def __init__(
        self,
        me: str,
        state: Callable[[], State],
        propose: Propose,
        join: Callable[[int], Join],
        clear: Callable[[], Awaitable[None]],
        joined: Callable[[], None],
    ) -> None:
        self._me = me
        self._state = state
        self._propose = propose
        self._join = join
        self._clear = clear
        self._joined = joined
        self._changed = asyncio.Event()
        self.incarnation = 0

    def stir(self) -> None:
        """The state, or this member's readiness, has changed."""
        self._changed.set()

    @property
    def standing(self) -> bool:
        """Whether this process is the member's present incarnation, and not marked down."""
        member = self._state().members.get(self._me)
        return member is not None and member.status != "down" and member.incarnation == self.incarnation > 0

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._state().cluster_id and not self.standing and not self._removed():
                if not await self._try():
                    await asyncio.sleep(PAUSE_S)

    def _removed(self) -> bool:
        """Whether the cluster has let this process's member go, or is about to: then it does nothing more."""
        member = self._state().members.get(self._me)
        if member is None and self.incarnation:
            _log.warning("%s has been removed from the cluster: stop this process", self._me)
        return member.leaving if member is not None else bool(self.incarnation)

    async def _try(self) -> bool:
        if self.incarnation:
            member = self._state().members.get(self._me)
            why = f"{member.status} ({member.reason})" if member is not None else "no member any more"
            _log.warning("the others have this node as %s: ending what runs here, then joining again", why)
        await self._clear()
        if self.standing:
            return True
        try:
            result = await self._propose(self._join(now_us()), PROPOSE_S)
        except RaftError as error:
            _log.debug("cannot join yet: %s", error)
            return False
        if result.code == "incarnation":
            return False  # a Join of before was applied after all, or the state here is behind
        if not result.ok:
            _log.error("may not join: %s", result.detail or result.code)
            return False
        self.incarnation = result.value["incarnation"]
        _log.info("joined, incarnation %d", self.incarnation)
        self._joined()
        return True
