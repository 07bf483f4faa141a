"""Which tasks come after which: what a set of definitions must satisfy, and which occurrences may still end (pure)."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, Protocol

from immutables import Map

from node.state.value import OccurrenceEnd, OccurrenceId, PendingJoin, Rerun, Run, TaskRow
from tasks.definition.calendars import CalendarRule
from tasks.definition.schedule import may_be_due
from tasks.definition.spec import At, Continuous, Cron, Schedule, after_of, waits_at_times

CHILDREN_MAX: Final = 100
"""The most tasks that may come directly after one task."""

_NAMED_MAX: Final = 10
_ANCESTORS_MAX: Final = 1000

Children = Map[str, tuple[str, ...]]


def with_child(children: Children, child: str, before: TaskRow | None, after: TaskRow | None) -> Children:
    """Return the children of each task once the row of `child` has changed from `before` to `after` (None: no row)."""
    had, has = (
        {one.task for one in after_of(row.spec_packed)} if row is not None else set() for row in (before, after)
    )
    for parent in sorted(had - has):
        left = tuple(name for name in children[parent] if name != child)
        children = children.set(parent, left) if left else children.delete(parent)
    for parent in sorted(has - had):
        children = children.set(parent, tuple(sorted((*children.get(parent, ()), child))))
    return children


def with_descendants(children: Children, tasks: Iterable[str], most: int) -> list[str] | None:
    """Return tasks and all that come after them, sorted by name; None if they are more than `most`."""
    found = set(tasks)
    left = list(found)
    while left:
        for child in children.get(left.pop(), ()):
            if child not in found:
                found.add(child)
                left.append(child)
        if len(found) > most:
            return None
    return sorted(found)


class _Root(NamedTuple):
    """What a task's occurrences descend from: schedule and calendar of one task, or of several (`task` is None).

    A task with a schedule descends from itself alone, though it waits for others.
    """

    task: str | None
    schedule: Schedule | None
    calendar: CalendarRule | None


def fault(tasks: Mapping[str, TaskRow], children: Children, changed: Collection[str]) -> str | None:
    """Say why these definitions cannot stand, where the tasks `changed` are new or changed; None if they can."""
    for name in changed:
        for one in after_of(tasks[name].spec_packed):
            if one.task not in tasks:
                return f"{name} comes after {one.task}, and there is no task {one.task!r}: register that one first"
            if len(children[one.task]) > CHILDREN_MAX:
                return f"{CHILDREN_MAX} tasks at most come directly after one task, and {one.task} has that many"
    roots: dict[str, _Root] = {}
    try:
        for task in _parents_first(tasks, children, changed):
            roots[task] = _root(tasks, roots, task)
    except _Unsound as error:
        return str(error)
    return None


class _Unsound(Exception):
    """The definitions contradict one another."""


def _parents_first(tasks: Mapping[str, TaskRow], children: Children, changed: Iterable[str]) -> Iterator[str]:
    """Yield the tasks that descend from `changed`, and those that they descend from, each once and after its parents.

    Raises `_Unsound` for a cycle.
    """
    done: set[str] = set()
    for start in with_descendants(children, changed, len(tasks)) or ():
        path: dict[str, Iterator[str]] = {}
        todo = start
        while True:
            if todo in path:
                names = list(path)
                circle = [*names[names.index(todo) :], todo]
                shown = " after ".join(circle if len(circle) <= _NAMED_MAX else [*circle[:_NAMED_MAX], "..."])
                raise _Unsound(f"tasks cannot come after one another in a circle: {shown}")
            if todo not in done:
                path[todo] = iter([one.task for one in after_of(tasks[todo].spec_packed) if one.task in tasks])
            while path:
                task, parents = next(reversed(path.items()))
                following = next(parents, None)
                if following is not None:
                    todo = following
                    break
                del path[task]
                done.add(task)
                yield task
            else:
                break


def _root(tasks: Mapping[str, TaskRow], roots: Mapping[str, _Root], task: str) -> _Root:
    row = tasks[task]
    of_parents = {one.task: roots[one.task] for one in after_of(row.spec_packed) if one.task in roots}
    if not of_parents:
        return _Root(task, row.timing.schedule, row.timing.calendar)
    for parent, root in of_parents.items():
        if isinstance(root.schedule, Continuous):
            raise _Unsound(f"{task} comes after {parent}, which is continuous: it has no occurrences that end")
    if row.timing.schedule is not None:
        for parent, root in of_parents.items():
            if root.schedule is None:
                which = "it" if root.task == parent else f"{root.task}, from which it descends,"
                raise _Unsound(
                    f"{task} has a schedule and comes after {parent}, but {which} has none, so there is no occurrence "
                    f"to wait for: give {root.task} a schedule, or take that of {task} away"
                )
        return _Root(task, row.timing.schedule, row.timing.calendar)
    (first, root), *others = of_parents.items()
    for other, its in others:
        if its == root and root.task is not None:
            continue
        if not isinstance(root.schedule, Cron | At) or its[1:] != root[1:]:
            raise _Unsound(
                f"{task} comes after {first} and {other}, whose occurrences have no times in common: let them descend "
                "from one task, or from tasks with the same cron line, time zone and calendar"
            )
        root = _Root(None, root.schedule, root.calendar)
    return root


class Family(Protocol):
    """The part of a state, or of a draft, that says what may still end."""

    @property
    def tasks(self) -> Map[str, TaskRow]:
        """The tasks."""

    @property
    def runs(self) -> Map[str, Run]:
        """The active runs."""

    @property
    def runs_of(self) -> Map[str, tuple[str, ...]]:
        """The ids of the active runs of each task."""

    @property
    def joins(self) -> Map[str, tuple[PendingJoin, ...]]:
        """The pending joins of each task."""

    @property
    def ends(self) -> Map[int, OccurrenceEnd]:
        """The ends that are to be passed on."""

    @property
    def reruns(self) -> Map[int, Rerun]:
        """The reruns under way."""


def may_end(state: Family, task: str, occurrence: OccurrenceId, kept: Collection[tuple[str, int, int]] = ()) -> bool:
    """Whether a task, or one that it descends from, may still end this occurrence.

    `kept`: the ends that are still to be passed on, as (task, time, generation). Of those left out, callers take care.
    """
    seen, left = {task}, [task]
    while left:
        row = state.tasks.get(name := left.pop())
        if (name, *occurrence) in kept:
            return True
        if row is None:
            continue
        if is_under_way(state, name, occurrence) or len(seen) > _ANCESTORS_MAX:
            return True
        after = after_of(row.spec_packed)
        if occurrence.generation:
            rerun = state.reruns.get(occurrence.generation)
            after = tuple(one for one in after if rerun is not None and one.task in rerun.tasks)
        elif not after or waits_at_times(row.spec_packed):
            if _may_be_due(row, occurrence.nominal_us):
                return True
            continue
        elif occurrence.nominal_us <= row.after_us:
            continue
        more = {one.task for one in after} - seen
        seen |= more
        left += sorted(more)
    return False


def is_under_way(state: Family, task: str, occurrence: OccurrenceId) -> bool:
    """Whether a run of a task for this occurrence is active, or the occurrence waits for the tasks before it."""
    if any(state.runs[run_id].occurrence == occurrence for run_id in state.runs_of.get(task, ())):
        return True
    joins = state.joins.get(task, ())
    return any((one.nominal_us, one.generation) == occurrence and not one.decided for one in joins)


def _may_be_due(row: TaskRow, nominal_us: int) -> bool:
    """Whether an occurrence of a task with a schedule is undecided, and may be due."""
    if row.paused or not row.timing.enabled or nominal_us <= row.through_us:
        return False
    return may_be_due(row.timing, row.since_us, nominal_us)
