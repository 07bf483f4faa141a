"""Compares the attempts that this member holds in the state with those that run here, and orders the missing steps.

It also decides which continuous runs to hand over to their tasks' owners.
"""

from collections.abc import Collection, Iterable
from typing import Final

from node.duty.flight import Flight, subject_of
from node.duty.step import CancelWork, HandOver, Held, KillAttempt, Launch, LeaseView, Owners
from node.state.attempts import Finish
from node.state.entries import Entry
from node.state.run_times import due_us
from node.state.value import Run, State
from tasks.definition.run import HELD


class RunIndex:
    """Indexes the ids of active runs by the purposes for which a step needs them."""

    def __init__(self, me: str) -> None:
        self._me = me
        self._ids: dict[str, tuple[str, ...]] = {}
        self.mine: set[str] = set()
        """Runs held by this member."""
        self.orphaned: set[str] = set()
        self.continuous: set[str] = set()
        """Runs of continuous tasks, held or waiting."""
        self.offered: set[str] = set()
        """Tasks of which runs are offered to this member."""

    def feed(self, state: State, tasks: Iterable[str]) -> None:
        """Update the runs of `tasks`, which have changed."""
        for task in tasks:
            self.offered.discard(task)
            for run_id in self._ids.pop(task, ()):
                self._forget(run_id)
            ids = state.runs_of.get(task, ())
            if ids:
                self._ids[task] = ids
                for run_id in ids:
                    self._note(state.runs[run_id])

    def _forget(self, run_id: str) -> None:
        self.mine.discard(run_id)
        self.orphaned.discard(run_id)
        self.continuous.discard(run_id)

    def _note(self, run: Run) -> None:
        if run.state in HELD and run.node == self._me:
            self.mine.add(run.run_id)
        if run.offered == self._me:
            self.offered.add(run.task)
        if run.state == "orphaned":
            self.orphaned.add(run.run_id)
        elif run.spec.continuous and not run.action:
            self.continuous.add(run.run_id)


VANISHED_US: Final = 30_000_000
"""The time after which a launched attempt that is gone without a report of its end counts as failed.

The runner reports every end. This is for the case that it fails to, so that no run is held for ever.
"""

Told = CancelWork | HandOver | KillAttempt


class Attempts:
    """Remembers the launched tokens and the orders given to each, so that no order is given twice."""

    def __init__(self, me: str, flight: Flight) -> None:
        self._me = me
        self._flight = flight
        self._launched: set[int] = set()
        self._told: set[Told] = set()
        self._missing: dict[int, int] = {}

    def local(self, state: State, held: Held) -> list[Told]:
        """Return orders to kill attempts here that were taken over, and to cancel attempts of runs being cancelled.

        These orders need no lease, because stopping is always safe.
        """
        orders: list[Told] = []
        for run_id, attempt in held.items():
            if attempt.ended:
                continue
            run = state.runs.get(run_id)
            if run is None or not self._holds(run, attempt.token):
                orders.append(KillAttempt(run_id, attempt.token))
            elif run.cancelling is not None:
                orders.append(CancelWork(run_id, attempt.token, run.cancelling))
        return self._once(orders, held)

    def missing(
        self, state: State, mine: Iterable[str], held: Held, lease: LeaseView, now_us: int
    ) -> tuple[list[Launch], list[Entry]]:
        """Return orders and entries for the runs that this member holds and that do not run here.

        Runs that were claimed in this lease period are launched. The others are given back unstarted: another member
        may have held the run in between.
        """
        orders: list[Launch] = []
        entries: list[Entry] = []
        absent: dict[int, int] = {}
        for run_id in sorted(mine):
            run = state.runs[run_id]
            # An older attempt of the run that still runs here must be gone before the new one begins.
            if run_id in held or run.incarnation != lease.incarnation:
                continue
            if run.token in self._launched:
                absent[run.token] = self._missing.get(run.token, now_us)
                if now_us - absent[run.token] >= VANISHED_US:
                    entries.append(Finish(now_us, run_id, run.token, "failed", error="the attempt vanished"))
            elif run.cancelling is not None:
                entries.append(Finish(now_us, run_id, run.token, "cancelled"))
            elif self._flight.period_of(run) == lease.period:
                self._launched.add(run.token)
                orders.append(Launch(run))
            else:
                entries.append(Finish(now_us, run_id, run.token, "not_started"))
        self._missing = absent
        self._launched = {token for token in self._launched if token in absent} | self._present(held, orders)
        return orders, [entry for entry in entries if self._flight.free(subject_of(entry), now_us)]

    def hand_over(self, state: State, run_ids: Iterable[str], held: Held, at_a_time: int) -> list[Told]:
        """Return orders to hand over those of the runs `run_ids` that run here: each once, `at_a_time` at a time."""
        under_way = sum(isinstance(order, HandOver) for order in self._told)
        orders: list[Told] = []
        for run_id in run_ids:
            attempt = held.get(run_id)
            if attempt is None or attempt.ended or not self._holds(state.runs[run_id], attempt.token):
                continue
            order = HandOver(run_id, attempt.token)
            if order not in self._told and under_way + len(orders) < at_a_time:
                orders.append(order)
        self._told.update(orders)
        return orders

    def clock_put_back(self) -> None:
        """Restart the wait for missing attempts from now on, because the clock was set back."""
        self._missing.clear()

    def wake_us(self, now_us: int) -> int | None:
        """Return the time at which the next missing attempt counts as failed; None: no attempt is missing."""
        times = (since_us + VANISHED_US for since_us in self._missing.values())
        return min((time for time in times if time > now_us), default=None)

    def _holds(self, run: Run, token: int) -> bool:
        return run.state in HELD and run.node == self._me and run.token == token

    def _once(self, orders: list[Told], held: Held) -> list[Told]:
        here = {(run_id, attempt.token) for run_id, attempt in held.items()}
        self._told = {order for order in self._told if (order.run_id, order.token) in here}
        new = [order for order in orders if order not in self._told]
        self._told.update(new)
        return new

    @staticmethod
    def _present(held: Held, orders: list[Launch]) -> set[int]:
        return {attempt.token for attempt in held.values()} | {order.run.token for order in orders}


AT_A_TIME: Final = 2


def hand_overs(
    state: State, owners: Owners, continuous: Collection[str], orphaned: Collection[str], now_us: int
) -> list[str]:
    """Return the runs that their holders should now hand over to the owners of their tasks, `AT_A_TIME` at most.

    Every member computes the same runs from the same state, and runs that were handed over but not yet claimed count
    too. So the whole cluster hands over at most `AT_A_TIME` runs at once, except while members' states differ.
    """
    if any(_wanted(state, owners, run_id, now_us) for run_id in orphaned):
        return []
    runs = [state.runs[run_id] for run_id in sorted(continuous)]
    between = sum(run.state == "waiting" and _wanted(state, owners, run.run_id, now_us) for run in runs)
    misplaced = [run.run_id for run in runs if _misplaced(run, owners)]
    return misplaced[: max(0, AT_A_TIME - between)]


def _wanted(state: State, owners: Owners, run_id: str, now_us: int) -> bool:
    """Whether a run that no member holds could be claimed now."""
    run = state.runs[run_id]
    return due_us(run, now_us) <= now_us and owners.owner(run.task) is not None


def _misplaced(run: Run, owners: Owners) -> bool:
    return run.state in HELD and run.cancelling is None and owners.owner(run.task) not in (None, run.node)
