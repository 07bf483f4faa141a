"""The requests of callers: proposals, barriers, changes of membership, and foundings by hand. Safe for threads.

`Requests.apply` applies committed entries, which are barriers or batches of proposals, and ends the requests that wait
for them.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final, Protocol

from node.raft.core.changes import Changes, ChangesConsensus, MembershipChange
from node.raft.core.proposals import Barriers, Proposals, WaitingProposal
from node.raft.errors import Broken, EntryTooLarge, OutcomeUnknown, RaftStopped
from node.raft.ports import RaftTiming, StateMachinePort
from node.state.codec import pack_batch
from node.state.entries import Proposal, ProposalId
from node.state.value import Result

PROPOSALS: Final = b"P"
BARRIER: Final = b"B"
"""The first byte of an entry: its kind."""


class RequestsInquiry(Protocol):
    """The part of founding that `Requests` needs."""

    def leave_out(self, without: frozenset[str]) -> str | None:
        """Found a cluster without these members. Returns the reason for a refusal; None: accepted."""


class RequestsConsensus(ChangesConsensus, Protocol):
    """The part of the consensus that `Requests` needs."""

    @property
    def inquiry(self) -> RequestsInquiry:
        """The part of founding that `Requests` needs."""

    def put(self, data: bytes) -> None:
        """Propose an entry. The caller learns that it is committed when it is applied."""


class Requests:
    """All open requests of this member. New ones are refused with RaftStopped before `open` and after `refuse`.

    wake: makes Raft's thread run a step soon; called after each new request.
    """

    def __init__(
        self, timing: RaftTiming, machine: StateMachinePort, clock: Callable[[], float], wake: Callable[[], None]
    ) -> None:
        self._timing, self._machine, self._clock, self._wake = timing, machine, clock, wake
        self._lock = threading.Lock()
        self._accepts = False
        self._proposals = Proposals(timing.batch_bytes, timing.waiting_bytes, timing.resend_s, timing.flights)
        self._barriers = Barriers(timing.resend_s)
        self._changes = Changes()
        self._left_out: list[tuple[frozenset[str], Future[str | None]]] = []

    # -- any thread

    def open(self) -> None:
        """Accept requests from now on."""
        with self._lock:
            self._accepts = True

    def refuse(self) -> None:
        """Refuse requests from now on."""
        with self._lock:
            self._accepts = False

    def propose(self, proposal: Proposal, timeout_s: float) -> "Future[Result]":
        """Propose an entry. The future gets the result once the entry is committed, and applied on this member.

        The proposal is sent again under its id until it is answered. The future may raise NoQuorum, OutcomeUnknown or
        RaftStopped; this call raises BadEntry, EntryTooLarge and Overloaded. Callbacks of the future run in Raft's
        thread.
        """
        packed = pack_batch([proposal])
        if len(packed) > self._timing.entry_bytes:
            raise EntryTooLarge(f"{len(packed)} bytes in one proposal: at most {self._timing.entry_bytes}; split it")
        waiting = WaitingProposal(proposal, packed, self._clock() + timeout_s)
        waiting.future.set_running_or_notify_cancel()
        with self._lock:
            if self._accepted(waiting.future):
                self._proposals.add(waiting)
        self._wake()
        return waiting.future

    def barrier(self, timeout_s: float) -> "Future[None]":
        """Commit a no-op. When the future is done, all entries committed before this call are applied on this member.

        The future may raise the same errors as that of `propose`.
        """
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._accepted(future):
                self._barriers.add(future, self._clock() + timeout_s)
        self._wake()
        return future

    def change(self, change: MembershipChange) -> "Future[None]":
        """Queue a change of membership, and return its future."""
        change.future.set_running_or_notify_cancel()
        with self._lock:
            if self._accepted(change.future):
                self._changes.add(change)
        self._wake()
        return change.future

    def leave_out(self, members: frozenset[str]) -> "Future[str | None]":
        """Ask for a founding without these members. The result is the reason for a refusal; None: accepted here.

        The founding still needs the consent of the other members. The future may raise RaftStopped.
        """
        future: Future[str | None] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            if self._accepted(future):
                self._left_out.append((members, future))
        self._wake()
        return future

    def _accepted(self, future: "Future[Any]") -> bool:
        if not self._accepts:
            future.set_exception(RaftStopped("Raft does not run on this member: nothing was proposed"))
        return self._accepts

    # -- Raft's thread

    @property
    def under_way(self) -> bool:
        """Whether a request is open. Then Raft's thread must step soon, to send it again or end it at its deadline."""
        with self._lock:
            return bool(len(self._proposals) or len(self._barriers) or len(self._changes))

    def send(self, consensus: RequestsConsensus, now_s: float) -> None:
        """Propose the waiting proposals, barriers and changes."""
        with self._lock:
            mark = self._barriers.take(now_s)
            batches = []
            while batch := self._proposals.take(now_s):
                batches.append(batch)
        if mark is not None:
            consensus.put(BARRIER + mark)
        for batch in batches:
            packed = batch[0].packed if len(batch) == 1 else pack_batch([each.proposal for each in batch])
            consensus.put(PROPOSALS + packed)

    def found_without(self, consensus: RequestsConsensus) -> None:
        """Carry out the foundings that callers of `leave_out` have queued."""
        with self._lock:
            left_out, self._left_out = self._left_out, []
        for members, future in left_out:
            future.set_result(consensus.inquiry.leave_out(members))

    def apply(self, data: bytes) -> None:
        """Apply the bytes of a committed entry, and answer the callers that wait for it.

        Raises Broken: `StateMachinePort.apply` must be total.
        """
        if data[:1] == BARRIER:
            self.barrier_applied(data[1:])
            return
        try:
            results = self._machine.apply(data[1:])
        except Exception as error:
            raise Broken("a committed entry could not be applied") from error
        self.applied(results)

    def barrier_applied(self, mark: bytes) -> None:
        """End the barriers of this member that wait for the applied no-op `mark`."""
        with self._lock:
            reached = self._barriers.applied(mark)
        for future in reached:
            future.set_result(None)

    def applied(self, results: Sequence[tuple[ProposalId, Result]]) -> None:
        """Pass the results of applied proposals, of any member, to the callers that wait for them here."""
        with self._lock:
            answered = self._proposals.applied(results)
        for waiting, result in answered:
            waiting.future.set_result(result)

    def leader_changed(self, now_s: float) -> None:
        """Send all open proposals and barriers again."""
        with self._lock:
            self._proposals.send_again(now_s, all_of_them=True)
            self._barriers.send_again(now_s, all_of_them=True)

    def step(self, consensus: RequestsConsensus, now_s: float) -> None:
        """End requests past their deadlines, send overdue ones again, and propose the next change of membership."""
        with self._lock:
            over: list[tuple[Future[Any], Exception]] = [(w.future, e) for w, e in self._proposals.expire(now_s)]
            over += self._barriers.expire(now_s)
            self._proposals.send_again(now_s, all_of_them=False)
            self._barriers.send_again(now_s, all_of_them=False)
        for late, error in over:
            late.set_exception(error)
        self._changes.step(consensus, now_s)

    def give_up(self) -> None:
        """End all requests: proposals that were sent with OutcomeUnknown, the others with RaftStopped."""
        with self._lock:
            self._accepts = False
            waiting = self._proposals.give_up()
            futures: list[Future[Any]] = [*self._barriers.give_up(), *self._changes.give_up()]
            futures += [future for _, future in self._left_out]
        for each in waiting:
            unknown = OutcomeUnknown("proposed, and this member stopped before it was seen committed")
            each.future.set_exception(
                unknown if each.sent else RaftStopped("this member stopped: nothing was proposed")
            )
        for future in futures:
            future.set_exception(RaftStopped("this member stopped"))
