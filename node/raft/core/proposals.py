"""Open proposals and barriers: batched, sent again while unanswered, and ended at their deadlines.

It does no I/O, and receives the time as an argument. While fewer than `flights` batches are under way, all waiting
proposals are sent as the next batch (group commit). A barrier is a no-op of this member that is committed and applied
here, so that a read after it is not older than the call. It replaces a read index, which PySyncObj does not have.
"""

import heapq
import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count

from node.raft.errors import NoQuorum, OutcomeUnknown, Overloaded
from node.state.entries import Proposal, ProposalId
from node.state.value import Result

COUNT_LIMIT = 2_000


@dataclass(slots=True, eq=False)
class _Flight:
    """A batch under way. `open` is the number of its proposals without a result."""

    sent_s: float
    waiting: "list[WaitingProposal]"
    open: int


@dataclass(slots=True, eq=False)
class WaitingProposal:
    """A proposal that a caller waits for."""

    #: The proposal.
    proposal: Proposal
    #: The bytes of a batch with this proposal only.
    packed: bytes
    #: When the caller stops waiting, in seconds on Raft's clock.
    deadline_s: float
    #: Gets the result, or an error if there is no result.
    future: "Future[Result]" = field(default_factory=Future)
    #: Whether the proposal has been sent, so that it may be committed.
    sent: bool = False
    #: Whether the caller has its result or error.
    over: bool = False
    #: The batch under way that contains this proposal; None: queued.
    flight: _Flight | None = None


class Proposals:
    """All proposals of this member that have no result yet. Not safe for threads."""

    def __init__(self, batch_bytes: int, waiting_bytes: int, resend_s: float, flights: int) -> None:
        self._batch_bytes = batch_bytes
        self._waiting_bytes = waiting_bytes
        self._resend_s = resend_s
        self._flights_limit = flights
        self._queue: deque[WaitingProposal] = deque()
        self._flights: list[_Flight] = []
        self._by_id: dict[ProposalId, list[WaitingProposal]] = {}
        self._deadlines: list[tuple[float, int, WaitingProposal]] = []
        self._numbers = count()
        self._bytes = 0

    def __len__(self) -> int:
        return sum(len(waiting) for waiting in self._by_id.values())

    def add(self, waiting: WaitingProposal) -> None:
        """Queue a proposal. Raises Overloaded."""
        if self._bytes + len(waiting.packed) > self._waiting_bytes:
            raise Overloaded(f"{len(self)} proposals wait on this member already; try again later")
        self._bytes += len(waiting.packed)
        self._queue.append(waiting)
        self._by_id.setdefault(waiting.proposal.id, []).append(waiting)
        heapq.heappush(self._deadlines, (waiting.deadline_s, next(self._numbers), waiting))

    def take(self, now_s: float) -> list[WaitingProposal]:
        """Mark the next batch as sent, and return it for the caller to send. It is empty if no batch is due."""
        if len(self._flights) >= self._flights_limit:
            return []
        batch: list[WaitingProposal] = []
        size = 0
        while self._queue and len(batch) < COUNT_LIMIT:
            waiting = self._queue[0]
            if waiting.over:
                self._queue.popleft()
                continue
            if batch and size + len(waiting.packed) > self._batch_bytes:
                break
            self._queue.popleft()
            waiting.sent = True
            size += len(waiting.packed)
            batch.append(waiting)
        if batch:
            flight = _Flight(now_s, batch, len(batch))
            self._flights.append(flight)
            for waiting in batch:
                waiting.flight = flight
        return batch

    def applied(self, results: Sequence[tuple[ProposalId, Result]]) -> list[tuple[WaitingProposal, Result]]:
        """Handle the results of applied proposals of all members. Returns those for which a caller waits here."""
        answered: list[tuple[WaitingProposal, Result]] = []
        for proposal_id, result in results:
            for waiting in self._by_id.pop(proposal_id, ()):
                self._end(waiting)
                answered.append((waiting, result))
        if len(self._deadlines) > 2 * len(self._by_id) + 1_000:
            self._deadlines = [each for each in self._deadlines if not each[2].over]
            heapq.heapify(self._deadlines)
        return answered

    def send_again(self, now_s: float, all_of_them: bool) -> None:
        """Queue again the batches that were sent more than `resend_s` ago or, with `all_of_them`, all sent batches."""
        late = [flight for flight in self._flights if all_of_them or now_s - flight.sent_s > self._resend_s]
        for flight in reversed(late):
            self._flights.remove(flight)
            again = [each for each in reversed(flight.waiting) if not each.over]
            for each in again:
                each.flight = None
            self._queue.extendleft(again)

    def expire(self, now_s: float) -> list[tuple[WaitingProposal, Exception]]:
        """Remove the proposals whose deadline has passed. Returns each with its error."""
        over: list[tuple[WaitingProposal, Exception]] = []
        while self._deadlines and self._deadlines[0][0] <= now_s:
            waiting = heapq.heappop(self._deadlines)[2]
            if self._forget(waiting):
                over.append((waiting, timeout_error(waiting.sent)))
        return over

    def give_up(self) -> list[WaitingProposal]:
        """Remove and return all proposals."""
        left = [each for waiting in self._by_id.values() for each in waiting]
        self._by_id.clear()
        self._queue.clear()
        self._flights.clear()
        self._deadlines.clear()
        self._bytes = 0
        return left

    def _forget(self, waiting: WaitingProposal) -> bool:
        same = self._by_id.get(waiting.proposal.id, [])
        if waiting not in same:
            return False
        same.remove(waiting)
        if not same:
            del self._by_id[waiting.proposal.id]
        self._end(waiting)
        return True

    def _end(self, waiting: WaitingProposal) -> None:
        self._bytes -= len(waiting.packed)
        waiting.packed = b""
        waiting.over = True
        flight, waiting.flight = waiting.flight, None
        if flight is not None:
            flight.open -= 1
            if flight.open == 0:
                self._flights.remove(flight)


def timeout_error(sent: bool) -> Exception:
    """Return the error for a proposal whose result was not seen before its deadline."""
    if sent:
        return OutcomeUnknown(
            "proposed, and not seen committed in time: it may still be committed; ask, or try again under the same id"
        )
    return NoQuorum("no leader with a majority of the members was found in time: nothing was proposed; try again later")


@dataclass(slots=True, eq=False)
class _Barrier:
    deadline_s: float
    future: "Future[None]"
    sent: bool = False


class Barriers:
    """The barriers that callers wait for. They share one no-op at a time. Not safe for threads."""

    def __init__(self, resend_s: float) -> None:
        self._resend_s = resend_s
        self._prefix = os.urandom(8)
        self._numbers = count()
        self._waiting: list[_Barrier] = []
        self._under_way: list[_Barrier] = []
        self._mark = b""
        self._sent_s = 0.0

    def __len__(self) -> int:
        return len(self._waiting) + len(self._under_way)

    def add(self, future: "Future[None]", deadline_s: float) -> None:
        """Add a barrier. `future` is done once the barrier's no-op is applied."""
        self._waiting.append(_Barrier(deadline_s, future))

    def take(self, now_s: float) -> bytes | None:
        """Return the mark of the no-op to propose now, or None if no barrier is to be sent.

        The mark identifies the no-op; the caller passes it to `applied` once the no-op is applied.
        """
        if self._under_way or not self._waiting:
            return None
        self._under_way, self._waiting = self._waiting, []
        for barrier in self._under_way:
            barrier.sent = True
        self._mark = self._prefix + next(self._numbers).to_bytes(8, "big")
        self._sent_s = now_s
        return self._mark

    def applied(self, mark: bytes) -> "list[Future[None]]":
        """Handle an applied no-op of any member. Returns the futures of its barriers."""
        if mark != self._mark:
            return []
        reached, self._under_way = self._under_way, []
        return [barrier.future for barrier in reached]

    def send_again(self, now_s: float, all_of_them: bool) -> None:
        """Queue the sent barriers again if their no-op was sent more than `resend_s` ago, or with `all_of_them`."""
        if all_of_them or now_s - self._sent_s > self._resend_s:
            self._waiting = self._under_way + self._waiting
            self._under_way = []

    def expire(self, now_s: float) -> "list[tuple[Future[None], Exception]]":
        """Remove the barriers whose deadline has passed. Returns the future of each with its error."""
        over = [each for each in self._under_way + self._waiting if each.deadline_s <= now_s]
        if over:
            self._under_way = [each for each in self._under_way if each.deadline_s > now_s]
            self._waiting = [each for each in self._waiting if each.deadline_s > now_s]
        return [(each.future, timeout_error(each.sent)) for each in over]

    def give_up(self) -> "list[Future[None]]":
        """Remove and return all barriers."""
        left = [each.future for each in self._under_way + self._waiting]
        self._under_way, self._waiting = [], []
        return left
