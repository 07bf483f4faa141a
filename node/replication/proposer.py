"""Proposes a member's entries under numbered ids, so that each can be retried safely."""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Final, Protocol

from node.raft.errors import NoQuorum, OutcomeUnknown, Overloaded, RaftStopped
from node.raft.ports import RaftRole
from node.state.entries import Entry, Proposal, ProposalId
from node.state.value import Result, State

_log = logging.getLogger("rota.proposer")

IN_FLIGHT_MAX: Final = 256
"""The limit of proposals under way: half of the window of results remembered for each proposer (`node.state`)."""

TRY_S: Final = 5.0
"""The timeout of one try of `insist`. After it, the outcome counts as unknown."""

AGAIN_S: Final = 0.25
"""The pause between two tries."""

Send = Callable[[Proposal, float], "Future[Result]"]


class Proposing(Protocol):
    """A member that commits entries, as its services see it. Called on the event loop."""

    def now_us(self) -> int:
        """Return the wall clock, in microseconds since the epoch."""

    async def propose(self, entry: Entry, timeout_s: float, /) -> Result:
        """Commit an entry and wait for its result. Raises the errors of `Proposer.propose`."""


class Insisting(Proposing, Protocol):
    """A member that can also propose an entry again and again until it has a result."""

    async def insist(self, entry: Entry, worth: Callable[[], bool], /) -> Result | None:
        """Propose an entry until there is a result (see `Proposer.insist`)."""


class MemberPort(Proposing, Protocol):
    """A member, as its membership services use it. Called on the event loop."""

    @property
    def me(self) -> str:
        """The member's id."""

    def state(self) -> State:
        """Return the newest state."""

    def role(self) -> RaftRole:
        """Return the member's role in Raft."""

    def standing(self) -> int | None:
        """This process's incarnation while it is a member that is up or draining; else None."""


class Proposer:
    """Gives each entry an id and passes it to Raft. `send` may be called in any thread, all else on the event loop."""

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
        """Propose an entry and wait for its result, at most `timeout_s`. Raises the same errors as `send`.

        If the caller is cancelled, what it has proposed goes on, and keeps its place, until there is a result.
        """
        return await self._in_place(self._numbered(entry), timeout_s)

    async def insist(self, entry: Entry, worth: Callable[[], bool]) -> Result | None:
        """Propose an entry until there is a result. Returns None once `worth` returns False.

        All tries have the same id, so the entry takes effect only once, and not after a later entry (a delayed
        checkpoint must not replace a later one). Raises `EntryTooLarge` and `BadEntry`.
        """
        proposal = self._numbered(entry)
        while worth():
            try:
                result = await self._in_place(proposal, TRY_S)
                if result.code != "stale":
                    return result
                # The id has left the window of results, so no copy of the proposal that is under way can take effect
                # any more: it is safe to propose the entry under a new id.
                proposal = self._numbered(entry)
            except (NoQuorum, OutcomeUnknown, Overloaded, RaftStopped) as error:
                _log.debug("%s is not committed yet, retrying: %s", type(entry).__name__, error)
            await self._sleep(AGAIN_S)
        return None

    async def _enter(self, until_s: float) -> None:
        """Wait for a place among those under way, until a time of the loop. Raises `Overloaded`."""
        if not self._places.locked():
            await self._places.acquire()  # at once
            return
        try:
            async with asyncio.timeout_at(until_s):
                await self._places.acquire()
        except TimeoutError:
            raise Overloaded(f"{IN_FLIGHT_MAX} proposals are under way here: try again later") from None

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
                "an entry could not be applied, which is a bug in Rota: %s; the entry: %r",
                result.detail,
                proposal.entry,
            )
        if result.code != "stale":
            self._known = True
        elif (not self._known or result.value.get("forgotten")) and (
            session := result.value.get("session", 0)
        ) >= self._numbers[0]:
            # Use a greater session number, or every proposal of this member would be refused. The data folder may have
            # been lost with the last number, which came from a clock ahead of this one. Or this member was removed,
            # its window of results was forgotten, and it was added again.
            self._numbers = session + 1, itertools.count(1)

    async def _in_place(self, proposal: Proposal, timeout_s: float) -> Result:
        """Propose once fewer than `IN_FLIGHT_MAX` are under way. This wait counts towards `timeout_s`."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + timeout_s
        await self._enter(until_s)
        answer: asyncio.Future[Result] = loop.create_future()

        def ended(done: "Future[Result]") -> None:
            self._places.release()
            if answer.cancelled():
                return
            if (error := done.exception()) is None:
                answer.set_result(done.result())
            else:
                answer.set_exception(error)
                answer.exception()  # asyncio would log it if the caller is cancelled before it hears of it

        def tell(done: "Future[Result]") -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(ended, done)

        try:
            self._begin(proposal, until_s - loop.time()).add_done_callback(tell)
        except BaseException:
            self._places.release()
            raise
        # Not `wrap_future`, nor a task under `shield`: each makes the caller wait for further turns of a busy loop.
        return await answer
