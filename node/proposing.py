"""Entries out, results in: numbers a member's proposals, so that each can be retried safely."""

import asyncio
import itertools
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from node.state.entries import Entry, Proposal, ProposalId
from node.state.value import Result

IN_FLIGHT_MAX: Final = 256
"""Half of the window of results that is remembered for each proposer (`node.state`): no retry can fall out of it."""

Send = Callable[[Proposal, float], "Future[Result]"]


def now_us() -> int:
    """The wall clock, in microseconds since the epoch: what entries are stamped with."""
    return time.time_ns() // 1000


class Proposing:
    """Gives each entry its id and hands it to Raft. Any thread may use `send`; `propose` is for the event loop."""

    def __init__(self, member: str, session: int, send: Send) -> None:
        self._member = member
        self._session = session
        self._send = send
        self._sequence = itertools.count(1)
        self._places = asyncio.Semaphore(IN_FLIGHT_MAX)

    def send(self, entry: Entry, timeout_s: float) -> "Future[Result]":
        """Propose an entry. The future raises `NoQuorum`, `OutcomeUnknown`, `EntryTooLarge` or `Stopped`."""
        return self._send(Proposal(ProposalId(self._member, self._session, next(self._sequence)), entry), timeout_s)

    async def propose(self, entry: Entry, timeout_s: float) -> Result:
        """Propose an entry and wait for what became of it. Raises as `send` does."""
        async with self._places:
            return await asyncio.wrap_future(self.send(entry, timeout_s))
