"""The page of one run: its progress, attempts, checkpoint, error, result and log."""

from aiohttp import web

from node.http.door.request_context import RequestContext
from node.web.page_endpoints import PageEndpoints
from node.web.rendering import page
from node.web.requests import RunPageQuery
from node.web.run_values import run_values

endpoints = PageEndpoints("page")


@endpoints.page("/runs/{run_id}")
async def run_page(context: RequestContext, query: RunPageQuery) -> web.Response:
    """A run; with `part=now`, what changes while it works."""
    template = "parts/run_now.html" if query.part == "now" else "run.html"
    return page(context, template, **await run_values(context, context.path("run_id")))
