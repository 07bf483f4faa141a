"""What `node.raft.adapter` is around PySyncObj, around the small Raft: proposals on their way, roles, membership.

The proposals are the real `Proposals`: gathered, sent again under their ids while unanswered, given up in time.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from node.raft.core.proposals import Proposals, WaitingProposal
from node.raft.errors import ChangeRefused, NoQuorum, OutcomeUnknown
from node.raft.log.membership import may_follow
from node.raft.ports import RaftRole, RaftTiming
from node.state.codec import pack_batch
from node.state.entries import Proposal, ProposalId
from node.state.value import Result
from tests.simulation.disk import Disk, Entry
from tests.simulation.habits import Habits
from tests.simulation.raft import Raft
from tests.simulation.world import World

_TIMING = RaftTiming()
_UNANSWERED_S = 1.0


class Machine(Protocol):
    """What is replicated to. Called in Raft's thread."""

    def apply(self, index: int, entry: Entry) -> Sequence[tuple[ProposalId, Result]]:
        """An entry is committed; the results of its proposals."""

    def restore(self, index: int) -> None:
        """The state is that of a snapshot up to `index`."""


@dataclass(eq=False)
class _Change:
    add: bool
    member: str
    deadline_s: float
    future: "Future[None]" = field(default_factory=Future)
    next_s: float = 0.0
    sent: bool = False


class Adapter:
    """One member's Raft as the node sees it. `on_role` is called in Raft's thread."""

    def __init__(
        self,
        me: str,
        disk: Disk,
        world: World,
        habits: Habits,
        peer: Callable[[str], "Adapter"],
        machine: Machine,
        on_role: Callable[[RaftRole], None],
    ) -> None:
        self.me = me
        self.role = RaftRole()
        self.on_propose: Callable[[Proposal], None] = lambda _proposal: None
        self._world, self._machine, self._on_role, self._peer = world, machine, on_role, peer
        self._proposals = Proposals(_TIMING.batch_bytes, _TIMING.waiting_bytes, _TIMING.resend_s, _TIMING.flights)
        self._changes: list[_Change] = []
        self._woken = False
        self.members = frozenset(disk.members)
        self.raft = Raft(me, disk, world, habits, lambda name: peer(name).raft, self)

    # -- what the node asks

    def propose(self, proposal: Proposal, timeout_s: float) -> "Future[Result]":
        """As `node.raft.adapter.Raft.propose`."""
        waiting = WaitingProposal(proposal, pack_batch([proposal]), self._world.clock_s(self.me) + timeout_s)
        waiting.future.set_running_or_notify_cancel()
        self._proposals.add(waiting)
        self._wake()
        return waiting.future

    def add_member(self, member: str, _address: tuple[str, int], timeout_s: float) -> "Future[None]":
        """As `node.raft.adapter.Raft.add_member`."""
        return self._change(_Change(True, member, self._world.clock_s(self.me) + timeout_s))

    def remove_member(self, member: str, timeout_s: float) -> "Future[None]":
        """As `node.raft.adapter.Raft.remove_member`."""
        return self._change(_Change(False, member, self._world.clock_s(self.me) + timeout_s))

    def hand_over(self) -> None:
        """As `node.raft.adapter.Raft.hand_over`."""
        self._world.within(self.me, "raft", 0.0002, self.raft.yield_lead)

    def _change(self, change: _Change) -> "Future[None]":
        change.future.set_running_or_notify_cancel()
        self._changes.append(change)
        self._wake()
        return change.future

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._world.within(self.me, "raft", 0.0002, self.turned)

    # -- Raft's thread

    def applied(self, index: int, entry: Entry) -> None:
        """An entry is committed."""
        results = self._machine.apply(index, entry)
        for waiting, result in self._proposals.applied(results):
            waiting.future.set_result(result)

    def restored(self, index: int) -> None:
        """The state is that of a snapshot."""
        self._machine.restore(index)

    def new_term(self) -> None:
        """Told before a vote or anything else is sent in it."""
        self.role = RaftRole(self.raft.disk.term, None, False, False, self.role.ready)
        self._on_role(self.role)

    def turned(self) -> None:
        """Send what waits, look at the role, drop what is over."""
        self._woken = False
        self.members = frozenset(self.raft.disk.members)
        now_s = self._world.clock_s(self.me)
        self._update_role(now_s)
        self._send(now_s)
        for waiting, error in self._proposals.expire(now_s):
            waiting.future.set_exception(error)
        self._proposals.send_again(now_s, all_of_them=False)
        if self._changes:
            self._step_changes(now_s)

    def _update_role(self, now_s: float) -> None:
        raft, before = self.raft, self.role
        quorum = raft.has_quorum
        leader = self.me if raft.leading else raft.leader if quorum else None
        ready = before.ready or (quorum and raft.applied_in_term)
        term = raft.disk.term
        if (before.leader, before.term, before.has_quorum, before.ready) == (leader, term, quorum, ready):
            return
        self.role = role = RaftRole(term, leader, raft.leading, quorum, ready)
        if role.leader is not None and (role.leader, role.term) != (before.leader, before.term):
            self._proposals.send_again(now_s, all_of_them=True)
        self._on_role(role)

    def _send(self, now_s: float) -> None:
        leader = self.raft.leader
        if not self.role.has_quorum or leader is None:
            return
        while batch := self._proposals.take(now_s):
            packed = batch[0].packed if len(batch) == 1 else pack_batch([each.proposal for each in batch])
            proposals = [each.proposal for each in batch]
            if leader == self.me:
                self.asked(packed, proposals)
            else:
                self._forward(leader, packed, proposals)

    def _forward(self, leader: str, packed: bytes, proposals: list[Proposal]) -> None:
        self._world.send(self.me, leader, "raft", lambda: self._peer(leader).asked(packed, proposals))

    def asked(self, packed: bytes, proposals: list[Proposal]) -> None:
        """Proposals have come to the member that their proposer takes for the leader."""
        if self.raft.put(Entry(0, "proposals", packed)):
            for proposal in proposals:
                self.on_propose(proposal)

    # -- members come and go

    def _step_changes(self, now_s: float) -> None:
        change = self._changes[0]
        if change.future.done() or change.deadline_s <= now_s:
            self._changes.pop(0)
            if not change.future.done():
                error = OutcomeUnknown("changed, perhaps") if change.sent else NoQuorum("no leader in time")
                change.future.set_exception(error)
            return
        leader = self.raft.leader
        if change.next_s > now_s or leader is None:
            return
        change.next_s, change.sent = now_s + _UNANSWERED_S, True
        if self._is_committed(change):
            change.future.set_result(None)
            return
        world, me, peer = self._world, self.me, self._peer
        if leader == me:
            self._asked_to_change(change.add, change.member, lambda denied: self._answered(change, denied))
            return

        def ask() -> None:
            peer(leader)._asked_to_change(
                change.add,
                change.member,
                lambda denied: world.send(leader, me, "raft", lambda: self._answered(change, denied)),
            )

        world.send(me, leader, "raft", ask)

    def _answered(self, change: _Change, denied: bool) -> None:
        if denied and not change.future.done() and self._world.rng.random() < 0.3:
            change.future.set_exception(ChangeRefused("another change may be under way"))

    def _asked_to_change(self, add: bool, member: str, answer: Callable[[bool], None]) -> None:
        raft = self.raft
        members = raft.disk.members
        if not raft.leading or self._changing() or not raft.applied_in_term:
            answer(True)
        elif member == self.me and not add:
            raft.yield_lead()
            answer(True)
        elif add != (member in members):
            after = (*members, member) if add else tuple(name for name in members if name != member)
            if not may_follow(members, after, raft.knowing):
                answer(True)
                return
            raft.put(Entry(0, "members", b"", after))

    def _changing(self) -> bool:
        disk = self.raft.disk
        first = max(self.raft.commit, disk.base)
        return any(entry.kind == "members" for entry in disk.after(first, len(disk.log)))

    def _is_committed(self, change: _Change) -> bool:
        there = change.member in self.raft.disk.members
        return not self._changing() and self.raft.applied_in_term and there == change.add
