"""The tasks before and after a task as a graph, and how each of them is: now, or for one occurrence on its way. Pure.

What waits and runs is in the state. How an occurrence ended is in the history, from which callers give the ended runs.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from typing import Final, Literal, NamedTuple

from node.duty.latest import latest_times
from node.duty.standing import first_sentence, run_standing, runs_of
from node.duty.turns import waits_for_pool
from node.state.descent import may_end
from node.state.joins import missing_parents
from node.state.times import rfc3339
from node.state.value import EndedRun, OccurrenceId, PendingJoin, Run, State
from tasks.definition.run import HELD, RunState
from tasks.definition.spec import after_of, labels_of, set_of, waits_at_times

WALKED_MAX: Final = 2000
"""Beyond this many tasks before and after a task, the others are not counted either."""

NAMED_MAX: Final = 5
"""At most this many tasks that a task waits for are named in words."""

_NO_RECORD: Final = "no record of it"

PassageState = Literal[RunState, "pending", "none", "paused", "disabled", "new"]
"""How a task is. `pending`: it waits for the tasks before it, or its time has not come. `none`: it has no part in the
occurrence, or no record of it is kept. `new`: it has not run yet, except for backfills."""


def listed(tasks: Sequence[str]) -> str:
    """Name some tasks in words.

    >>> listed("a"), listed("abc"), listed("abcdefg")
    ('a', 'a, b and c', 'a, b, c, d, e and 2 more')
    """
    if len(tasks) > NAMED_MAX:
        return f"{', '.join(tasks[:NAMED_MAX])} and {len(tasks) - NAMED_MAX} more"
    return " and ".join(filter(None, (", ".join(tasks[:-1]), *tasks[-1:])))


@dataclass(frozen=True, slots=True)
class TaskEdge:
    """The task `child` comes after `parent`, by the end `on`: succeeded, failed or ended."""

    parent: str
    child: str
    on: str


@dataclass(frozen=True, slots=True)
class TaskGraph:
    """Tasks, each after its parents, and the edges between them. `layers`: the longest way from a first task to each.

    `left_out` is how many tasks are not in it, for want of room.
    """

    layers: Mapping[str, int]
    edges: tuple[TaskEdge, ...]
    left_out: int = 0

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of the tasks, parents first."""
        return tuple(self.layers)


@dataclass(frozen=True, slots=True)
class TaskPassage:
    """How a task is, now or for one occurrence."""

    #: How it is.
    state: PassageState
    #: More about it, in words; "": nothing.
    detail: str = ""
    #: Since when, in microseconds since the epoch; None: not known.
    since_us: int | None = None
    #: The run; None: no run.
    run_id: str | None = None
    #: The member of the present or latest attempt; None: no attempt was made.
    node: str | None = None
    #: The number of that attempt; None: no attempt was made.
    attempt: int | None = None
    #: The tasks that it waits for.
    waits_for: tuple[str, ...] = ()
    #: When its next attempt may begin, in microseconds since the epoch; None: it waits for no time.
    until_us: int | None = None

    @property
    def words(self) -> str:
        """Say what it waits for, where it runs, and more about it; "": nothing."""
        return self.words_but_time if self.until_us is None else f"{self.words_but_time} {rfc3339(self.until_us)}"

    @property
    def words_but_time(self) -> str:
        """As `words`, without the time at their end, if they have one.

        >>> one, other = TaskPassage("running", node="node-2", attempt=2), TaskPassage("pending", waits_for=("a", "b"))
        >>> one.words_but_time, other.words_but_time
        ('on node-2, attempt 2', 'waits for a and b')
        """
        waits = f"waits for {listed(self.waits_for)}" if self.waits_for else ""
        here = self.state not in ("waiting", "orphaned")
        where = f"on {self.node}" if self.node is not None and here else ""
        number = f"attempt {self.attempt}" if (self.attempt or 1) > 1 and here else ""
        return ", ".join(filter(None, (waits, where, number, self.detail)))

    @property
    def is_open(self) -> bool:
        """Whether it waits or runs."""
        return self.state in ("pending", "waiting", "orphaned", "claimed", "running")


def neighbours(state: State, task: str, most: int, *, after: bool = True) -> TaskGraph:
    """Return `task`, which must be in `state`, and all tasks before and after it: the `most` nearest ones.

    `after` false: only those before it.
    """
    found, left_out = {task}, 0
    ups, downs = [task], [task] if after else []
    while (ups or downs) and len(found) + left_out <= WALKED_MAX:
        known = set(found)
        ups = sorted({name for one in ups for name in _parents(state, one)} - known)
        downs = sorted({name for one in downs for name in state.children.get(one, ())} - known)
        for name in (*ups, *downs):
            if len(found) < most:
                found.add(name)
            else:
                left_out += 1
    return _graph(state, found, left_out)


def has_neighbours(state: State, task: str) -> bool:
    """Whether there is a task `task`, and tasks directly before or after it."""
    return task in state.tasks and (task in state.children or bool(_parents(state, task)))


class TaskChoice(NamedTuple):
    """Which tasks: those of a set of files, with a label (as NAME=VALUE), or both; None, None: all."""

    set: str | None = None
    label: str | None = None

    def takes(self, packed: bytes) -> bool:
        """Whether a task with this packed definition is chosen."""
        if self.set is not None and set_of(packed) != self.set:
            return False
        if self.label is None:
            return True
        name, _, value = self.label.partition("=")
        return labels_of(packed).get(name) == value


@dataclass(frozen=True, slots=True)
class TaskFamilies:
    """A choice of tasks: those that come after or before others, as a graph, and the rest by name; both up to a limit.

    `graph.left_out` and `alone_left_out` are how many more there are of each.
    """

    graph: TaskGraph
    alone: tuple[str, ...]
    alone_left_out: int = 0


def families(state: State, choice: TaskChoice, most: int) -> TaskFamilies:
    """Return the tasks of a choice: those that are linked come with what they are linked to, as far as it is chosen.

    At most `most` are linked, and at most `most` alone. It visits all tasks, so callers use another thread.
    """
    if choice == TaskChoice():
        linked = {*state.children, *(child for children in state.children.values() for child in children)}
        linked = {name for name in linked if name in state.tasks}
        alone = (name for name in state.tasks if name not in linked)
        alone_count = len(state.tasks) - len(linked)
    else:
        chosen = [name for name, row in state.tasks.items() if choice.takes(row.spec_packed)]
        linked = {name for name in chosen if has_neighbours(state, name)}
        alone = (name for name in chosen if name not in linked)
        alone_count = len(chosen) - len(linked)
    named = tuple(nsmallest(most, alone))
    shown: set[str] = set()
    for name in nsmallest(most, linked):
        if name not in shown and len(shown) < most:
            family = _family(state, name, linked)
            fits = len(shown) + len(family) <= most
            # Of a family that is too large, those that come first; the others are only counted.
            shown.update(family if fits else list(_graph(state, family, 0).layers)[: most - len(shown)])
    return TaskFamilies(_graph(state, shown, len(linked) - len(shown)), named, alone_count - len(named))


def _family(state: State, task: str, among: Container[str]) -> set[str]:
    """Return the tasks of `among` that are linked to `task` through one another: those that were walked to."""
    found, ahead = {task}, [task]
    while ahead and len(found) <= WALKED_MAX:
        name = ahead.pop()
        for other in (*_parents(state, name), *state.children.get(name, ())):
            if other in among and other not in found:
                found.add(other)
                ahead.append(other)
    return found


def _parents(state: State, task: str) -> list[str]:
    row = state.tasks.get(task)
    return [] if row is None else [one.task for one in after_of(row.spec_packed) if one.task in state.tasks]


def _graph(state: State, names: set[str], left_out: int) -> TaskGraph:
    names = {name for name in names if name in state.tasks}
    edges = tuple(
        TaskEdge(one.task, child, one.on)
        for child in sorted(names)
        for one in after_of(state.tasks[child].spec_packed)
        if one.task in names
    )
    layers = dict.fromkeys(sorted(names), 0)
    unmet = dict.fromkeys(names, 0)
    children: dict[str, list[str]] = {name: [] for name in names}
    for edge in edges:
        unmet[edge.child] += 1
        children[edge.parent].append(edge.child)
    ready = [name for name in layers if not unmet[name]]
    while ready:
        name = ready.pop()
        for child in children[name]:
            layers[child] = max(layers[child], layers[name] + 1)
            unmet[child] -= 1
            if not unmet[child]:
                ready.append(child)
    return TaskGraph(dict(sorted(layers.items(), key=lambda item: (item[1], item[0]))), edges, left_out)


def under_way(state: State, graph: TaskGraph, task: str) -> list[OccurrenceId]:
    """Return the occurrences of `task` that have begun and not ended, or of tasks of its graph that share them.

    The newest comes first. A task with a schedule does not share the occurrences of the tasks before it.
    """
    found: set[OccurrenceId] = set()
    for name in _reached(graph, task, lambda edge: not waits_at_times(state.tasks[edge.child].spec_packed)):
        found |= {run.occurrence for run in runs_of(state, name) if run.occurrence is not None}
        found |= {_occurrence(join) for join in state.joins.get(name, ()) if not join.decided}
    return sorted(found, reverse=True)


def _reached(graph: TaskGraph, task: str, goes: Callable[[TaskEdge], bool]) -> set[str]:
    """Return the tasks of a graph before and after `task` on ways of edges that `goes` lets pass, and `task` itself."""
    # Parents are in lower layers, so one pass finds all tasks after a task, and one backwards all before it.
    by_layer = sorted(filter(goes, graph.edges), key=lambda edge: graph.layers[edge.parent])
    before, after = {task}, {task}
    for edge in by_layer:
        if edge.parent in after:
            after.add(edge.child)
    for edge in reversed(by_layer):
        if edge.child in before:
            before.add(edge.parent)
    return before | after


def occurrences_of(state: State, graph: TaskGraph, task: str, occurrence: OccurrenceId) -> dict[str, OccurrenceId]:
    """Return the occurrence of each task of a graph that belongs to `occurrence` of `task`; some may have none.

    Tasks share it. But one with a schedule has times of its own, and waits for the latest occurrences before these.
    """
    found = {task: occurrence}
    for edge in sorted(graph.edges, key=lambda edge: -graph.layers[edge.child]):
        if edge.child in found and edge.parent not in found:
            up = _of_parent(state, edge, found[edge.child])
            found |= {} if up is None else {edge.parent: up}
    for edge in sorted(graph.edges, key=lambda edge: graph.layers[edge.parent]):
        if edge.parent in found and edge.child not in found:
            down = _of_child(state, edge, found[edge.parent])
            found |= {} if down is None else {edge.child: down}
    return found


def _of_parent(state: State, edge: TaskEdge, occurrence: OccurrenceId) -> OccurrenceId | None:
    row = state.tasks[edge.child]
    if occurrence.generation or not waits_at_times(row.spec_packed):
        return occurrence
    join = _join(state, edge.child, occurrence)
    times = dict(join.times if join is not None else latest_times(state, row, occurrence.nominal_us))
    return OccurrenceId(times[edge.parent]) if times.get(edge.parent) else None


def _of_child(state: State, edge: TaskEdge, occurrence: OccurrenceId) -> OccurrenceId | None:
    if occurrence.generation or not waits_at_times(state.tasks[edge.child].spec_packed):
        return occurrence
    waiting = state.joins.get(edge.child, ())
    return next((_occurrence(one) for one in waiting if (edge.parent, occurrence.nominal_us) in one.times), None)


def _join(state: State, task: str, occurrence: OccurrenceId) -> PendingJoin | None:
    return next((one for one in state.joins.get(task, ()) if _occurrence(one) == occurrence), None)


def _occurrence(join: PendingJoin) -> OccurrenceId:
    return OccurrenceId(join.nominal_us, join.generation)


# -- how each task is


def passages_now(state: State, tasks: Iterable[str], now_us: int) -> dict[str, TaskPassage]:
    """Return how each of these tasks is at `now_us`: what it does, what it waits for, or how its last run ended."""
    return {task: _now(state, task, now_us) for task in tasks}


def _now(state: State, task: str, now_us: int) -> TaskPassage:
    row = state.tasks[task]
    active = sorted(runs_of(state, task), key=lambda run: run.state not in HELD)
    if active:
        return _active(state, active[0], now_us)
    if row.paused or not row.timing.enabled:
        return TaskPassage("paused" if row.paused else "disabled")
    joins = [join for join in state.joins.get(task, ()) if not join.decided]
    if joins:
        return _joining(state, joins[0])
    if row.last is None:
        return TaskPassage("new", "it has not run yet, except for backfills")
    return TaskPassage(row.last.state, first_sentence(row.last.error), row.last.finished_at_us, row.last.run_id)


def passages_of(
    state: State,
    graph: TaskGraph,
    occurrences: Mapping[str, OccurrenceId],
    ended: Mapping[str, EndedRun],
    now_us: int,
) -> dict[str, TaskPassage]:
    """Return how each task of a graph is for its occurrence. `ended`: the runs of these occurrences that have ended."""
    found: dict[str, TaskPassage] = {}
    for task in graph.tasks:
        occurrence = occurrences.get(task)
        if occurrence is None:
            found[task] = TaskPassage("none", _NO_RECORD)
        elif (run := _run(state, task, occurrence)) is not None:
            found[task] = _active(state, run, now_us)
        elif task in ended:
            found[task] = _ended(ended[task])
        elif (join := _join(state, task, occurrence)) is not None and not join.decided:
            found[task] = _joining(state, join)
        else:
            found[task] = _to_come(state, task, occurrence, found)
    return found


def looked_up(state: State, graph: TaskGraph, occurrences: Mapping[str, OccurrenceId]) -> list[str]:
    """Return the tasks of a graph, parents first, of which the history may know how their occurrences ended."""
    return [task for task in graph.tasks if task in occurrences and not _is_in_state(state, task, occurrences[task])]


def _run(state: State, task: str, occurrence: OccurrenceId) -> Run | None:
    return next((run for run in runs_of(state, task) if run.occurrence == occurrence), None)


def _is_in_state(state: State, task: str, occurrence: OccurrenceId) -> bool:
    join = _join(state, task, occurrence)
    waits = join is not None and not join.decided
    return waits or _run(state, task, occurrence) is not None or _is_ahead(state, task, occurrence)


def _is_ahead(state: State, task: str, occurrence: OccurrenceId) -> bool:
    """Whether the occurrence has not been decided on, and is the task's own."""
    row = state.tasks[task]
    if occurrence.generation:
        rerun = state.reruns.get(occurrence.generation)
        return rerun is not None and task in rerun.undecided
    if row.timing.schedule is None and after_of(row.spec_packed):
        return occurrence.nominal_us > max(row.through_us, row.after_us)
    return may_end(state, task, occurrence)


def _to_come(state: State, task: str, occurrence: OccurrenceId, known: Mapping[str, TaskPassage]) -> TaskPassage:
    """Return how a task is of which neither the state nor the history has the occurrence."""
    if not _is_ahead(state, task, occurrence):
        return TaskPassage("none", _NO_RECORD)
    parents = _parents(state, task)
    if occurrence.generation:
        rerun = state.reruns[occurrence.generation]
        parents = [name for name in parents if name in rerun.tasks]
    elif state.tasks[task].timing.schedule is not None:
        return TaskPassage("pending", "its time has not come", occurrence.nominal_us)
    waits_for = tuple(
        name for name in parents if (known[name].is_open if name in known else may_end(state, name, occurrence))
    )
    if parents and not waits_for and not state.ends:
        return TaskPassage("none", _NO_RECORD)  # none of its parents has this occurrence
    return TaskPassage("pending", since_us=occurrence.nominal_us, waits_for=waits_for)


def _joining(state: State, join: PendingJoin) -> TaskPassage:
    missing = tuple(one.task for one in missing_parents(state, state.tasks[join.task], join))
    return TaskPassage("pending", since_us=join.nominal_us, waits_for=missing)


def _active(state: State, run: Run, now_us: int) -> TaskPassage:
    latest = run.attempts[-1] if run.attempts else None
    told = run_standing(state, run, runs_of(state, run.task), state.tasks[run.task], now_us)
    if run.state in HELD and latest is not None:
        since_us: int | None = latest.started_at_us or latest.claimed_at_us
    else:
        since_us = latest.finished_at_us if latest is not None else run.created_at_us
    node, attempt = (latest.node, latest.attempt) if latest is not None else (None, None)
    waits = waits_for_pool(state, run, now_us)
    details = {
        "running": f"being cancelled ({run.cancelling})" if run.cancelling is not None else "",
        "backing_off": f"attempt {attempt} {'was lost' if run.state == 'orphaned' else 'failed'}, next at",
        "behind": "behind another run",
        "blackout": "held by a blackout, until",
        "pool": waits.detail if waits is not None else "",
        "rate": "waits for its rate, next start at",
    }
    return TaskPassage(
        state=run.state,
        detail=details.get(told.code, "due, not claimed yet"),
        since_us=since_us,
        run_id=run.run_id,
        node=node,
        attempt=attempt,
        until_us=told.until_us,
    )


def _ended(ended: EndedRun) -> TaskPassage:
    latest = ended.run.attempts[-1] if ended.run.attempts else None
    told = TaskPassage(ended.state, first_sentence(ended.error), ended.finished_at_us, ended.run.run_id)
    return told if latest is None else replace(told, node=latest.node, attempt=latest.attempt)
