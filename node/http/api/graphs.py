"""What stands between tasks: the tasks before and after one, and an occurrence on its way through them."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic, thread_time
from typing import Annotated, Final, NamedTuple

from aiohttp import web
from pydantic import Field
from pydantic_core import to_json
from typing_extensions import TypedDict

from node.duty.task_graph import (
    PassageState,
    TaskChoice,
    TaskFamilies,
    TaskGraph,
    TaskPassage,
    families,
    looked_up,
    neighbours,
    occurrences_of,
    passages_now,
    passages_of,
    under_way,
)
from node.history.file import RunPosition
from node.http.api.runs import find_run
from node.http.api.shapes import RequestModel, Time
from node.http.api.tasks import known_task
from node.http.api.what_ifs import is_spared
from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.problems import invalid_field
from node.http.door.request_context import RequestContext
from node.http.node_port import HistoryPort
from node.state.times import micros, rfc3339, rfc3339_or_none
from node.state.value import EndedRun, OccurrenceId, State
from tasks.definition.after import end_of
from tasks.definition.spec import set_of
from tasks.definition.written_time import WrittenTime


class GraphTaskView(TypedDict):
    """How a task is, now or for the occurrence. `layer`: the longest way to it from a task without parents.

    `state` is that of its run; or pending (it waits for the tasks in `waits_for`, or its time has not come), none (it
    has no part in the occurrence, or no record is kept), paused, disabled or new (it has not run yet, except for
    backfills). `since` is when that began: the run ended, its attempt began, or the occurrence was due. `node` and
    `attempt` are those of the present or latest attempt. `detail` says in words what it waits for, where it runs, or
    why it failed.
    """

    task: str
    set: str | None
    layer: int
    state: PassageState
    detail: str
    since: Time | None
    run_id: str | None
    node: str | None
    attempt: int | None
    waits_for: list[str]


GraphEdgeView = TypedDict("GraphEdgeView", {"from": str, "to": str, "on": str})
"""The task `to` comes after the task `from`: once it has succeeded, failed or ended (`on`)."""


class OccurrenceView(TypedDict):
    """An occurrence that tasks share: the time of the schedule, and the number of its rerun; null: it is none."""

    at: Time
    rerun: int | None


class GraphView(TypedDict):
    """Tasks, parents first, and what comes after what.

    `occurrence` is the one that the tasks' states are about; null: they are the present ones. `occurrences` are those
    that are under way in these tasks, and the latest of `task`, newest first. `left_out` is how many tasks more are
    before or after it; those of the API's limit are the nearest.
    """

    task: str | None
    occurrence: OccurrenceView | None
    occurrences: list[OccurrenceView]
    tasks: list[GraphTaskView]
    edges: list[GraphEdgeView]
    left_out: int


class FamiliesView(GraphView):
    """The tasks of a choice. `tasks` are those that come after others, or before others; `alone` are the others.

    `left_out` and `alone_left_out` are how many more there are of each.
    """

    alone: list[GraphTaskView]
    alone_left_out: int


class FamiliesQuery(RequestModel):
    """Which tasks to show."""

    set: str | None = Field(default=None, description="Only those of this set of files (`rota apply --set`)")
    label: str | None = Field(default=None, max_length=1000, description="Only those with this label, as NAME=VALUE")
    limit: Annotated[int, Field(ge=1, le=1000, description="How many tasks at most, and how many alone")] = 1000


class GraphQuery(RequestModel):
    """Which occurrence to show; by default the present states."""

    at: WrittenTime | None = Field(default=None, description="The latest known occurrence at or before this time")
    run_id: str | None = Field(default=None, description="The occurrence of this run")
    limit: Annotated[int, Field(ge=1, le=1000, description="How many tasks at most")] = 200


endpoints = Endpoints("tasks")

OCCURRENCES_MAX: Final = 10
_KNOWN: Final = 100
"""In how many of a task's latest runs, and of those before a given time, an occurrence is looked for."""

_NEAR, _LATEST = 5, 30
"""In how many runs of a task the run of an occurrence is looked for: of those made up to the time where it belongs, and
then of the latest ones."""

_LATE_US: Final = 60_000_000
"""The run of an occurrence is first looked for among those made until this long after its last parent's end."""


class DrawnGraph(NamedTuple):
    """The graph of a task, how each of its tasks is (for `occurrence`, if it is not None), and known occurrences."""

    graph: TaskGraph
    passages: Mapping[str, TaskPassage]
    occurrence: OccurrenceId | None
    occurrences: tuple[OccurrenceId, ...]


@endpoints.add("GET", "/v1/graph", {200: ResponseSpec("The tasks", FamiliesView)}, ("invalid",))
async def graph(context: RequestContext, query: FamiliesQuery) -> web.Response:
    """Show the tasks that come after others, or before others, how each of them is now, and the tasks alone.

    With `set` or `label`, the tasks of this choice, and what is between them. It is used again for some seconds where
    it is expensive.
    """
    drawn = await drawn_families(context, TaskChoice(query.set, query.label), query.limit)
    return context.answer_packed(await asyncio.to_thread(_packed, drawn))


class DrawnFamilies(NamedTuple):
    """The tasks of a choice, how each of them is, and the state from which that was read."""

    families: TaskFamilies
    passages: Mapping[str, TaskPassage]
    state: State


OLD_S: Final = 10.0
"""Tasks of an earlier state are shown no longer than this, in seconds, whatever processor time it cost."""

KEPT: Final = 16
"""How many choices are kept."""


@dataclass
class FamilyKeeper:
    """The latest choices of tasks of one server. `now_s` is a monotonic clock, `spent_s` a thread's processor time."""

    now_s: Callable[[], float] = monotonic
    spent_s: Callable[[], float] = thread_time
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _drawn: dict[tuple[TaskChoice, int], tuple[DrawnFamilies, float, float]] = field(default_factory=dict)

    async def drawn(self, state: State, choice: TaskChoice, most: int, now_us: int) -> DrawnFamilies:
        """Return the tasks of a choice in `state`, or in a slightly earlier one."""
        async with self._lock:
            kept = self._drawn.pop((choice, most), None)
            if kept is None or not self._is_fresh(*kept, state):
                kept = await asyncio.to_thread(self._make, state, choice, most, now_us)
            self._drawn[choice, most] = kept  # now the last in the order; the first is forgotten
            while len(self._drawn) > KEPT:
                del self._drawn[next(iter(self._drawn))]
            return kept[0]

    def _is_fresh(self, made: DrawnFamilies, made_s: float, cost_s: float, state: State) -> bool:
        return made.state is state or is_spared(self.now_s() - made_s, cost_s, OLD_S)

    def _make(self, state: State, choice: TaskChoice, most: int, now_us: int) -> tuple[DrawnFamilies, float, float]:
        began_s = self.spent_s()
        found = families(state, choice, most)
        passages = passages_now(state, (*found.graph.tasks, *found.alone), now_us)
        return DrawnFamilies(found, passages, state), self.now_s(), self.spent_s() - began_s


async def drawn_families(context: RequestContext, choice: TaskChoice, most: int) -> DrawnFamilies:
    """Return the tasks of a choice, `most` linked and `most` alone at most, and how each of them is."""
    return await context.server.kept(FamilyKeeper).drawn(context.state, choice, most, context.server.now_us())


def _packed(drawn: DrawnFamilies) -> bytes:
    found, passages, state = drawn
    view: FamiliesView = {
        **graph_view(state, None, DrawnGraph(found.graph, passages, None, ())),
        "alone": [_task_view(state, name, 0, passages[name]) for name in found.alone],
        "alone_left_out": found.alone_left_out,
    }
    return to_json(view)


@endpoints.add("GET", "/v1/tasks/{name}/graph", {200: ResponseSpec("The tasks", GraphView)}, ("not-found", "invalid"))
async def task_graph(context: RequestContext, query: GraphQuery) -> web.Response:
    """Show the tasks before and after a task, and how each of them is: now, or for one occurrence on its way."""
    name = known_task(context)
    state = context.state
    found = await drawn_graph(context, name, query)
    return context.answer(graph_view(state, name, found))


async def drawn_graph(context: RequestContext, task: str, query: GraphQuery) -> DrawnGraph:
    """Return the graph of `task`, which must be in the state, as a query asks for it. Raises `Problem`."""
    state, now_us = context.state, context.server.now_us()
    graph = neighbours(state, task, query.limit)
    history = context.node.history
    at_us = None if query.at is None else micros(query.at)
    known = await asyncio.to_thread(_known, history, state, graph, task, at_us)
    shown = tuple(known[:OCCURRENCES_MAX])
    if query.run_id is not None:
        run = await find_run(context, query.run_id)
        run = run.run if isinstance(run, EndedRun) else run
        if run.task != task or run.occurrence is None:
            why = f"is a run of {run.task}, not of {task}" if run.task != task else "was started alone, by hand"
            raise invalid_field("run_id", f"{query.run_id} {why}", "the query")
        occurrence: OccurrenceId | None = run.occurrence
    elif at_us is not None:
        occurrence = next((one for one in known if one.nominal_us <= at_us), None)
        if occurrence is None:
            raise invalid_field("at", f"no occurrence of {task} at or before this time is known", "the query")
    else:
        return DrawnGraph(graph, passages_now(state, graph.tasks, now_us), None, shown)
    assert occurrence is not None
    occurrences = occurrences_of(state, graph, task, occurrence)
    ended = await asyncio.to_thread(ended_runs, history, state, graph, occurrences)
    return DrawnGraph(graph, passages_of(state, graph, occurrences, ended, now_us), occurrence, shown)


def _known(history: HistoryPort, state: State, graph: TaskGraph, task: str, at_us: int | None) -> list[OccurrenceId]:
    """Return occurrences that are under way, or have ended for `task`, newest first. Reads the disk."""
    found = set(under_way(state, graph, task))
    befores = [None] if at_us is None else [None, RunPosition(at_us + _LATE_US, "")]
    for before in befores:
        for ended in history.runs(task, None, None, before, _KNOWN):
            if (occurrence := ended.run.occurrence) is not None:
                found.add(occurrence)
    return sorted(found, reverse=True)


def ended_runs(
    history: HistoryPort, state: State, graph: TaskGraph, occurrences: Mapping[str, OccurrenceId]
) -> dict[str, EndedRun]:
    """Return the runs of these occurrences, by task, that have ended. Reads the disk."""
    parents: dict[str, list[str]] = {}
    for edge in graph.edges:
        parents.setdefault(edge.child, []).append(edge.parent)
    found: dict[str, EndedRun] = {}
    for task in looked_up(state, graph, occurrences):
        occurrence = occurrences[task]
        ends_us = [found[name].finished_at_us for name in parents.get(task, ()) if name in found]
        made_us = max([occurrence.nominal_us, *ends_us])
        for before, limit in ((RunPosition(made_us + _LATE_US, ""), _NEAR), (None, _LATEST)):
            portion = history.runs(task, None, None, before, limit)
            ended = _ended(portion, occurrence, on_each=task in state.each)
            if ended is not None:
                found[task] = ended
                break
    return found


def _ended(runs: Sequence[EndedRun], occurrence: OccurrenceId, *, on_each: bool) -> EndedRun | None:
    """Return the run of an occurrence; of a task that has one on each member, the one that ended worst."""
    found = [one for one in runs if _is_of(one, occurrence)]
    if on_each:
        found.sort(key=lambda one: ("failed", "skipped", "succeeded").index(end_of(one.state)))
    return found[0] if found else None


def _is_of(ended: EndedRun, occurrence: OccurrenceId) -> bool:
    if ended.series is None or ended.run.occurrence is None:
        return ended.run.occurrence == occurrence
    first_us, last_us = ended.run.occurrence.nominal_us, ended.series.last_fire_at_us
    return not occurrence.generation and first_us <= occurrence.nominal_us <= last_us


def graph_view(state: State, task: str | None, found: DrawnGraph) -> GraphView:
    """Return a graph as the API shows it."""
    return {
        "task": task,
        "occurrence": None if found.occurrence is None else occurrence_view(found.occurrence),
        "occurrences": [occurrence_view(one) for one in found.occurrences],
        "tasks": [_task_view(state, name, layer, found.passages[name]) for name, layer in found.graph.layers.items()],
        "edges": [{"from": one.parent, "to": one.child, "on": one.on} for one in found.graph.edges],
        "left_out": found.graph.left_out,
    }


def _task_view(state: State, name: str, layer: int, passage: TaskPassage) -> GraphTaskView:
    return {
        "task": name,
        "set": set_of(state.tasks[name].spec_packed),
        "layer": layer,
        "state": passage.state,
        "detail": passage.words,
        "since": rfc3339_or_none(passage.since_us),
        "run_id": passage.run_id,
        "node": passage.node,
        "attempt": passage.attempt,
        "waits_for": list(passage.waits_for),
    }


def occurrence_view(occurrence: OccurrenceId) -> OccurrenceView:
    """Return an occurrence as the API shows it."""
    return {"at": rfc3339(occurrence.nominal_us), "rerun": occurrence.generation or None}
