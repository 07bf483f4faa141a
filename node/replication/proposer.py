"""Entries out, results in: numbers a member's proposals, so that each can be retried safely."""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Final

from node.raft.errors import NoQuorum, OutcomeUnknown, Overloaded, RaftStopped
from node.state.entries import Entry, Proposal, ProposalId
from node.state.value import Result

_log = logging.getLogger("rota.proposing")

IN_FLIGHT_MAX: Final = 256
"""Half of the window of results that is remembered for each proposer (`node.state`): no retry can fall out of it."""

TRY_S: Final = 5.0
"""How long one try of `insist` may take before its outcome counts as unknown."""

AGAIN_S: Final = 0.25
"""Between two tries."""

Send = Callable[[Proposal, float], "Future[Result]"]


class Proposing:
    """Gives each entry its id and hands it to Raft. Any thread may use `send`; the rest is for the event loop."""

    def __init__(
        self, member: str, session: int, send: Send, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._member = member
        self._numbers = session, itertools.count(1)
        self._known = False
        self._send = send
        self._sleep = sleep
        self._places = asyncio.Semaphore(IN_FLIGHT_MAX)

    def send(self, entry: Entry, timeout_s: float) -> "Future[Result]":
        """Propose an entry. The future raises `NoQuorum`, `OutcomeUnknown` or `RaftStopped`.

        This call raises `Overloaded`, `EntryTooLarge` and `BadEntry`.
        """
        return self._begin(self._numbered(entry), timeout_s)

    async def propose(self, entry: Entry, timeout_s: float) -> Result:
        """Propose an entry and wait for what became of it. Raises all that `send` does, after `timeout_s` at most."""
        return await self._placed(self._numbered(entry), timeout_s)

    async def insist(self, entry: Entry, worth: Callable[[], bool]) -> Result | None:
        """Propose an entry until there is an answer; None once it is not `worth` it any more.

        All tries bear one id: so the entry takes effect once, and not after what is proposed next (a checkpoint that
        was under way for long must not come after a later one). Raises `EntryTooLarge` and `BadEntry`.
        """
        proposal = self._numbered(entry)
        while worth():
            try:
                result = await self._placed(proposal, TRY_S)
                if result.code != "stale":
                    return result
                # So many others were answered meanwhile that this id is out of the window: it is dead, whatever
                # copies of it are under way, and a new one can do no harm.
                proposal = self._numbered(entry)
            except (NoQuorum, OutcomeUnknown, Overloaded, RaftStopped) as error:
                _log.debug("trying again to have %s committed: %s", type(entry).__name__, error)
            await self._sleep(AGAIN_S)
        return None

    def _numbered(self, entry: Entry) -> Proposal:
        session, sequence = self._numbers
        return Proposal(ProposalId(self._member, session, next(sequence)), entry)

    def _begin(self, proposal: Proposal, timeout_s: float) -> "Future[Result]":
        future = self._send(proposal, timeout_s)
        future.add_done_callback(lambda done: self._heard(proposal, done))
        return future

    def _heard(self, proposal: Proposal, done: "Future[Result]") -> None:
        if done.cancelled() or done.exception() is not None:
            return
        result = done.result()
        if result.code == "fault":
            _log.error(
                "an entry could not be applied, which is a mistake in Rota: %s; the entry: %r",
                result.detail,
                proposal.entry,
            )
        if result.code != "stale":
            self._known = True
        elif (not self._known or result.value.get("forgotten")) and (
            session := result.value.get("session", 0)
        ) >= self._numbers[0]:
            # The folder was lost, and with it the last session, which was named by a clock that was ahead of this one:
            # without a later one nothing from here would be taken until that time has come. Or this member was
            # removed and let in again, and so long after that its window was forgotten.
            self._numbers = session + 1, itertools.count(1)

    async def _placed(self, proposal: Proposal, timeout_s: float) -> Result:
        """Propose when there is a place. The wait for it counts: nobody's write is to be made long after it gave up."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + timeout_s
        try:
            async with asyncio.timeout_at(until_s):
                await self._places.acquire()
        except TimeoutError:
            raise Overloaded(f"{IN_FLIGHT_MAX} proposals are under way here: try again later") from None
        try:
            return await asyncio.wrap_future(self._begin(proposal, until_s - loop.time()))
        finally:
            self._places.release()
