"""The leader's judgement of deadlines: each passed deadline is committed once. Pure: state and time in, entries out.

The leader judges all tasks, because a task may have no owner, or its owner may be the member that hangs.
"""

from collections import deque
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Final, NamedTuple

from node.duty.agenda import Agenda
from node.state.calendar import days_of
from node.state.deadlines import Breached, from_us, open_us
from node.state.value import State, TaskRow
from tasks.definition.deadlines import DEADLINES, DeadlineName, deadlines_of
from tasks.definition.schedule import next_due_us, unreadable

SETTLED_US: Final = 1_000_000
"""How long after its time a deadline is judged, because the entry of a run that was in time may still be in flight."""

AGAIN_US: Final = 3_000_000
"""The pause before an entry is proposed again if its effect has not been observed."""

LOOKED_AT_A_STEP: Final = 1000
"""How many changed tasks are looked at in one step. Most of them have no deadlines."""

JUDGED_A_STEP: Final = 32
"""How many tasks with deadlines are judged in one step, so that a step takes milliseconds."""

PUT_BACK_US: Final = 1_000_000
"""If the clock is set back by more than this, all times are computed anew. A smaller change causes no long delay."""


class Passing(NamedTuple):
    """The time at which a deadline passes, and the due time that it counts from.

    `undecided`: no owner has decided yet on the occurrence that is due then.
    """

    at_us: int
    deadline: DeadlineName
    due_us: int
    undecided: bool


class DeadlineJudge:
    """Judges all deadlines for the leader, from `state` on.

    The caller must call `observe` with every new state, and then `step`. For each leadership a new judge is made, which
    knows nothing of earlier ones.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._latest_us = 0
        self._proposed: dict[tuple[str, DeadlineName], int] = {}
        """The time until which no other entry is proposed for a deadline."""
        self._just_over: set[tuple[str, DeadlineName]] = set()
        self._passed_over: dict[tuple[str, DeadlineName], int] = {}
        """The time until which no entry is proposed for a deadline, because a breach of it is just over."""
        self.undecided: dict[str, Exception] = {}
        """Tasks whose last judgement failed, which is a bug in Rota, and the exceptions."""
        self._start_over()

    def _start_over(self) -> None:
        self._agenda = Agenda()
        self._proposed.clear()
        self._just_over.clear()
        self._passed_over.clear()
        # The state is immutable, so it can be iterated over slowly. Tasks that change meanwhile are added again.
        self._unseen: deque[Iterator[str]] = deque((iter(self._state.tasks),))

    def observe(self, state: State, touched: Collection[str] | None) -> bool:
        """Use a new state from now on. `touched`: the tasks that may differ; None: all tasks may differ.

        Returns whether `step` is to be called at once: a task with deadlines may differ.
        """
        before, self._state = self._state, state
        if touched is None:
            self._start_over()
            return True
        judged = [task for task in touched if _is_judged(state, task) or _is_judged(before, task)]
        if judged:
            self._unseen.append(iter(judged))
            self._just_over.update(key for task in judged for key in _over(before, state, task))
        return bool(judged)

    def step(self, now_us: int) -> tuple[list[Breached], int | None]:
        """Return the entries to propose at `now_us`, and when to step again; None: only when the state has changed."""
        if now_us < self._latest_us - PUT_BACK_US:
            self._start_over()  # the times were set by a clock that was ahead
            self._latest_us = now_us
        self._latest_us = max(self._latest_us, now_us)
        # An owner that passes over an occurrence begins a later one at once, so wait for that before judging it.
        self._passed_over.update((key, now_us + SETTLED_US) for key in self._just_over)
        self._just_over.clear()
        self._look()
        entries: list[Breached] = []
        for _, task in self._agenda.due(now_us, JUDGED_A_STEP):
            try:
                found = next_passing(self._state, task)
            except Exception as error:  # noqa: BLE001 - one bug in Rota must not stop the other tasks
                self.undecided[task] = error
                self._agenda.put(task, now_us + AGAIN_US)
                continue
            self.undecided.pop(task, None)
            look_us = [self._judge(task, one, now_us, entries) for one in found]
            self._agenda.put(task, min(look_us, default=None))
        return entries, now_us if self._unseen else self._agenda.next_us()

    def _judge(self, task: str, passing: Passing, now_us: int, entries: list[Breached]) -> int:
        """Add an entry if the deadline has passed. Returns when to judge it again."""
        key = task, passing.deadline
        look_us = max(passing.at_us + SETTLED_US, self._proposed.get(key, 0), self._passed_over.get(key, 0))
        if look_us > now_us:
            return look_us
        self._passed_over.pop(key, None)
        entries.append(Breached(now_us, task, passing.deadline, passing.due_us, passing.undecided))
        self._proposed[key] = now_us + AGAIN_US
        return self._proposed[key]

    def _look(self) -> None:
        """Schedule some of the changed tasks for judgement in this step, and remove those without deadlines."""
        left = LOOKED_AT_A_STEP
        while self._unseen and left > 0:
            some = list(islice(self._unseen[0], left))
            if not some:
                self._unseen.popleft()
            left -= len(some)
            for task in some:
                row = self._state.tasks.get(task)
                judged = _is_judged(self._state, task)
                self._agenda.put(task, 0 if judged else None)  # judge it at once: the judgement returns the next time
                if not judged:
                    self.undecided.pop(task, None)
                if row is None or not judged or row.breaches:
                    for deadline in DEADLINES:  # the proposed entry has taken effect, or is no longer needed
                        self._proposed.pop((task, deadline), None)
                if row is None or not judged:
                    for deadline in DEADLINES:
                        self._passed_over.pop((task, deadline), None)


def _is_judged(state: State, task: str) -> bool:
    row = state.tasks.get(task)
    return row is not None and row.judged_us > 0


def _over(before: State, after: State, task: str) -> Iterator[tuple[str, DeadlineName]]:
    """Yield the deadlines of `task` that are breached in `before` and not in `after`."""
    was, now = before.tasks.get(task), after.tasks.get(task)
    if was is not None and now is not None and was.breaches:
        breached = {breach.deadline for breach in now.breaches}
        yield from ((task, breach.deadline) for breach in was.breaches if breach.deadline not in breached)


def next_passing(state: State, task: str) -> list[Passing]:
    """Return when the deadlines of `task` pass next. Leaves out breached ones, and those for which nothing is due."""
    row = state.tasks.get(task)
    limits = deadlines_of(row.spec_packed) if row is not None and row.judged_us else None
    if row is None or limits is None:
        return []
    active = (state.runs[one] for one in state.runs_of.get(task, ()))
    # A task may be registered while a run of a deleted task with the same name is still ending.
    runs = [run for run in active if not (run.action or run.backfill) and run.cancelling != "deleted"]
    breached = {breach.deadline for breach in row.breaches}
    found: list[Passing] = []
    for deadline in DEADLINES:
        limit_us = limits.limit_us(deadline)
        if limit_us is None or deadline in breached:
            continue
        dues = [(due_us, False) for due_us in open_us(row, runs, deadline, state.joins.get(task, ()))]
        if deadline != "success_every":
            dues += [(due_us, True) for due_us in _undecided_us(state, row)]
        passing = [Passing(from_us(row, due_us) + limit_us, deadline, due_us, one) for due_us, one in dues]
        if passing:
            found.append(min(passing))
    return found


def _undecided_us(state: State, row: TaskRow) -> list[int]:
    """Return the due time of the first undecided occurrence; empty if there is none, or it cannot be computed here."""
    timing = row.timing
    if timing.schedule is None or unreadable(timing.schedule) is not None:
        return []
    if timing.continuous:
        return [row.since_us] if row.since_us > row.through_us else []
    next_us = next_due_us(timing.schedule, days_of(state.calendars, timing), row.since_us, row.through_us)
    return [] if next_us is None else [next_us]
