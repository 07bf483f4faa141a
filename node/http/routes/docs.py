"""The OpenAPI description, and a page that shows it; both work offline and behind a path prefix."""

from typing import Final

from aiohttp import web
from swagger_ui_bundle import swagger_ui_path

from node.http.docs_page import PAGE, POLICY, SCRIPT
from node.http.endpoint import Endpoints, ResponseSpec
from node.http.openapi import openapi_document
from node.http.problems import Problem
from node.http.request_context import RequestContext

endpoints = Endpoints("description")

_TYPES: Final = {
    "swagger-ui.css": "text/css",
    "swagger-ui-bundle.js": "text/javascript",
    "favicon-32x32.png": "image/png",
}
_START: Final = "start.js"


@endpoints.add("GET", "/openapi.json", {200: ResponseSpec("OpenAPI 3.1", dict)}, access="page")
async def openapi(context: RequestContext) -> web.Response:
    """This description, generated from the models that validate requests."""
    return context.answer(openapi_document(context.server.endpoints, secured=context.node.facts.token is not None))


@endpoints.add("GET", "/docs", {200: ResponseSpec("A page", str, "text/html")}, access="page")
async def docs(context: RequestContext) -> web.Response:
    """A page that shows this description and lets you try it."""
    return web.Response(text=PAGE, content_type="text/html", headers=POLICY)


@endpoints.add(
    "GET",
    "/docs/{asset}",
    {200: ResponseSpec("A part of the page", str, "text/javascript")},
    ("not-found",),
    access="page",
)
async def asset(context: RequestContext) -> web.Response:
    """A part of that page: its scripts, styles and icon."""
    name = context.path("asset")
    if name == _START:
        return web.Response(text=SCRIPT, content_type="text/javascript", headers=POLICY)
    if name not in _TYPES:
        raise Problem("not-found", "the page has no such part")
    body = (swagger_ui_path / name).read_bytes()
    return web.Response(body=body, content_type=_TYPES[name], headers={**POLICY, "Cache-Control": "max-age=3600"})
