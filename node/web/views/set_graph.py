"""The graph of a set of files, of the tasks with a label, or of all tasks: what comes after what, and who is alone."""

import asyncio
from typing import Any, Final, Literal
from urllib.parse import urlencode

from aiohttp import web
from pydantic import Field

from node.duty.task_graph import TaskChoice
from node.http.api.graphs import drawn_families
from node.http.door.request_context import RequestContext
from node.web.board_keeper import picture_of
from node.web.graph_drawing import BOX_HEIGHT, BOX_WIDTH, stacked
from node.web.page_endpoints import PageEndpoints, ViewQuery
from node.web.rendering import page
from node.web.task_search import labels_offered
from node.web.views.task_graph import ALL_MAX, NEAREST_MAX, boxes_of

LIVE_MAX: Final = 100
"""With more tasks than this the page is not kept up to date: to draw it at each event would cost a node too much."""


class SetGraphQuery(ViewQuery):
    """Which tasks: of a set, with a label, or all; and whether as many as can be drawn."""

    set: str | None = Field(default=None, max_length=200)
    label: str | None = Field(default=None, max_length=1000)
    all: Literal["yes"] | None = None
    part: Literal["graph"] | None = None


endpoints = PageEndpoints("page")


@endpoints.page("/graph")
async def set_graph_page(context: RequestContext, query: SetGraphQuery) -> web.Response:
    """Show the graph of tasks; with `part=graph`, only the graph."""
    values = await set_graph_values(context, query)
    template = "parts/set_graph.html" if query.part == "graph" else "set_graph.html"
    # In a thread, because hundreds of boxes take tens of milliseconds.
    return await asyncio.to_thread(page, context, template, **values)


async def set_graph_values(context: RequestContext, query: SetGraphQuery) -> dict[str, Any]:
    """Return the values for the picture of the tasks, and for the list of those that are alone."""
    choice = TaskChoice(query.set or None, query.label or None)
    found = await drawn_families(context, choice, ALL_MAX if query.all else NEAREST_MAX)
    graph, alone = found.families.graph, found.families.alone
    drawing = await asyncio.to_thread(stacked, graph)
    picture, now_us = await picture_of(context), context.server.now_us()
    choices = {
        "set": sorted({*picture.sets.values(), *filter(None, (choice.set,))}),
        "label": await asyncio.to_thread(labels_offered, picture, choice.label),
    }
    return {
        "task": None,
        "own": None,
        "title": _title(choice),
        "drawing": drawing,
        "size": (BOX_WIDTH, BOX_HEIGHT),
        "boxes": await asyncio.to_thread(boxes_of, drawing, found.passages, None, now_us),
        "left_out": graph.left_out,
        "alone": [(name, found.passages[name]) for name in alone],
        "alone_left_out": found.families.alone_left_out,
        "choices": [(name, values, getattr(choice, name)) for name, values in choices.items() if values],
        "live": len(graph.layers) + len(alone) <= LIVE_MAX,
        "here": graph_url(choice, query.all),
        "all_url": None if query.all else graph_url(choice, "yes"),
        "list_url": _with("tasks", choice),
    }


def _title(choice: TaskChoice) -> str:
    """Name the tasks.

    >>> _title(TaskChoice("site", "team=bi")), _title(TaskChoice())
    ('The set site, label team=bi', 'All tasks')
    """
    named = ([f"set {choice.set}"] if choice.set else []) + ([f"label {choice.label}"] if choice.label else [])
    return f"The {', '.join(named)}" if named else "All tasks"


def graph_url(choice: TaskChoice, every: str | None = None) -> str:
    """Return the address of the graph of some tasks, below the page's root."""
    return _with("graph", choice, every)


def _with(where: str, choice: TaskChoice, every: str | None = None) -> str:
    given = {**choice._asdict(), "all": every}
    text = urlencode({name: value for name, value in given.items() if value})
    return where + (f"?{text}" if text else "")
