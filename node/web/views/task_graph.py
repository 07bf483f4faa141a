"""The graph of a task: the tasks before and after it, now, or with one occurrence on its way through them."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Literal
from urllib.parse import quote, urlencode

from aiohttp import web
from pydantic import Field

from node.duty.task_graph import TaskPassage, under_way
from node.http.api.graphs import GraphQuery, drawn_graph
from node.http.api.tasks import known_task
from node.http.door.request_context import RequestContext
from node.state.times import rfc3339
from node.state.value import OccurrenceId
from node.web.graph_drawing import BOX_HEIGHT, BOX_WIDTH, GraphDrawing, drawing_of, folded
from node.web.page_endpoints import PageEndpoints, ViewQuery
from node.web.rendering import page
from tasks.definition.written_time import WrittenTime

NEAREST_MAX: Final = 300
"""How many tasks are looked at, the nearest ones, unless all are asked for."""

COLUMN_MAX: Final = 12
"""How many tasks of a column are drawn then: those that run, wait or have failed before others."""

ALL_MAX: Final = 1000
"""How many tasks are drawn at most."""

FAILED: Final = ("failed", "timed_out", "abandoned", "upstream_failed", "upstream_late")

OFFERED_MAX: Final = 6
"""How many occurrences are offered to be seen on their way."""

DAY_US: Final = 20 * 3600 * 1_000_000
"""A time that is further back than this is shown as a day, not as a time of day."""


class TaskGraphQuery(ViewQuery):
    """Which occurrence to show (None: how the tasks are now), and whether all tasks, or only the nearest ones."""

    at: WrittenTime | None = None
    run_id: str | None = Field(default=None, max_length=300)
    all: Literal["yes"] | None = None
    part: Literal["graph"] | None = None


endpoints = PageEndpoints("page")


@endpoints.page("/tasks/{name}/graph")
async def task_graph_page(context: RequestContext, query: TaskGraphQuery) -> web.Response:
    """Show the graph of a task; with `part=graph`, only the graph."""
    values = await graph_values(context, known_task(context), query)
    return page(context, "parts/task_graph.html" if query.part == "graph" else "graph.html", **values)


async def graph_values(context: RequestContext, name: str, query: TaskGraphQuery) -> dict[str, Any]:
    """Return the values for the picture of a task's graph, and the same as a table. Raises `Problem`."""
    state, now_us = context.state, context.server.now_us()
    most = ALL_MAX if query.all else NEAREST_MAX
    found = await drawn_graph(context, name, GraphQuery(at=query.at, run_id=query.run_id, limit=most))
    known, graph = found.passages, found.graph
    if not query.all:
        first = {task for task, passage in known.items() if passage.is_open or passage.state in FAILED}
        graph = folded(graph, name, first, COLUMN_MAX)
    drawing = await asyncio.to_thread(drawing_of, graph)
    own = next(box for box in drawing.boxes if box.task == name)
    is_open = frozenset(under_way(state, found.graph, name))
    return {
        "task": name,
        "drawing": drawing,
        "size": (BOX_WIDTH, BOX_HEIGHT),
        "own": own,
        "boxes": boxes_of(drawing, known, found.occurrence, now_us),
        "occurrence": found.occurrence,
        "offered": [(one, _url(name, one), one in is_open) for one in found.occurrences[:OFFERED_MAX]],
        "now_url": _url(name, None),
        "here": _url(name, found.occurrence, query.all),
        "left_out": graph.left_out,
        "all_url": None if query.all else _url(name, found.occurrence, "yes"),
    }


def boxes_of(
    drawing: GraphDrawing, known: Mapping[str, TaskPassage], occurrence: OccurrenceId | None, now_us: int
) -> list[dict[str, Any]]:
    """Return the values for the boxes of a drawing: how each task is, where its box leads, and what is said of it."""
    return [
        {
            "box": box,
            "passage": known[box.task],
            "url": _box_url(box.task, known[box.task], occurrence),
            "said": _said(box.task, known[box.task]),
            "recent": now_us - (known[box.task].since_us or 0) < DAY_US,
        }
        for box in drawing.boxes
    ]


def _url(task: str, occurrence: OccurrenceId | None, every: str | None = None) -> str:
    given = {"at": None if occurrence is None else rfc3339(occurrence.nominal_us), "all": every}
    text = urlencode({key: value for key, value in given.items() if value is not None})
    return f"tasks/{quote(task, safe='')}/graph" + (f"?{text}" if text else "")


def _box_url(task: str, passage: TaskPassage, occurrence: OccurrenceId | None) -> str:
    """Return where a box leads: to the run of the occurrence, if there is one, or to the task."""
    if occurrence is not None and passage.run_id is not None:
        return f"runs/{quote(passage.run_id, safe='')}"
    return f"tasks/{quote(task, safe='')}"


def _said(task: str, passage: TaskPassage) -> str:
    since = f" since {rfc3339(passage.since_us)}" if passage.since_us is not None and passage.is_open else ""
    ended = f" at {rfc3339(passage.since_us)}" if passage.since_us is not None and not passage.is_open else ""
    return f"{task}: {passage.state.replace('_', ' ')}{since}{ended}" + (f", {passage.words}" if passage.words else "")
