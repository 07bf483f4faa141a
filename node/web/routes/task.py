"""The page of one task: its state and why, who owns it, when it is due, its runs, and figures for the chart."""

from aiohttp import web

from node.http.api.tasks import known_task
from node.http.door.endpoint import ResponseSpec
from node.http.door.request_context import RequestContext
from node.web.page_endpoints import PageEndpoints
from node.web.rendering import HEADERS, page
from node.web.requests import TaskPageQuery
from node.web.task_values import definition_values, figures, past_values, task_values

endpoints = PageEndpoints("page")

PANEL_RUNS = 5
"""How many runs the panel beside the list of tasks shows."""


@endpoints.page("/tasks/{name}")
async def task_page(context: RequestContext, query: TaskPageQuery) -> web.Response:
    """A task; with `part`, one part of its page."""
    name = known_task(context)
    match query.part:
        case "now":
            return page(context, "parts/task_now.html", **await task_values(context, name))
        case "past":
            return page(context, "parts/task_past.html", **await past_values(context, name, query.after))
        case "panel":
            past = await past_values(context, name, None, PANEL_RUNS)
            # The panel is a part of the list of tasks, at /tasks.
            return page(context, "parts/panel.html", root="./", **past, **await task_values(context, name))
        case "definition":
            return page(context, "parts/task_definition.html", **await definition_values(context, name))
    values = await task_values(context, name) | await past_values(context, name, query.after)
    return page(context, "task.html", **values | await definition_values(context, name))


@endpoints.add(
    "GET",
    "/tasks/{name}/figures",
    {200: ResponseSpec("Durations and amounts of its latest runs", dict)},
    access="browser",
)
async def task_figures(context: RequestContext) -> web.Response:
    """What the chart of a task's page shows, as JSON."""
    response = context.answer(await figures(context, known_task(context)))
    response.headers.update(HEADERS)
    return response
