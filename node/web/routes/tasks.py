"""The page of tasks: search, filters, and buttons to run and to pause."""

from aiohttp import web

from node.http.door.request_context import RequestContext
from node.web.page_endpoints import PageEndpoints
from node.web.rendering import page
from node.web.requests import TasksPageQuery
from node.web.task_rows import filter_values, rows_values

endpoints = PageEndpoints("page")


@endpoints.page("/tasks")
async def tasks_page(context: RequestContext, query: TasksPageQuery) -> web.Response:
    """The tasks that fit; with `part=rows`, only the rows."""
    rows = await rows_values(context, query)
    if query.part == "rows":
        return page(context, "parts/rows.html", **rows)
    return page(context, "tasks.html", **rows, **await filter_values(context, query))
