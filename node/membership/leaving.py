"""Leaving in good order: the others are told first, so that what falls due is theirs at once; then what runs is handed
over, each run as soon as it has stopped; then they are told that this member is down.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from node.control.controller import Conduct, Propose
from node.liveness.wall_clock import now_us
from node.raft.errors import RaftError
from node.state.entries import Drain, MarkDown
from node.state.value import State

_log = logging.getLogger("rota.member")

HAND_OVER_S: Final = 0.7
"""How long attempts may take to leave off by themselves, so that what does not listen is with another member in less
than a second, too. What it had not put into a checkpoint by then is done again there.
"""

DYING_S: Final = 3.0
"""How long what is killed then may take to be gone: it has a low priority, also when it dies."""

ASIDE_S: Final = 1.0
SAY_S: Final = 2.0
AGAIN_S: Final = 1.0


class Leaving:
    """Leaves when the node stops, and when its member is being removed. `standing` gives the present incarnation of
    this process, or None if it is not a member that is up or draining; `resign` makes it none, before others
    are told.
    """

    def __init__(
        self,
        me: str,
        state: Callable[[], State],
        standing: Callable[[], int | None],
        resign: Callable[[], None],
        conduct: Conduct,
        propose: Propose,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._me = me
        self._state = state
        self._standing = standing
        self._resign = resign
        self._resigned = 0
        self._conduct = conduct
        self._propose = propose
        self._sleep = sleep
        self._changed = asyncio.Event()

    async def leave(self) -> None:
        """Hand over what runs, and say that this member is down. In a few seconds, with or without a majority."""
        _, clear = await asyncio.gather(self._stand_aside(), self._conduct.hand_over_all(HAND_OVER_S, DYING_S))
        if not clear:
            # Others may begin where something still works: they have to wait until its lease is over.
            _log.error("some attempts cannot be ended: the others are left to find out that this node is gone")
            return
        if (incarnation := self._standing()) is not None:
            self._resign()
            self._resigned = incarnation
        member = self._state().members.get(self._me)
        if member is None or member.status == "down" or member.incarnation != self._resigned:
            return
        try:
            result = await self._propose(MarkDown(now_us(), self._me, self._resigned, "stopped", 0), SAY_S)
        except RaftError as error:
            _log.warning("the others do not know that this member is down: %s", error)
        else:
            if not result.ok:
                _log.warning("the others do not take this member's word that it is down: %s", result.detail)

    async def _stand_aside(self) -> None:
        """Be the owner of nothing from now on. Without it, what stops here would wait for what does not."""
        member = self._state().members.get(self._me)
        if member is None or member.status != "up" or self._standing() is None:
            return
        try:
            await self._propose(Drain(now_us(), self._me, on=True, lasting=False), ASIDE_S)
        except RaftError as error:
            _log.debug("the others have yet to find out that this member stops: %s", error)

    def stir(self) -> None:
        """The members have changed."""
        self._changed.set()

    async def run(self) -> None:
        """Leave when this member is to be removed; work again if it is undrained, or let in again once it has gone.

        Serve until cancelled.
        """
        left_off = False
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._to_go():
                _log.warning("this node is being removed from the cluster: handing over what runs")
                left_off = True
            while self._to_go():
                await self.leave()
                await self._sleep(AGAIN_S)
            if left_off and self._me in self._state().members:
                _log.info("this node is a member that stays: it works again")
                self._conduct.go_on()
                left_off = False

    def _to_go(self) -> bool:
        member = self._state().members.get(self._me)
        return member is not None and member.leaving
