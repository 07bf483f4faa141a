"""Dead man's switch: while all is well the leader pings an outside watcher, which raises an alarm if pings stop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from node.notify.teller import NotSent
from node.raft.ports import RaftRole
from node.state.value import State
from node.state.watchdog import Watchdog
from tasks.secret import Reference

_log = logging.getLogger("rota.notify")

IDLE_S: Final = 5.0
"""The wait between two checks of a member that does not lead, or has no watcher to ping."""

AFTER_FAULT_S: Final = 60.0

AGAIN_S: Final = 10.0
"""The longest wait for the next try after a ping that was not accepted, or was withheld."""


@dataclass(frozen=True, slots=True)
class PingView:
    """The last ping, at `at_us`. `withheld`: why it was not sent. `error`: why it failed. Both None: accepted."""

    at_us: int
    withheld: str | None = None
    error: str | None = None


class WatchedMember(Protocol):
    """A member, as its dead man's switch sees it. Called on the event loop."""

    @property
    def role(self) -> RaftRole:
        """The member's role in Raft."""

    @property
    def lease_held(self) -> bool:
        """Whether the member has a live lease."""

    def state(self) -> State:
        """Return the newest state."""

    def now_us(self) -> int:
        """Return the wall clock, in microseconds since the epoch."""

    async def late_tasks(self) -> Sequence[str]:
        """Return the tasks that are overdue."""


class DeadMansSwitch:
    """Pings the watcher with `ping` (`node.notify.webhook.ping`) as long as this member leads."""

    def __init__(
        self,
        member: WatchedMember,
        ping: Callable[[Reference | str], Awaitable[str]],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._member, self._ping, self._sleep = member, ping, sleep
        self.last: PingView | None = None
        """The last ping; None while this member does not lead, or there is no watcher."""

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            before = self._watched()
            try:
                wait_s = await self.step()
            except Exception:  # noqa: BLE001 - an error here must not end the node
                _log.exception("the outside watcher is not pinged, because of a bug in Rota; retrying")
                wait_s = AFTER_FAULT_S
            # Wait in short parts, because after a change of the watcher or the leader the next ping is due at once.
            while wait_s > 0 and self._watched() == before:
                await self._sleep(min(IDLE_S, wait_s))
                wait_s -= IDLE_S

    def _watched(self) -> Watchdog | None:
        """Return the watcher that this member has to ping; None: there is no watcher, or another member leads."""
        return self._member.state().settings.watchdog if self._member.role.is_leader else None

    async def step(self) -> float:
        """Ping, or withhold the ping. Returns the seconds to wait before the next step."""
        watchdog, role = self._watched(), self._member.role
        if watchdog is None:
            self.last = None
            return IDLE_S
        quorum = role.has_quorum and self._member.lease_held
        why = withheld(self._member.state(), quorum=quorum, overdue=await self._member.late_tasks())
        error = None
        if why is None:
            try:
                await self._ping(watchdog.where)
            except NotSent as failed:
                error = str(failed)
        self._note(PingView(self._member.now_us(), why, error))
        return watchdog.every_s if why is None and error is None else min(AGAIN_S, watchdog.every_s)

    def _note(self, done: PingView) -> None:
        before, self.last = self.last, done
        if before is not None and (before.withheld, before.error) == (done.withheld, done.error):
            return
        if done.withheld is not None:
            _log.warning("the ping to the outside watcher is withheld: %s", done.withheld)
        elif done.error is not None:
            _log.warning("the outside watcher cannot be pinged, retrying: %s", done.error)
        elif before is not None:
            _log.info("the outside watcher is pinged again")


_SHOWN: Final = 3


def withheld(state: State, *, quorum: bool, overdue: Sequence[str]) -> str | None:
    """Return the reason why the leader must not ping now; None: it may ping. `overdue` are the late tasks.

    >>> withheld(State(), quorum=True, overdue=["nightly", "orders"])
    'nightly and orders are overdue'
    """
    if not quorum:
        return "there is no quorum"
    if overdue:
        return f"{_named(overdue)} {'is' if len(overdue) == 1 else 'are'} overdue"
    impaired = [member for _, member in sorted(state.members.items()) if member.aside]
    return f"{impaired[0].id}: {impaired[0].aside}" if impaired else None


def late_tasks(state: State) -> frozenset[str]:
    """Return the tasks with a breached deadline. Do not call it on the event loop, because it visits all tasks."""
    return frozenset(name for name, row in state.tasks.items() if row.breaches)


def _named(names: Sequence[str]) -> str:
    shown = list(names[:_SHOWN])
    if len(names) > _SHOWN:
        return f"{', '.join(shown)} and {len(names) - _SHOWN} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else shown[0]
