"""Keeps this process a member: joins at the start, and again, in a new incarnation, after it was marked down.

Before it joins again, it kills every attempt that still runs here: other members may have taken over the runs.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from node.raft.errors import RaftError
from node.replication.proposer import MemberPort
from node.state.members import Join
from node.state.value import Member

_log = logging.getLogger("rota.joining")

PROPOSE_S: Final = 5.0
PAUSE_S: Final = 0.2
"""The wait between two tries."""

PAUSE_S_MAX: Final = 10.0
"""The longest wait between two tries after refusals, because each refused try is an entry in the log."""


class Joining:
    """Joins whenever this process is not the member's present incarnation.

    `join` makes the entry, with the given time in microseconds; `clear` kills every attempt here and returns when their
    processes are gone; `became` is called when `incarnation` has changed. A node that is not a member, or that is being
    removed, does not join.
    """

    def __init__(
        self,
        member: MemberPort,
        join: Callable[[int], Join],
        clear: Callable[[], Awaitable[None]],
        became: Callable[[], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._port = member
        self._join = join
        self._clear = clear
        self._became = became
        self._sleep = sleep
        self._changed = asyncio.Event()
        self._logged: object = None
        self.incarnation = 0
        """The incarnation that this process joined in; 0 before it has joined, and after it has resigned."""
        self.has_joined = False
        """Whether this process has ever joined. Stays True after it has resigned or was removed."""

    def wake(self) -> None:
        """Check again, because the members or the role have changed."""
        self._changed.set()

    @property
    def standing(self) -> bool:
        """Whether this process is the member's present incarnation, and not marked down."""
        member = self._member()
        return member is not None and member.status != "down" and member.incarnation == self.incarnation > 0

    def resign(self) -> None:
        """Give up the incarnation, before a `MarkDown` of it is proposed, which may be applied late or twice.

        If the member stays after all, it joins in a new incarnation, so that a late `MarkDown` of the old one is
        refused.
        """
        self.incarnation = 0
        self._became()

    async def run(self) -> None:
        """Run until cancelled. Raises the errors of `clear`, as a join in spite of them could let two attempts work."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            pause_s = PAUSE_S
            while not self.standing and (member := self._member()) is not None and not member.leaving:
                pause_s = await self._try(member, pause_s)
                if not self.standing:
                    await self._sleep(pause_s)

    def _member(self) -> Member | None:
        return self._port.state().members.get(self._port.me)

    async def _try(self, member: Member, pause_s: float) -> float:
        """Try to join. Returns the seconds to wait before the next try."""
        if self.incarnation:
            self._log_marked(member)
        await self._clear()
        if self.standing:
            return PAUSE_S
        try:
            result = await self._port.propose(self._join(self._port.now_us()), PROPOSE_S)
        except RaftError as error:
            _log.debug("cannot join yet, retrying: %s", error)
            return PAUSE_S
        if result.ok:
            self.incarnation = result.value["incarnation"]
            self.has_joined = True
            _log.info("joined, incarnation %d", self.incarnation)
            self._became()
            return PAUSE_S
        if result.code == "incarnation":
            return PAUSE_S  # an earlier Join took effect after all, or this node's state is stale
        if self._logged != (why := result.detail or result.code):
            self._logged = why
            _log.error("this node's join was refused: %s; retrying", why)
        return min(2 * pause_s, PAUSE_S_MAX)

    def _log_marked(self, member: Member) -> None:
        if self._logged != (now := (member.status, member.reason, member.incarnation)):
            self._logged = now
            why = member.reason or f"in incarnation {member.incarnation}"
            _log.warning(
                "the cluster has this node as %s (%s): killing its attempts, joining again", member.status, why
            )
