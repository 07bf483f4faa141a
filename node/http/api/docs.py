"""The OpenAPI description, and a page that shows it with the bundled Swagger UI.

Both work offline, and also behind a path prefix, because the page's URLs are relative.
"""

from typing import Final

from aiohttp import web
from swagger_ui_bundle import swagger_ui_path

from node.http.api.openapi import openapi_document
from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.problems import Problem
from node.http.door.request_context import RequestContext

POLICY: Final = {
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
"""The headers of the page, which allow only the page's own scripts."""

PAGE: Final = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Rota: HTTP</title>
<link rel="stylesheet" href="docs/swagger-ui.css">
<link rel="icon" type="image/png" href="docs/favicon-32x32.png">
</head>
<body>
<div id="page"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
SCRIPT: Final = r"""// The bundled Swagger UI supports OpenAPI 3.0 only. It can show our 3.1 document once the
// version is 3.0 and "type: null" is written as "nullable".
function asOf30(value) {
  if (Array.isArray(value)) return value.map(asOf30);
  if (value === null || typeof value !== "object") return value;
  const out = {};
  for (const [name, inner] of Object.entries(value)) out[name] = asOf30(inner);
  if (Array.isArray(out.anyOf)) {
    const rest = out.anyOf.filter((one) => one.type !== "null");
    if (rest.length < out.anyOf.length) {
      out.nullable = true;
      delete out.anyOf;
      if (rest.length === 1) Object.assign(out, rest[0]); else out.anyOf = rest;
    }
  }
  if ("const" in out && typeof out.const !== "object") { out.enum = [out.const]; delete out.const; }
  if (typeof out.exclusiveMinimum === "number") { out.minimum = out.exclusiveMinimum; out.exclusiveMinimum = true; }
  if (Array.isArray(out.examples)) { out.example = out.examples[0]; delete out.examples; }
  return out;
}
const where = new URL("openapi.json", document.baseURI);
fetch(where).then((answer) => answer.json()).then((found) => {
  const spec = asOf30(found);
  spec.openapi = "3.0.3";
  // The address of this page, behind any path prefix.
  spec.servers = [{ url: new URL(".", where).pathname.replace(/\/$/, "") || "/" }];
  SwaggerUIBundle({ spec, dom_id: "#page", deepLinking: true, validatorUrl: null,
    presets: [SwaggerUIBundle.presets.apis] });
});
"""

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
    return context.answer(openapi_document(context.server.endpoints, secured=context.node.settings.token is not None))


@endpoints.add("GET", "/docs", {200: ResponseSpec("A page", str, "text/html")}, access="page")
async def docs(context: RequestContext) -> web.Response:
    """Show a page with this description, on which you can try it."""
    return web.Response(text=PAGE, content_type="text/html", headers=POLICY)


@endpoints.add(
    "GET",
    "/docs/{asset}",
    {200: ResponseSpec("A part of the page", str, "text/javascript")},
    ("not-found",),
    access="page",
)
async def asset(context: RequestContext) -> web.Response:
    """Return a file of the documentation page: a script, a style sheet or the icon."""
    name = context.path("asset")
    if name == _START:
        return web.Response(text=SCRIPT, content_type="text/javascript", headers=POLICY)
    if name not in _TYPES:
        raise Problem("not-found", "the page has no such part")
    body = (swagger_ui_path / name).read_bytes()
    return web.Response(body=body, content_type=_TYPES[name], headers={**POLICY, "Cache-Control": "max-age=3600"})
