"""The description of all this, and a page that shows it: works without the Internet, and behind a prefix."""

from typing import Final

from aiohttp import web
from swagger_ui_bundle import swagger_ui_path

from node.http.docs_page import PAGE, POLICY, SCRIPT
from node.http.endpoint import Endpoints, Says
from node.http.openapi import described
from node.http.problems import Problem
from node.http.request_context import Call

endpoints = Endpoints("description")

_TYPES: Final = {
    "swagger-ui.css": "text/css",
    "swagger-ui-bundle.js": "text/javascript",
    "favicon-32x32.png": "image/png",
}
_START: Final = "start.js"


@endpoints.add("GET", "/openapi.json", {200: Says("OpenAPI 3.1", dict)}, access="page")
async def openapi(call: Call) -> web.Response:
    """This description, made from the models that check what is sent."""
    return call.answer(described(call.service.endpoints, secured=call.node.facts.token is not None))


@endpoints.add("GET", "/docs", {200: Says("A page", str, "text/html")}, access="page")
async def docs(call: Call) -> web.Response:
    """A page that shows this description and lets you try it."""
    return web.Response(text=PAGE, content_type="text/html", headers=POLICY)


@endpoints.add(
    "GET", "/docs/{asset}", {200: Says("A part of the page", str, "text/javascript")}, ("not-found",), access="page"
)
async def asset(call: Call) -> web.Response:
    """A part of that page: its scripts, styles and icon."""
    name = call.path("asset")
    if name == _START:
        return web.Response(text=SCRIPT, content_type="text/javascript", headers=POLICY)
    if name not in _TYPES:
        raise Problem("not-found", "the page has no such part")
    body = (swagger_ui_path / name).read_bytes()
    return web.Response(body=body, content_type=_TYPES[name], headers={**POLICY, "Cache-Control": "max-age=3600"})


@endpoints.add("GET", "/", {302: Says("To the page that describes this")}, access="page")
async def root(call: Call) -> web.Response:
    """To /docs, until there is a page here."""
    return web.Response(status=302, headers={"Location": "docs"})
