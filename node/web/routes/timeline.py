"""The timeline: what ran, runs and is due on each member, as things are or without some members."""

import asyncio

from aiohttp import web

from node.http.door.request_context import RequestContext
from node.web.page_endpoints import PageEndpoints
from node.web.rendering import page
from node.web.requests import TimelineQuery
from node.web.timeline_values import timeline_values

endpoints = PageEndpoints("page")


@endpoints.page("/timeline")
async def timeline(context: RequestContext, query: TimelineQuery) -> web.Response:
    """What ran, runs and is due; with `without` and `back`, what would be due where; with `part=plan`, only that."""
    given = context.request.query
    asked = query.model_copy(update={name: tuple(given.getall(name, ())) for name in ("without", "back")})
    template = "parts/plan.html" if query.part == "plan" else "timeline.html"
    values = await timeline_values(context, asked)
    # Hundreds of bars take tens of milliseconds.
    return await asyncio.to_thread(page, context, template, **values)
