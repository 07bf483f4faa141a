"""The page's style sheet, scripts and icon. They hold nothing of the cluster, and anyone may read them."""

from aiohttp import web

from node.http.endpoint import ResponseSpec
from node.http.problems import Problem
from node.http.request_context import RequestContext
from node.web.assets import assets
from node.web.page_endpoints import PageEndpoints
from node.web.rendering import HEADERS
from node.web.requests import AssetQuery

endpoints = PageEndpoints("page")


@endpoints.add("GET", "/static/{name}", {200: ResponseSpec("The file", str, "text/css")}, access="anyone")
async def static_file(context: RequestContext, query: AssetQuery) -> web.Response:
    """A file of the page. Browsers keep it for as long as its version is asked for."""
    asset = assets().get(context.path("name"))
    if asset is None:
        raise Problem("not-found", "the page has no such file")
    kept = "public, max-age=31536000, immutable" if query.v == asset.version else "no-cache"
    headers = {**HEADERS, "Cache-Control": kept}
    return web.Response(body=asset.body, content_type=asset.media_type, charset="utf-8", headers=headers)
