"""Leaves the cluster in good order. This member drains, so that other members own its tasks at once; it hands over each
run as soon as the attempt has stopped; then it is marked down.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from node.raft.errors import RaftError
from node.replication.proposer import MemberPort
from node.state.members import Drain, MarkDown

_log = logging.getLogger("rota.member")

HAND_OVER_S: Final = 0.7
"""How long attempts may take to stop by themselves. It is short so that any run, even one whose attempt must be killed,
is with another member in less than a second. That member repeats the work since the last checkpoint.
"""

DYING_S: Final = 3.0
"""How long killed attempts may take to end. They may be slow, since their processes have a low priority."""

DRAIN_S: Final = 1.0
MARK_DOWN_S: Final = 2.0
AGAIN_S: Final = 1.0


class RunHandover(Protocol):
    """The part of `node.control.controller.Controller` that is used here."""

    async def hand_over_all(self, patience_s: float, dying_s: float) -> bool:
        """Begin no new attempt, and hand over every run. Returns True if no attempt works here any more."""

    def go_on(self) -> None:
        """Begin attempts again."""


class Leaving:
    """Leaves when the node stops, and when its member is being removed. `resign` gives up the incarnation."""

    def __init__(
        self,
        member: MemberPort,
        resign: Callable[[], None],
        controller: RunHandover,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._port = member
        self._resign = resign
        self._resigned = 0
        self._controller = controller
        self._sleep = sleep
        self._changed = asyncio.Event()

    async def leave(self) -> None:
        """Hand over the runs, and have this member marked down. Takes a few seconds, with or without a majority."""
        _, clear = await asyncio.gather(self._drain(), self._controller.hand_over_all(HAND_OVER_S, DYING_S))
        if not clear:
            # While an attempt still works, no other member may take over its run before the lease has ended.
            _log.error("some attempts cannot be killed: this node is not marked down before its lease ends")
            return
        if (incarnation := self._port.standing()) is not None:
            self._resign()
            self._resigned = incarnation
        member = self._port.state().members.get(self._port.me)
        if member is None or member.status == "down" or member.incarnation != self._resigned:
            return
        try:
            down = MarkDown(self._port.now_us(), self._port.me, self._resigned, "stopped", 0)
            result = await self._port.propose(down, MARK_DOWN_S)
        except RaftError as error:
            _log.warning("this member could not be marked down, the others will find it silent: %s", error)
        else:
            if not result.ok:
                _log.warning("marking this member down was refused: %s", result.detail)

    async def _drain(self) -> None:
        """Drain this member, so that it owns no task. Else each stopped run would wait here until all have stopped."""
        member = self._port.state().members.get(self._port.me)
        if member is None or member.status != "up" or self._port.standing() is None:
            return
        try:
            await self._port.propose(Drain(self._port.now_us(), self._port.me, on=True, lasting=False), DRAIN_S)
        except RaftError as error:
            _log.debug("this member could not be drained before it stops: %s", error)

    def wake(self) -> None:
        """Check again, because the members have changed."""
        self._changed.set()

    async def run(self) -> None:
        """Leave when this member is being removed; work again if it is undrained, or added again after its removal.

        Run until cancelled.
        """
        left = False
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._being_removed():
                _log.warning("this node is being removed from the cluster: handing over its runs")
                left = True
            while self._being_removed():
                await self.leave()
                await self._sleep(AGAIN_S)
            if left and self._port.me in self._port.state().members:
                _log.info("this node stays a member: it works again")
                self._controller.go_on()
                left = False

    def _being_removed(self) -> bool:
        member = self._port.state().members.get(self._port.me)
        return member is not None and member.leaving
