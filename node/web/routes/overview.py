"""The overview at `/`."""

from aiohttp import web

from node.http.request_context import RequestContext
from node.web.page_endpoints import PageEndpoints
from node.web.rendering import page

endpoints = PageEndpoints("page")


@endpoints.page("/")
async def overview(context: RequestContext) -> web.Response:
    """What runs, what comes next, and what is wrong."""
    return page(context, "overview.html")
