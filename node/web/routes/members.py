"""The page of members: how each is, and buttons to drain it."""

from aiohttp import web

from node.http.door.request_context import RequestContext
from node.web.member_cards import cards_values, preview_values
from node.web.page_endpoints import PageEndpoints
from node.web.rendering import page
from node.web.requests import MembersPageQuery

endpoints = PageEndpoints("page")


@endpoints.page("/members")
async def members_page(context: RequestContext, query: MembersPageQuery) -> web.Response:
    """The members; with `part=cards`, only these; with `part=preview`, what draining `member` would move."""
    if query.part == "preview":
        return page(context, "parts/drain_preview.html", **await preview_values(context, query.member))
    template = "parts/member_cards.html" if query.part == "cards" else "members.html"
    return page(context, template, **await cards_values(context))
