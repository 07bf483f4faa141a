"""The tasks that stand out: running, failing, late, overdue, waiting or due next, and how many there are of each.

A board gets the time from its caller, and reads no clock.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from immutables import Map

from node.duty.agenda import next_occurrence_us
from node.duty.conditions import MARKS, Mark
from node.duty.forecast import starts_of
from node.duty.held_times import HeldTime, held_time
from node.duty.overdue import OVERDUE_US, unbegun_since_us
from node.duty.ownership import Ownership
from node.duty.timetable import CronTimes, TimeSpan, UpcomingTask, upcoming
from node.state.blackout import Blackouts, blackout_of
from node.state.calendar import Calendars
from node.state.value import State, TaskRow
from tasks.definition.run import HELD, RunState
from tasks.definition.spec import TaskTiming, labels_of, set_of

FAILED: Final[frozenset[RunState]] = frozenset({"failed", "timed_out", "abandoned"})

LISTED_MAX: Final = 20
"""A list names at most this many tasks; the others are counted."""

AHEAD_US: Final = 3600 * 1_000_000
"""How far ahead `Picture.coming` reaches."""

STEPS: Final = 30
"""The number of steps into which `AHEAD_US` is divided for `Picture.density`."""

_BITS: Final[dict[Mark, int]] = {mark: 1 << number for number, mark in enumerate(MARKS)}


@dataclass(frozen=True, slots=True)
class Standout:
    """A task that is named in a list, and since when it has the list's mark, such as failing or late."""

    at_us: int
    task: str


@dataclass(frozen=True, slots=True)
class ComingTask:
    """A task that is due within `AHEAD_US`: when it is due first, how many times, and what holds the first one."""

    at_us: int
    task: str
    times: int
    held: HeldTime | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """All tasks at one moment. A list has `LISTED_MAX` tasks at most; `counts` is complete."""

    #: The moment, in microseconds since the epoch.
    now_us: int
    #: The index of the state.
    index: int
    #: The number of tasks.
    total: int
    #: How many tasks have each mark.
    counts: dict[Mark, int]
    #: How many tasks have each mark as their most important one: each task is counted once.
    leading: dict[Mark, int]
    #: By task, its marks as a sum of bits; tasks without marks are left out.
    bits: dict[str, int]
    #: Tasks that no member may run, by name.
    unowned: tuple[str, ...] = ()
    #: Tasks with a breached deadline, the longest breached first.
    late: tuple[Standout, ...] = ()
    #: Tasks that are due and have not begun, the longest overdue first.
    overdue: tuple[Standout, ...] = ()
    #: Tasks whose last run failed, the latest failure first.
    failing: tuple[Standout, ...] = ()
    #: Tasks with a run that no member holds, by name.
    waiting: tuple[str, ...] = ()
    #: Tasks whose last success left a part undone, by name.
    degraded: tuple[str, ...] = ()
    #: The tasks that are due next.
    coming: tuple[ComingTask, ...] = ()
    #: How many tasks are due within `AHEAD_US`.
    coming_tasks: int = 0
    #: How many occurrences are due within `AHEAD_US`, as `node.duty.timetable` counts them.
    coming_count: int = 0
    #: How many of these occurrences are in a blackout.
    coming_held: int = 0
    #: How many of the `coming_tasks` have more occurrences than are counted.
    coming_cut: int = 0
    #: How many occurrences are due in each of the `STEPS` steps of `AHEAD_US`.
    density: tuple[int, ...] = (0,) * STEPS
    #: By task, when its first undecided occurrence is due, in microseconds since the epoch.
    due: Mapping[str, int] = field(default_factory=dict)
    #: By task, the set of files in which it is kept; tasks without a set are left out.
    sets: Mapping[str, str] = field(default_factory=dict)
    #: By task, its labels as NAME=VALUE; tasks without labels are left out.
    labels: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def has(self, task: str, mark: Mark) -> bool:
        """Return whether a task has a mark."""
        return bool(self.bits.get(task, 0) & _BITS[mark])

    def leads(self, task: str, mark: Mark) -> bool:
        """Return whether a mark is the most important one of a task."""
        bits = self.bits.get(task, 0)
        return bits & -bits == _BITS[mark]

    def rank(self, task: str) -> int:
        """Return the position of a task's most important mark in `MARKS`, from 0; their number if it has no mark."""
        bits = self.bits.get(task, 0)
        return (bits & -bits).bit_length() - 1 if bits else len(MARKS)


class TaskBoard:
    """Makes pictures of successive states. Used by one thread at a time.

    Facts that depend on a task's row alone are kept until the row changes. Only tasks that have runs, are due or have
    no owner are looked at each time: of 100,000 tasks these are few.
    """

    def __init__(self) -> None:
        self._rows: dict[str, TaskRow] = {}
        self._due: dict[str, int] = {}
        self._timing: dict[str, TaskTiming] = {}
        self._bits: dict[str, int] = {}
        self._failing: dict[str, int] = {}
        self._late: dict[str, int] = {}
        self._sets: dict[str, str] = {}
        self._labels: dict[str, frozenset[str]] = {}
        own = (self._due, self._timing, self._bits, self._failing, self._late, self._sets, self._labels)
        self._kept: tuple[dict[str, Any], ...] = own
        self._calendars: Calendars = Map()
        self._ownership: Ownership | None = None
        self._unowned: tuple[str, ...] = ()

    def read(self, state: State, ownership: Ownership, now_us: int) -> Picture:
        """Make the picture of `state` at `now_us`."""
        self._follow(state)
        if ownership is not self._ownership:
            self._unowned = tuple(task for task in self._rows if ownership.owner(task) is None)
            self._ownership = ownership
        near = [(due_us, task) for task, due_us in self._due.items() if due_us <= now_us + AHEAD_US]
        span = TimeSpan(now_us, now_us + AHEAD_US)
        coming = self._coming(near, span, state.blackouts)
        bits, overdue = dict(self._bits), []
        for task in {*state.runs_of, *self._unowned, *(task for due_us, task in near if due_us <= now_us)}:
            if (row := state.tasks.get(task)) is None:
                continue  # a run of a task that was deleted
            found = marks_of(state, task, row, self._due.get(task), ownership.owner(task), now_us)
            bits[task] = _bits_of(found)
            if (since_us := found.get("overdue")) is not None:
                overdue.append((since_us, task))
        counts = Counter(bits.values())
        late = ((at_us, task) for task, at_us in self._late.items())
        failing = heapq.nlargest(LISTED_MAX, ((at_us, task) for task, at_us in self._failing.items()))
        return Picture(
            now_us=now_us,
            index=state.index,
            total=len(state.tasks),
            counts={mark: sum(n for value, n in counts.items() if value & bit) for mark, bit in _BITS.items()},
            leading={
                mark: sum(n for value, n in counts.items() if value & -value == bit) for mark, bit in _BITS.items()
            },
            bits=bits,
            unowned=_named(bits, "unowned"),
            late=tuple(Standout(*one) for one in heapq.nsmallest(LISTED_MAX, late)),
            overdue=tuple(Standout(*one) for one in heapq.nsmallest(LISTED_MAX, overdue)),
            failing=tuple(Standout(*one) for one in failing),
            waiting=_named(bits, "waiting"),
            degraded=_named(bits, "degraded"),
            coming=_next(state, coming),
            coming_held=sum(one.held for one in coming),
            coming_tasks=len(coming),
            coming_count=sum(len(one.times) for one in coming),
            coming_cut=sum(one.cut for one in coming),
            density=tuple(starts_of(coming, span, STEPS)),
            due=dict(self._due),
            sets=dict(self._sets),
            labels=dict(self._labels),
        )

    def _coming(self, near: Iterable[tuple[int, str]], span: TimeSpan, blackouts: Blackouts) -> list[UpcomingTask]:
        """Return the occurrences within `span` of the tasks in `near`, which has each first undecided occurrence."""
        lines = CronTimes(span, self._calendars, blackouts)
        found = (
            upcoming(task, self._rows[task], lines, self._timing[task], due_us if due_us > span.from_us else None)
            for due_us, task in near
        )
        return [one for one in found if one is not None and not one.continuous]

    def _follow(self, state: State) -> None:
        """Compute again the kept facts of the tasks that have changed."""
        rows = self._rows
        changed = [(task, row) for task, row in state.tasks.items() if rows.get(task) is not row]
        if state.calendars is not self._calendars:
            self._calendars = state.calendars
            users = sorted({task for one in state.calendars.values() for task in one.tasks})
            changed += [(task, row) for task in users if (row := state.tasks.get(task)) is rows.get(task) and row]
        for task, row in changed:
            self._forget(task)
            rows[task] = row
            if (due_us := first_due_us(state.calendars, row)) is not None:
                self._due[task], self._timing[task] = due_us, row.timing
            found = _marks_of_row(row)
            if found:
                self._bits[task] = _bits_of(found)
            if "failing" in found:
                self._failing[task] = found["failing"]
            if "late" in found:
                self._late[task] = found["late"]
            if (kept_in := set_of(row.spec_packed)) is not None:
                self._sets[task] = kept_in
            if labels := labels_of(row.spec_packed):
                self._labels[task] = frozenset(f"{name}={value}" for name, value in labels.items())
        if len(rows) > len(state.tasks):
            for task in [task for task in rows if task not in state.tasks]:
                self._forget(task)
                del rows[task]

    def _forget(self, task: str) -> None:
        for kept in self._kept:
            kept.pop(task, None)


def marks_of(
    state: State, task: str, row: TaskRow, due_us: int | None, owner: str | None, now_us: int
) -> dict[Mark, int]:
    """Return the marks of a task, each with the time since when the task has it (0: not known).

    `due_us` is when its first undecided occurrence is due.
    """
    found = _marks_of_row(row)
    runs = [state.runs[run_id] for run_id in state.runs_of.get(task, ())]
    if runs:
        found.pop("new", None)
    if owner is None and "paused" not in found:
        found["unowned"] = 0
    since_us = unbegun_since_us(state, task) if runs else due_us
    held = state.blackouts and blackout_of(state.blackouts, row.spec_packed, now_us) is not None
    if since_us is not None and since_us <= now_us - OVERDUE_US and not held:
        found["overdue"] = since_us
    if any(run.state in HELD for run in runs):
        found["running"] = 0
    if any(run.state not in HELD for run in runs):
        found["waiting"] = 0
    return found


def _marks_of_row(row: TaskRow) -> dict[Mark, int]:
    """Return the marks that follow from a task's row alone: as if it had no runs, had an owner and were not due."""
    found: dict[Mark, int] = {}
    if row.paused or not row.timing.enabled:
        found["paused"] = 0
    elif row.last is not None and row.last.state in FAILED:
        found["failing"] = row.last.finished_at_us
    if row.last is None:
        found["new"] = 0
    if row.degraded:
        found["degraded"] = 0
    if row.breaches:
        found["late"] = min(breach.since_us for breach in row.breaches)
    return found


def _bits_of(marks: Iterable[Mark]) -> int:
    return sum(_BITS[mark] for mark in marks)


def first_due_us(calendars: Calendars, row: TaskRow) -> int | None:
    """Return when a task's first undecided occurrence is due; None if there is none."""
    due_us = next_occurrence_us(calendars, row, row.through_us)
    return row.since_us if due_us == 0 else due_us  # 0: a continuous task, which is due at once


def _named(bits: dict[str, int], mark: Mark) -> tuple[str, ...]:
    return tuple(heapq.nsmallest(LISTED_MAX, (task for task, value in bits.items() if value & _BITS[mark])))


def _next(state: State, coming: list[UpcomingTask]) -> tuple[ComingTask, ...]:
    first = heapq.nsmallest(LISTED_MAX, coming, key=lambda one: (one.times[0], one.task))
    return tuple(
        ComingTask(
            one.times[0],
            one.task,
            len(one.times),
            held_time(state, state.tasks[one.task], one.times[0]) if one.held else None,
        )
        for one in first
    )
