"""The overview at `/`, and its parts, which the open page fetches again when something has happened."""

from typing import Final

from aiohttp import web

from node.http.door.request_context import RequestContext
from node.web.overview_parts import OverviewPart, part_values
from node.web.page_endpoints import PageEndpoints
from node.web.rendering import page
from node.web.requests import OverviewQuery

endpoints = PageEndpoints("page")

_PARTS: Final[tuple[OverviewPart, ...]] = ("verdict", "running", "attention", "coming", "members")


@endpoints.page("/")
async def overview(context: RequestContext, query: OverviewQuery) -> web.Response:
    """What runs, what comes next, and what is wrong; with `part`, one part of it."""
    if query.part is not None:
        return page(context, f"parts/{query.part}.html", **await part_values(context, query.part))
    parts = {part: await part_values(context, part) for part in _PARTS}
    return page(context, "overview.html", parts=parts)
