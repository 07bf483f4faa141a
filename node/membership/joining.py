"""Being a member: joins at the start, and again, in a new incarnation, after having been marked down.

Before it joins again, everything that still runs here is killed: the others may have taken it over
(DESIGN.md, section 7).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from node.control.controller import Propose
from node.liveness.wall_clock import now_us
from node.raft.errors import RaftError
from node.state.entries import Join
from node.state.value import Member, State

_log = logging.getLogger("rota.joining")

PROPOSE_S: Final = 5.0
PAUSE_S: Final = 0.2
"""Between two tries."""

PAUSE_S_MAX: Final = 10.0
"""Between two tries, after refusals: each is an entry in the log."""


class Joining:
    """Keeps this process a member. `incarnation` is the one it joined in, 0 before.

    `join` makes the entry, stamped with a time; `clear` kills what runs here and returns when it is gone; `became` is
    called when this process is another incarnation than before, or none any more. Who is no member, or is being
    removed, does not join.
    """

    def __init__(
        self,
        me: str,
        state: Callable[[], State],
        propose: Propose,
        join: Callable[[int], Join],
        clear: Callable[[], Awaitable[None]],
        became: Callable[[], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._me = me
        self._state = state
        self._propose = propose
        self._join = join
        self._clear = clear
        self._became = became
        self._sleep = sleep
        self._changed = asyncio.Event()
        self._said: object = None
        self.incarnation = 0
        self.has_joined = False
        """Whether this process was a member once. It stays so when it resigns, or is removed."""

    def stir(self) -> None:
        """The state, or this member's readiness, has changed."""
        self._changed.set()

    @property
    def standing(self) -> bool:
        """Whether this process is the member's present incarnation, and not marked down."""
        member = self._member()
        return member is not None and member.status != "down" and member.incarnation == self.incarnation > 0

    def resign(self) -> None:
        """Be no incarnation any more: the others are being told that it is down, and may hear it late, or twice.

        Who stays a member after all joins anew, and what was said of the one before is refused.
        """
        self.incarnation = 0
        self._became()

    async def run(self) -> None:
        """Serve until cancelled. Raises what `clear` raises: to join then could let two attempts work at once."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            pause_s = PAUSE_S
            while not self.standing and (member := self._member()) is not None and not member.leaving:
                pause_s = await self._try(member, pause_s)
                if not self.standing:
                    await self._sleep(pause_s)

    def _member(self) -> Member | None:
        return self._state().members.get(self._me)

    async def _try(self, member: Member, pause_s: float) -> float:
        """Join, or see why not. How long to wait before the next try."""
        if self.incarnation:
            self._say("the others have this node as %s (%s): it ends what runs here and joins again", member)
        await self._clear()
        if self.standing:
            return PAUSE_S
        try:
            result = await self._propose(self._join(now_us()), PROPOSE_S)
        except RaftError as error:
            _log.debug("cannot join yet: %s", error)
            return PAUSE_S
        if result.ok:
            self.incarnation = result.value["incarnation"]
            self.has_joined = True
            _log.info("joined, incarnation %d", self.incarnation)
            self._became()
            return PAUSE_S
        if result.code == "incarnation":
            return PAUSE_S  # a Join of before was applied after all, or the state here is behind
        if self._said != (why := result.detail or result.code):
            self._said = why
            _log.error("may not join: %s; trying again", why)
        return min(2 * pause_s, PAUSE_S_MAX)

    def _say(self, what: str, member: Member) -> None:
        if self._said != (now := (member.status, member.reason, member.incarnation)):
            self._said = now
            _log.warning(what, member.status, member.reason or f"in incarnation {member.incarnation}")
