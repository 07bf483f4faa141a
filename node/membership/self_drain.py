"""Drains this member by its own decision while it has a fault, such as a full disk.

Meanwhile the other members own its tasks; its runs go on. The watch that finds a fault calls `set`, and again when the
fault is over. The watch uses a margin (hysteresis), so that the member does not drain again and again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from node.raft.errors import RaftError
from node.replication.proposer import MemberPort
from node.state.members import StandAside

_log = logging.getLogger("rota.member")

PROPOSE_S: Final = 2.0
"""How long one proposal may take."""

AGAIN_S: Final = 1.0
"""The shortest wait between two proposals, so that changes cost at most one entry a second."""


class SelfDrain:
    """Holds the faults of this member; `run` drains it while there are any. `changed` is called when they change."""

    def __init__(
        self,
        member: MemberPort,
        changed: Callable[[], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._port = member
        self._on_change = changed
        self._sleep = sleep
        self._wrong: dict[str, str] = {}
        self._changed = asyncio.Event()

    @property
    def why(self) -> str:
        """The faults, in words for people; "" while there are none."""
        return "; ".join(self._wrong[what] for what in sorted(self._wrong))

    def set(self, what: str, why: str | None) -> None:
        """Record why `what` (such as "disk") is at fault, unless it is already; `set(what, None)` ends the fault."""
        if why is None:
            if self._wrong.pop(what, None) is None:
                return
            _log.info("%s: the fault is over; this node takes on new work unless it has another fault", what)
        elif what not in self._wrong:
            self._wrong[what] = why
            _log.error("this node takes on nothing new, and the others own its tasks: %s", why)
        else:
            return
        self.wake()
        self._on_change()

    def wake(self) -> None:
        """Check again, because the members or the faults of this one have changed."""
        self._changed.set()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while (incarnation := self._uncommitted()) is not None:
                try:
                    entry = StandAside(self._port.now_us(), self._port.me, incarnation, self.why)
                    await self._port.propose(entry, PROPOSE_S)
                except RaftError as error:
                    _log.debug("this node could not be drained yet, retrying: %s", error)
                await self._sleep(AGAIN_S)

    def _uncommitted(self) -> int | None:
        """Return the present incarnation if the state does not hold `why` yet. None: it does, or there is none."""
        member, incarnation = self._port.state().members.get(self._port.me), self._port.standing()
        if member is None or incarnation is None or member.aside == self.why[:255]:
            return None
        return incarnation
