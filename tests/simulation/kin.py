"""Tasks that come after others, as their definitions and the entries say it: parents, ends of occurrences, verdicts.

Worked out anew here, without `node.state.joins` and `node.state.descent`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final, NamedTuple

from node.state.apply import Applied
from node.state.attempts import Cancel
from node.state.calendar import days_of
from node.state.entries import Entry
from node.state.occurrences import Enqueue, SkipOccurrences, Start
from node.state.value import EndedRun, OccurrenceEnd, OccurrenceId, Run, State, TaskRow
from tasks.definition.run import HELD, RunState
from tasks.definition.schedule import occurrences
from tasks.definition.spec import After, after_of

_FAILED: Final = ("failed", "timed_out", "abandoned", "upstream_failed", "upstream_late")

_PREVENTS: Final[dict[tuple[str, str], RunState]] = {
    ("succeeded", "failed"): "upstream_failed",
    ("succeeded", "skipped"): "upstream_skipped",
    ("ended", "skipped"): "upstream_skipped",
    ("failed", "skipped"): "not_needed",
    ("failed", "succeeded"): "not_needed",
}
"""By what a task waits for and how its parent ended: how its occurrence ends without a run."""

_FIRST: Final[tuple[RunState, ...]] = ("upstream_failed", "upstream_skipped", "not_needed")


Registration = tuple[str, int]
"""A task's name, and the number of its registration."""

Occurring = tuple[str, OccurrenceId]
"""A task's name, and an occurrence of it."""


class End(NamedTuple):
    """A task's occurrence has ended: it `succeeded`, `failed`, or was `skipped`."""

    task: str
    occurrence: OccurrenceId
    end: str


def parents_of(state: State, task: str) -> tuple[After, ...]:
    """What a task comes after."""
    row = state.tasks.get(task)
    return () if row is None else after_of(row.spec_packed)


def at_times(state: State, task: str) -> bool:
    """Whether a task comes after others at times of its own."""
    row = state.tasks.get(task)
    return row is not None and bool(row.spec.after) and row.spec.schedule is not None


def latest(state: State, task: str, until_us: int) -> int:
    """The time of a task's latest occurrence up to a time: one that it has had, or that is still to come; 0: none."""
    had = [one.nominal_us for one in state.past_ends.get(task, ())]
    active = [state.runs[one].occurrence for one in state.runs_of.get(task, ())]
    had += [one.nominal_us for one in active if one is not None and not one.generation]
    return max((one for one in (*had, *_scheduled(state, task, until_us)) if one <= until_us), default=0)


def _scheduled(state: State, task: str, until_us: int) -> Iterator[int]:
    """The times of a task up to a time, by its schedule, or by those of all that it descends from."""
    row = state.tasks.get(task)
    if row is None:
        return
    if row.spec.after and row.spec.schedule is None:
        for one in row.spec.after:
            yield from (time_us for time_us in _scheduled(state, one.task, until_us) if time_us > row.after_us)
    else:
        yield from takewhile(lambda one: one <= until_us, _due_us(state, row))


def _due_us(state: State, row: TaskRow) -> Iterator[int]:
    return occurrences(row.spec.schedule, days_of(state.calendars, row.timing), row.since_us, 0)


def children_of(state: State, task: str) -> list[str]:
    """The tasks directly after a task."""
    return sorted(name for name in state.tasks if any(one.task == task for one in parents_of(state, name)))


def all_below(state: State, task: str) -> frozenset[str]:
    """A task and all that come after it."""
    found = {task}
    while more := {child for name in found for child in children_of(state, name)} - found:
        found |= more
    return frozenset(found)


def as_end(state: RunState) -> str:
    """How a run that ended in a state counts for the tasks after it."""
    return "succeeded" if state == "succeeded" else "failed" if state in _FAILED else "skipped"


def fate(parents: Iterable[After], ends: Mapping[str, str]) -> str:
    """What becomes of an occurrence whose parents have all ended: it is `due`, or ends in a state without a run."""
    found = {_PREVENTS.get((one.on, ends[one.task])) for one in parents}
    return next((state for state in _FIRST if state in found), "due")


def of_state(end: OccurrenceEnd) -> End:
    """The same of an end that the state keeps."""
    return End(end.task, OccurrenceId(end.nominal_us, end.generation), end.end)


def decided_by(before: State, applied: Applied) -> Iterator[tuple[Run, RunState]]:
    """What became of occurrences of tasks that come after others: a run of each, and its state after the entry."""
    for one in applied.ended:
        if one.run.trigger == "after" and one.run.run_id not in before.runs:
            yield one.run, one.state
    for task in sorted(applied.touched):
        for run_id in applied.state.runs_of.get(task, ()):
            run = applied.state.runs[run_id]
            if run.trigger == "after" and run_id not in before.runs:
                yield run, run.state


def ends_by(before: State, entry: Entry, applied: Applied, replaced: set[str]) -> list[End]:
    """Which runs and due times an entry ends itself, in their order; what follows from their ends is left out.

    Of the tasks `replaced` it makes other runs due itself.
    """
    ends = []
    for run, ended in _known(before, applied):
        by_another = _was_free(run) and ended.run.cancelling == "replaced" and not isinstance(entry, Cancel)
        if not by_another or run.task in replaced or (isinstance(entry, Start) and entry.task == run.task):
            ends.append(_end_of(ended))
    if isinstance(entry, Enqueue | SkipOccurrences) and not (isinstance(entry, SkipOccurrences) and entry.count):
        through_us = before.tasks[entry.task].through_us
        times = sorted({one for one in entry.fire_at_us if one > through_us})
        queued = applied.result.value["queued"] if isinstance(entry, Enqueue) else 0
        ends += [End(entry.task, OccurrenceId(one), "skipped") for one in times[queued:]]
    return ends


def replaced_by(before: State, applied: Applied, tasks: set[str]) -> list[End]:
    """Which runs have ended because another of their task, one of `tasks`, is due in consequence."""
    known = _known(before, applied)
    ended = [one for run, one in known if _was_free(run) and run.task in tasks]
    return [_end_of(one) for one in ended if one.run.cancelling == "replaced"]


def _was_free(run: Run) -> bool:
    """Whether no member held a run, or an entry took it from a member that was lost, before it was replaced there."""
    return run.state not in HELD or run.cancelling is None


def _known(before: State, applied: Applied) -> Iterator[tuple[Run, EndedRun]]:
    for one in applied.ended:
        run = before.runs.get(one.run.run_id)
        if run is not None and run.occurrence is not None and one.run.cancelling != "deleted":
            yield run, one


def _end_of(ended: EndedRun) -> End:
    assert ended.run.occurrence is not None
    return End(ended.run.task, ended.run.occurrence, as_end(ended.state))


def newest(state: State, task: str) -> int:
    """The number of the latest registration of a task and all that it descends from: a new one may end times again."""
    found, left = {task}, [task]
    while left:
        more = {one.task for one in parents_of(state, left.pop())} - found
        found |= more
        left += more
    return max(state.tasks[name].order for name in found if name in state.tasks)


@dataclass(slots=True)
class Step:
    """What one entry should do: first itself, then, since `itself` is False, because of the ends that it has made.

    `found` is what it does. `made` and `followed` are what should become of occurrences.
    """

    before: State
    after: State
    found: dict[Occurring, tuple[Run, RunState]]
    itself: bool = True
    made: dict[Occurring, str] = field(default_factory=dict)
    followed: dict[Occurring, str] = field(default_factory=dict)

    def registration(self, task: str) -> Registration:
        """The registration of a task that there is after the entry."""
        return task, self.after.tasks[task].order

    def decide(self, task: str, occurrence: OccurrenceId, what: str) -> None:
        """This should become of an occurrence: it is `due`, or ends in a state, or, if `silent`, without a record."""
        (self.made if self.itself else self.followed)[task, occurrence] = what

    def ends(self, decided: Iterable[Occurring]) -> list[End]:
        """The ends of what was decided."""
        ends = []
        for one in decided:
            state = self.found[one][1] if one in self.found else "skipped"
            if state != "waiting":
                ends.append(End(*one, as_end(state)))
        return ends
