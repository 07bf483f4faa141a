"""A cluster of duties in simulated time: one log, members that see it late, answers that get lost.

Everything random comes from one seed. The real parts are `node.state.apply` and `node.duty`; Raft, leases and
workers are as rough here as their promises allow: proposals are reordered, lost, applied late or applied with
the answer lost; a member is marked down only while it is dead or has no lease.
"""

import hashlib
import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import msgpack

from node.duty.duty import Duty
from node.duty.step import CancelWork, HandOver, Kill, Launch, LeaseView, LocalAttempt, Order
from node.state.apply import apply
from node.state.entries import (
    Began,
    Checkpoint,
    Claim,
    Entry,
    Finish,
    Found,
    Join,
    MarkDown,
    Proposal,
    ProposalId,
    Seed,
    TakeLead,
)
from node.state.value import Ended, Result, Run, State

S = 1_000_000
MS = 1_000
Answer = Callable[[Result | None], None]
Watch = Callable[[State, Entry, Result, State, tuple[Ended, ...]], None]


class Owners:
    """Ownership by rendezvous hashing over the members that are up; tasks named `nobody...` have no owner."""

    def __init__(self, up: tuple[str, ...]) -> None:
        self._up = up

    def owner(self, task: str, /) -> str | None:
        if not self._up or task.startswith("nobody"):
            return None
        return max(self._up, key=lambda member: hashlib.blake2b(f"{task}|{member}".encode()).digest())


@dataclass
class Work:
    """An attempt that runs on a member."""

    token: int
    left_us: int
    end: str
    retry: bool = True
    done: int = 0
    ended: bool = False


@dataclass
class Node:
    """A member's process, and what outlives it."""

    id: str
    places: int
    alive: bool = False
    session: int = 0
    sequence: int = 0
    seen: int = 0
    incarnation: int = 0
    period: int = 0
    lease: LeaseView | None = None
    doomed: bool = False
    joining: bool = False
    wake_us: int | None = None
    waiting: frozenset[str] = frozenset()
    duty: Duty = field(default_factory=lambda: Duty(""))
    work: dict[str, Work] = field(default_factory=dict)
    handing_over: set[tuple[str, int]] = field(default_factory=set)


class Cluster:
    """The members, the log and the clock. `watch` is called with every entry that was applied."""

    def __init__(
        self, rng: random.Random, members: str, watch: Watch, *, places: int = 12, lag_us: int = 30 * MS
    ) -> None:
        self.rng = rng
        self.now_us = 1_800_000_000 * S
        self.state = State()
        self.nodes = {one: Node(one, places) for one in members}
        self.steps = 0
        self.calm = False
        self.launched: Callable[[Node, Run], None] = lambda node, run: None
        self.handed: Callable[[Node, HandOver], None] = lambda node, order: None
        self._watch = watch
        self._lag_us = lag_us
        self._log: list[tuple[State, frozenset[str]]] = []
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._outside = 0
        self._owners: dict[tuple[str, ...], Owners] = {}
        seeds = tuple(Seed(one, "h", 1, 2) for one in members)
        self.apply(Found(self.now_us, "c", seeds))
        self.apply(TakeLead(self.now_us, members[0], 1))

    # time

    def at(self, at_us: int, event: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (max(at_us, self.now_us), self._count, event))

    def after(self, least_us: int, most_us: int, event: Callable[[], None]) -> None:
        self.at(self.now_us + self.rng.randint(least_us, most_us), event)

    def run_until(self, until_us: int) -> None:
        while self._events and self._events[0][0] <= until_us:
            self.now_us, _, event = heapq.heappop(self._events)
            event()
        self.now_us = until_us

    # the log

    def apply(self, entry: Entry, by: ProposalId | None = None) -> Result:
        """Put an entry into the log now; each member sees it a little later."""
        if by is None:
            self._outside += 1
            by = ProposalId("outside", 1, self._outside)
        before = self.state
        applied = apply(before, Proposal(by, entry))
        self.state = applied.state
        self._log.append((applied.state, applied.touched))
        self._watch(before, entry, applied.result, applied.state, applied.ended)
        for node in self.nodes.values():
            if node.alive:
                self._see_later(node)
        return applied.result

    def _see_later(self, node: Node) -> None:
        session, upto = node.session, len(self._log)
        self.after(0, self._lag_us, lambda: self._see(node, session, upto))

    def _see(self, node: Node, session: int, upto: int) -> None:
        if not node.alive or node.session != session or upto <= node.seen:
            return
        touched = frozenset().union(*(tasks for _, tasks in self._log[node.seen : upto]))
        everything = node.seen == 0
        node.seen = upto
        state = self._log[upto - 1][0]
        up = tuple(sorted(one.id for one in state.members.values() if one.status == "up"))
        owners = self._owners.setdefault(up, Owners(up))
        node.duty.look(state, owners, None if everything else touched)
        me = state.members[node.id]
        if node.incarnation and (me.status == "down" or me.incarnation > node.incarnation) and not node.joining:
            node.lease = None
            node.work.clear()
            self._join(node)
        self.step(node)

    def propose(self, node: Node, entry: Entry, answer: Answer, by: ProposalId | None = None) -> None:
        """Send an entry out; `answer` comes once if the process lives: a result, or None for an unknown outcome.

        `by` is given where it is sent again under the id of the first time.
        """
        session = node.session
        by = by or self._next_id(node)

        def tell(result: Result | None) -> None:
            if node.alive and node.session == session:
                answer(result)

        def told(upto: int, result: Result) -> None:
            # Mostly the proposer has seen what was applied before it is told, but it need not have.
            if self.rng.random() < 0.7:
                self._see(node, session, upto)
            tell(result)

        def commit(answered: bool) -> None:
            result = self.apply(entry, by)
            if answered and node.alive and node.session == session:
                upto = len(self._log)
                self.after(0, self._lag_us, lambda: told(upto, result))

        if sum(one.alive for one in self.nodes.values()) * 2 <= len(self.nodes):
            self.after(1 * MS, 5 * MS, lambda: tell(None))
            return
        fate = 0.0 if self.calm else self.rng.random()
        if fate < 0.88:
            self.after(300, 20 * MS, lambda: commit(True))
            return
        self.at(self.now_us + S, lambda: tell(None))
        if fate < 0.92:
            self.after(300, 20 * MS, lambda: commit(False))
        elif fate < 0.96:
            self.after(S, 4 * S, lambda: commit(False))

    @staticmethod
    def _next_id(node: Node) -> ProposalId:
        node.sequence += 1
        return ProposalId(node.id, node.session, node.sequence)

    # members

    def start(self, node: Node) -> None:
        """A process starts, and joins."""
        node.alive, node.doomed, node.joining = True, False, False
        node.session += 1
        node.sequence = node.seen = node.incarnation = 0
        node.duty, node.lease, node.wake_us = Duty(node.id), None, None
        node.handing_over.clear()
        self._see_later(node)
        self._join(node)

    def _join(self, node: Node) -> None:
        node.joining = True
        node.handing_over.clear()
        after = self.state.members[node.id].incarnation
        entry = Join(self.now_us, node.id, "h", 1, 2, 3, (), 1, ("command",), after)
        by = self._next_id(node)

        def answered(result: Result | None) -> None:
            if result is None:
                self.propose(node, entry, answered, by)
                return
            if result.code == "incarnation":  # an earlier Join, given up by then, was applied after all
                self._join(node)
                return
            assert result.ok, result
            node.joining = node.doomed = False
            node.incarnation = result.value["incarnation"]
            self._lease(node)

        self.propose(node, entry, answered, by)

    def _lease(self, node: Node) -> None:
        """A lease comes (back): only to a member that is not down, with no mark_down under way."""
        me = self.state.members[node.id]
        fit = node.alive and not node.doomed and not node.joining
        if fit and me.incarnation == node.incarnation and me.status != "down":
            node.period += 1
            node.lease = LeaseView(node.incarnation, node.period)
            self.step(node)

    def kill(self, node: Node) -> None:
        """kill -9: its work dies with it; the others find out."""
        node.alive, node.lease = False, None
        node.work.clear()
        incarnation = self.state.members[node.id].incarnation
        self.after(500 * MS, 3 * S, lambda: self._mark_down(node.id, incarnation, "gone"))

    def lapse(self, node: Node) -> None:
        """Its lease runs out; it comes back, or the member is marked down in the meantime."""
        if node.lease is None:
            return
        node.lease = None
        if self.rng.random() < 0.4:
            node.doomed = True
            incarnation = self.state.members[node.id].incarnation
            self.after(S, 3 * S, lambda: self._mark_down(node.id, incarnation, "silent"))
        self.after(300 * MS, 4 * S, lambda: self._lease(node))

    def _mark_down(self, member: str, incarnation: int, reason: str) -> None:
        if sum(one.alive for one in self.nodes.values()) * 2 <= len(self.nodes):
            self.after(S, 2 * S, lambda: self._mark_down(member, incarnation, reason))
            return
        self.apply(MarkDown(self.now_us, member, incarnation, reason, self.state.lead.term))  # type: ignore[arg-type]

    def step(self, node: Node) -> None:
        if not node.alive:
            return
        self.steps += 1
        held = {run_id: LocalAttempt(work.token, work.ended) for run_id, work in node.work.items()}
        step = node.duty.step(self.now_us, node.lease, held, node.places - len(node.work))
        duty = node.duty
        for order in step.orders:
            self._obey(node, order)
        for entry in step.entries:
            self.propose(node, entry, self._answer(node, duty, entry))
            if isinstance(entry, Claim) and not self.calm and self.rng.random() < 0.04:
                # The worst moment: after the claim was proposed, before it is known.
                self.after(0, 10 * MS, lambda: self.lapse(node))
        node.wake_us = step.wake_us
        node.waiting = frozenset(one.task for one in step.waiting_for_room)
        if step.wake_us is not None:
            self.at(step.wake_us, lambda: self._wake(node, duty))

    def _wake(self, node: Node, duty: Duty) -> None:
        if node.duty is duty and node.wake_us is not None and node.wake_us <= self.now_us:
            self.step(node)

    def _answer(self, node: Node, duty: Duty, entry: Entry) -> Answer:
        def answered(result: Result | None) -> None:
            duty.answered(entry, result, self.now_us)
            self.step(node)

        return answered

    # workers

    def _obey(self, node: Node, order: Order) -> None:
        if isinstance(order, Launch):
            self.launched(node, order.run)
            assert order.run.run_id not in node.work
            self._launch(node, order.run)
            return
        work = node.work.get(order.run_id)
        if work is None or work.token != order.token:
            return
        if isinstance(order, Kill):
            del node.work[order.run_id]
            self.after(0, 0, lambda: self.step(node))
        elif isinstance(order, HandOver):
            self.handed(node, order)
            node.handing_over.add((order.run_id, order.token))
            self.after(100 * MS, S, lambda: self._end(node, order.run_id, work, "handed_over"))
        elif isinstance(order, CancelWork):
            self.after(10 * MS, 300 * MS, lambda: self._end(node, order.run_id, work, "cancelled"))

    def _launch(self, node: Node, run: Run) -> None:
        seconds = self.rng.choice((20, 40)) if run.spec.continuous else self.rng.choice((0.1, 0.5, 1, 3, 6))
        chance = self.rng.random()
        end = "succeeded" if chance < 0.75 else "failed" if chance < 0.95 else "timed_out"
        done = msgpack.unpackb(run.checkpoint) if run.checkpoint is not None else 0
        work = Work(run.token, int(seconds * S), end, chance < 0.9, done)
        node.work[run.run_id] = work
        self.propose(node, Began(self.now_us, run.run_id, run.token), lambda result: None)
        self.after(50 * MS, 400 * MS, lambda: self._go_on(node, run.run_id, work))

    def _runs(self, node: Node, run_id: str, work: Work) -> bool:
        return node.alive and node.work.get(run_id) is work and not work.ended

    def _go_on(self, node: Node, run_id: str, work: Work) -> None:
        if not self._runs(node, run_id, work):
            return
        if node.lease is not None:  # else frozen
            work.left_us -= 300 * MS
            work.done += 1
            if self.rng.random() < 0.4:
                data = msgpack.packb(work.done)
                self.propose(node, Checkpoint(self.now_us, run_id, work.token, data), lambda result: None)
            if work.left_us <= 0:
                self._end(node, run_id, work, work.end)
        self.after(250 * MS, 350 * MS, lambda: self._go_on(node, run_id, work))

    def _end(self, node: Node, run_id: str, work: Work, end: str) -> None:
        if self._runs(node, run_id, work):
            work.ended, work.end = True, end
            self._finish(node, run_id, work)

    def _finish(self, node: Node, run_id: str, work: Work) -> None:
        if node.work.get(run_id) is not work:
            return
        entry = Finish(self.now_us, run_id, work.token, work.end, retry=work.retry)  # type: ignore[arg-type]

        def answered(result: Result | None) -> None:
            if node.work.get(run_id) is not work:
                return
            if result is None:
                self.after(100 * MS, 100 * MS, lambda: self._finish(node, run_id, work))
            else:
                del node.work[run_id]
                self.step(node)

        self.propose(node, entry, answered)
