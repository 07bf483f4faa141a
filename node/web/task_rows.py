"""The rows of the page of tasks, as values for its template."""

import asyncio
from typing import Any, Final
from urllib.parse import urlencode

from node.duty.ownership import Ownership
from node.duty.why_values import Why
from node.http.explaining import unexpectedly_held
from node.http.pages import cursor_of, name_after
from node.http.request_context import RequestContext
from node.http.views import last_view, late_view, next_fire_us
from node.state.value import State
from node.web.board import MARKS, first_due_us, marks_of
from node.web.overview_parts import picture_of
from node.web.requests import TasksPageQuery
from node.web.spark import SparkKeeper
from node.web.task_search import TaskSearch, find, words_of
from node.web.words import schedule_words

ROWS: Final = 50
"""How many tasks a page has."""


async def rows_values(context: RequestContext, query: TasksPageQuery) -> dict[str, Any]:
    """What the template of the rows is given."""
    picture = await picture_of(context)
    state, ownership = context.state, context.node.ownership()
    names = await context.server.task_names.after(state, name_after(query.after))
    search = TaskSearch(words_of(query.q), query.show, query.kind, query.owner)
    found, more = await asyncio.to_thread(find, names, state, ownership, picture, search, ROWS)
    held = await unexpectedly_held(context, found, ownership)
    sparks = await context.server.kept(SparkKeeper).of(context, found)
    now_us = context.server.now_us()
    return {
        "rows": [row_values(state, ownership, task, held.get(task), now_us) for task in found],
        "sparks": sparks,
        "next": _url(query, after=cursor_of(found[-1])) if more else None,
        "first": _url(query) if query.after else None,
        "here": _url(query, after=query.after),
        "chips": [(mark, picture.counts.get(mark, 0), _url(query, show=mark)) for mark in MARKS],
        "all_url": _url(query, show=None),
        "total": len(state.tasks),
        "query": query,
        "filters": [
            (name, value, _url(query, **{name: None}))
            for name, value in (("kind", query.kind), ("owner", query.owner))
            if value is not None
        ],
        "fits_all": search.fits_all,
    }


def row_values(state: State, ownership: Ownership, task: str, held: Why | None, now_us: int) -> dict[str, Any]:
    """A task as its row and its page show it. `held`: why it does not run, if nobody has asked it to wait."""
    row, owner = state.tasks[task], ownership.owner(task)
    marks = marks_of(state, task, row, first_due_us(row), owner, now_us)
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
        "next_us": next_fire_us(row, now_us),
        "schedule": schedule_words(row.timing.schedule),
        "paused": row.paused,
        "disabled": not row.timing.enabled,
        "runs": state.runs_of.get(task, ()),
    }


def _url(query: TasksPageQuery, **changed: str | None) -> str:
    """The page's path with a query that differs from `query` as given. It begins with the first page."""
    given = {**query.model_dump(include={"q", "show", "kind", "owner"}), **changed}
    text = urlencode({name: value for name, value in given.items() if value})
    return "tasks" + (f"?{text}" if text else "")
