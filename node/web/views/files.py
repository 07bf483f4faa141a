"""Serves the page's style sheets, scripts and icon. They hold no data of the cluster; anyone may read `SIGN_IN`."""

from typing import Final

from aiohttp import web

from node.http.door.endpoint import ResponseSpec
from node.http.door.problems import Problem
from node.http.door.request_context import RequestContext
from node.web.assets import assets
from node.web.page_endpoints import PageEndpoints, ViewQuery
from node.web.rendering import HEADERS


class AssetQuery(ViewQuery):
    """The version of an asset."""

    v: str = ""


endpoints = PageEndpoints("page")

SIGN_IN: Final = ("page.css", "icon.svg")
"""The files that the sign-in page needs."""


@endpoints.add("GET", "/static/{name}", {200: ResponseSpec("The file", str, "text/css")}, access="anyone")
async def static_file(context: RequestContext, query: AssetQuery) -> web.Response:
    """Serve a file of the page. Browsers cache it for a year if `v` is its present version."""
    name = context.path("name")
    asset = assets().get(name)
    if asset is None or (context.role == "guest" and name not in SIGN_IN):
        raise Problem("not-found", "the page has no such file, or it is shown to those who have signed in")
    kept = "private, max-age=31536000, immutable" if query.v == asset.version else "no-cache"
    headers = {**HEADERS, "Cache-Control": kept}
    return web.Response(body=asset.body, content_type=asset.media_type, charset="utf-8", headers=headers)
