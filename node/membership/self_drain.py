"""Drains this member by its own decision while it has a fault, such as a full disk.

Meanwhile the other members own its tasks; its runs go on. The watch that finds a fault calls `set`, and again when the
fault is over. The watch uses a margin (hysteresis), so that the member does not drain again and again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from node.membership.own_entries import keep_committed
from node.replication.proposer import MemberPort
from node.state.members import StandAside

_log = logging.getLogger("rota.member")


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
        await keep_committed(self._port, self._uncommitted, self._changed, self._sleep)

    def _uncommitted(self, incarnation: int) -> StandAside | None:
        """Return the entry if the state does not hold `why` yet. None: it does, or this node is no member."""
        member = self._port.state().members.get(self._port.me)
        if member is None or member.aside == self.why[:255]:
            return None
        return StandAside(self._port.now_us(), self._port.me, incarnation, self.why)
