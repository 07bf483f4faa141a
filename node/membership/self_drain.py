"""Standing aside: this member takes on nothing new while something is wrong here, and tells the others why.

They own its tasks meanwhile: it is `draining`, by its own word. What runs here goes on. Whoever finds out that
something is wrong calls `set`, and again when it is over; each decides, with a margin, when that is, so that a member
does not go back and forth.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from node.control.controller import Propose
from node.liveness.wall_clock import now_us
from node.raft.errors import RaftError
from node.state.entries import StandAside
from node.state.value import State

_log = logging.getLogger("rota.member")

SAY_S: Final = 2.0
"""How long one proposal may take."""

AGAIN_S: Final = 1.0
"""Between two proposals at least: a change of mind costs one entry a second at most."""


class Aside:
    """What is wrong on this member, by whom it was found; `run` tells the others.

    `standing` gives the present incarnation of this process, or None if it is no member that is up or draining;
    `stir` is called when what is wrong has changed.
    """

    def __init__(
        self,
        me: str,
        state: Callable[[], State],
        standing: Callable[[], int | None],
        propose: Propose,
        stir: Callable[[], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._me = me
        self._state = state
        self._standing = standing
        self._propose = propose
        self._stir = stir
        self._sleep = sleep
        self._wrong: dict[str, str] = {}
        self._changed = asyncio.Event()

    @property
    def why(self) -> str:
        """What is wrong, for people; "" where nothing is."""
        return "; ".join(self._wrong[what] for what in sorted(self._wrong))

    def set(self, what: str, why: str | None) -> None:
        """Of `what` (a word: "disk"), `why` is wrong from now on; None: nothing. The first `why` stays until then."""
        if why is None:
            if self._wrong.pop(what, None) is None:
                return
            _log.info("%s: nothing is wrong any more", what)
        elif what not in self._wrong:
            self._wrong[what] = why
            _log.error("this node takes on nothing new, and the others own its tasks: %s", why)
        else:
            return
        self.stir()
        self._stir()

    def stir(self) -> None:
        """The members, or what is wrong here, have changed."""
        self._changed.set()

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while (incarnation := self._untold()) is not None:
                try:
                    await self._propose(StandAside(now_us(), self._me, incarnation, self.why), SAY_S)
                except RaftError as error:
                    _log.debug("the others cannot be told yet that this node stands aside: %s", error)
                await self._sleep(AGAIN_S)

    def _untold(self) -> int | None:
        """The incarnation of which the others know something else than what is so; None: they know it."""
        member, incarnation = self._state().members.get(self._me), self._standing()
        if member is None or incarnation is None or member.aside == self.why[:255]:
            return None
        return incarnation
