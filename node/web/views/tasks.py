"""The page of tasks: a list with search, filters, and buttons to run and pause tasks."""

import asyncio
from typing import Any, Final, Literal, get_args
from urllib.parse import urlencode

from aiohttp import web
from pydantic import Field

from node.duty.conditions import MARKS, Mark
from node.duty.ownership import Ownership
from node.duty.task_graph import TaskChoice
from node.duty.why_values import Why
from node.http.api.explaining import unexpectedly_held
from node.http.api.pages import cursor_of, key_of, name_after
from node.http.api.specs import offered_kinds
from node.http.api.tasks import TaskNames, last_view, late_view, next_fire_us
from node.http.door.request_context import RequestContext
from node.state.value import State
from node.web.board import first_due_us, marks_of
from node.web.board_keeper import picture_of
from node.web.page_endpoints import PageEndpoints, ViewQuery
from node.web.rendering import page
from node.web.sparkline import SparklineKeeper
from node.web.task_search import SortKey, TaskSearch, TaskSort, find, find_sorted, labels_offered, words_of
from node.web.views.set_graph import graph_url
from node.web.words import due_words

ROWS: Final = 50
"""The number of tasks on a page."""


class TasksPageQuery(ViewQuery):
    """Which tasks to show: words of their names, their mark, kind, owner, set and label; and in which order."""

    q: str = Field(default="", max_length=200)
    show: Mark | None = None
    kind: str | None = Field(default=None, max_length=200)
    owner: str | None = Field(default=None, max_length=200)
    set: str | None = Field(default=None, max_length=200)
    label: str | None = Field(default=None, max_length=1000)
    sort: TaskSort = "name"
    after: str | None = Field(default=None, max_length=1500)
    part: Literal["rows"] | None = None


endpoints = PageEndpoints("page")


@endpoints.page("/tasks")
async def tasks_page(context: RequestContext, query: TasksPageQuery) -> web.Response:
    """Show the matching tasks; with `part=rows`, only the rows."""
    rows = await rows_values(context, query)
    if query.part == "rows":
        return page(context, "parts/rows.html", **rows)
    return page(context, "tasks.html", **rows, **await filter_values(context, query))


async def rows_values(context: RequestContext, query: TasksPageQuery) -> dict[str, Any]:
    """Return the values for the template of the rows."""
    picture = await picture_of(context)
    state, ownership = context.state, context.node.ownership()
    search = TaskSearch(
        words=words_of(query.q), show=query.show, kind=query.kind, owner=query.owner, set=query.set, label=query.label
    )
    if query.sort == "name":
        names = await context.server.kept(TaskNames).after(state, name_after(query.after))
        found, more = await asyncio.to_thread(find, names, state, ownership, picture, search, ROWS)
        cursor = cursor_of(found[-1]) if more else None
    else:
        after = None if query.after is None else _place_after(query.sort, query.after)
        asked = (state, ownership, picture, search, query.sort, after, ROWS)
        keys, more = await asyncio.to_thread(find_sorted, *asked)
        found = [name for _, name in keys]
        cursor = cursor_of(*keys[-1]) if more else None
    held = await unexpectedly_held(context, found, ownership)
    sparklines = await context.server.kept(SparklineKeeper).of(context, found)
    now_us = context.server.now_us()
    return {
        "rows": [row_values(state, ownership, task, held.get(task), now_us) for task in found],
        "sparklines": sparklines,
        "next": _url(query, after=cursor) if cursor else None,
        "first": _url(query) if query.after else None,
        "here": _url(query, after=query.after),
        "chips": [(mark, picture.counts.get(mark, 0), _url(query, show=mark)) for mark in MARKS],
        "all_url": _url(query, show=None),
        "total": len(state.tasks),
        "query": query,
        "filters": [
            (name, value, _url(query, **{name: None}))
            for name in ("kind", "owner", "set", "label")
            if (value := getattr(query, name)) is not None
        ],
        "sorts": {sort: _url(query, sort=sort) for sort in get_args(TaskSort)},
        "fits_all": search.fits_all,
        "graph_url": graph_url(TaskChoice(query.set, query.label)) if state.children else None,
    }


def _place_after(sort: TaskSort, cursor: str) -> SortKey:
    """Return the sort key after which a page begins, from its cursor. Raises `Problem`."""
    place, name = key_of(cursor, str if sort in ("owner", "kind") else int, str)
    return place, str(name)


async def filter_values(context: RequestContext, query: TasksPageQuery) -> dict[str, Any]:
    """Return the values for the form above the rows: each filter with its choices, and the chosen one."""
    picture, state = await picture_of(context), context.state
    labels = await asyncio.to_thread(labels_offered, picture, query.label)
    offered = {
        "kind": sorted({*offered_kinds(state), *filter(None, (query.kind,))}),
        "owner": sorted({*state.members, *filter(None, (query.owner,))}),
        "set": sorted({*picture.sets.values(), *filter(None, (query.set,))}),
        "label": labels,
    }
    return {"choices": [(name, values, getattr(query, name)) for name, values in offered.items() if values]}


def row_values(state: State, ownership: Ownership, task: str, held: Why | None, now_us: int) -> dict[str, Any]:
    """Return a task's values for its row and page. `held`: why it does not run, unless somebody asked it to wait."""
    row, owner = state.tasks[task], ownership.owner(task)
    marks = marks_of(state, task, row, first_due_us(state.calendars, row), owner, now_us)
    return {
        "task": task,
        "kind": row.placing.kind,
        "marks": [mark for mark in MARKS if mark in marks] or ["ok" if row.last is not None else "new"],
        "held": held,
        "late": [late["detail"] for late in late_view(row)],
        "owner": owner,
        "last": last_view(row.last),
        "last_us": row.last.finished_at_us if row.last is not None else None,
        "took_s": row.last.took_us / 1e6 if row.last is not None and row.last.took_us is not None else None,
        "next_us": next_fire_us(state.calendars, row, now_us),
        "schedule": due_words(row.spec_packed),
        "paused": row.paused,
        "disabled": not row.timing.enabled,
        "runs": state.runs_of.get(task, ()),
    }


def _url(query: TasksPageQuery, **changed: str | None) -> str:
    """Return the page's link for `query` updated by `changed`. `after` is taken from `changed` only."""
    given = {**query.model_dump(exclude={"after", "part"}), **changed}
    given["sort"] = None if given["sort"] == "name" else given["sort"]
    text = urlencode({name: value for name, value in given.items() if value})
    return "tasks" + (f"?{text}" if text else "")
