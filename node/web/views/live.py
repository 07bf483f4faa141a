"""The event stream of an open page, which sends each part of the page when it has changed."""

import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Final
from urllib.parse import unquote

from aiohttp import web
from pydantic import Field
from yarl import URL

from node.http.api.event_hub import EventHub
from node.http.door.endpoint import Endpoint
from node.http.door.problems import Problem, invalid_field
from node.http.door.request_context import RequestContext, serve
from node.http.door.session import ID_HEX, BrowserSession
from node.http.door.streaming import stream, until
from node.web.live_parts import LiveParts, Make, PartKey, Unmade
from node.web.page_endpoints import PageEndpoints, ViewQuery


class LiveQuery(ViewQuery):
    """The parts that an open page shows: a JSON list of paths with queries, such as `["/?part=running"]`."""

    parts: str = Field(max_length=20_000)


endpoints = PageEndpoints("page")

PARTS_MAX: Final = 16
"""The most parts of a page."""

URL_CHARS_MAX: Final = 2000

_HEADERS: Final = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}

_NOBODY: Final = BrowserSession("guest", 0, "0" * ID_HEX)
"""The session with which shared parts are made. In their forms, its CSRF token is replaced by each page's own token."""


class PartContext(RequestContext):
    """The context of a request for one part, made as if the page had sent that request."""

    __slots__ = ("_names",)

    def __init__(self, page: RequestContext, url: URL, names: Mapping[str, str]) -> None:
        super().__init__(page.request.clone(rel_url=url, headers={"HX-Request": "true"}), page.server)
        self.role, self.session, self._names = page.role, _NOBODY, names

    def path(self, name: str) -> str:
        """Return the value of a variable in the part's path, like `RequestContext.path`."""
        return self._names[name]


@endpoints.page("/live")
async def live(context: RequestContext, query: LiveQuery) -> web.StreamResponse:
    """Send server-sent events `part`, each with the path and query of a part, and its present HTML."""
    makers = {PartKey(context.role, url): _maker(context, url) for url in _urls(query.parts)}
    signer, session = context.server.signer, context.session
    common = signer.csrf(_NOBODY).encode()
    own = common if session is None else signer.csrf(session).encode()
    following = context.server.kept(LiveParts).follow(makers, context.server.kept(EventHub))
    with context.server.streams.one(context.request.remote), following as events:
        async with aclosing(events):
            expires_s = None if session is None else session.expires_s
            pieces = until(expires_s, context.server.now_us, _with_token(events, common, own))
            return await stream(context.request, web.StreamResponse(headers=_HEADERS), pieces)


async def _with_token(events: AsyncGenerator[bytes, None], common: bytes, own: bytes) -> AsyncGenerator[bytes, None]:
    async for event in events:
        yield event.replace(common, own)


def _urls(parts: str) -> list[str]:
    """Return the parts' paths and queries in the request. Raises `Problem` invalid."""
    try:
        urls = json.loads(parts)
    except ValueError:
        urls = None
    if (
        not isinstance(urls, list)
        or not 0 < len(urls) <= PARTS_MAX
        or not all(isinstance(url, str) and url.startswith("/") and len(url) <= URL_CHARS_MAX for url in urls)
    ):
        raise invalid_field("parts", f"must be a JSON list of 1 to {PARTS_MAX} paths with queries", "the query")
    return urls


def _maker(context: RequestContext, url: str) -> Make:
    """Return the function that makes the part at `url` for this page. Raises `Problem` invalid if there is no part."""
    try:
        where = URL(url, encoded=True)
        found = None if where.host else _endpoint_at(context.server.pages, where.raw_path)
    except ValueError:
        found = None
    if found is None:
        raise invalid_field("parts", f"the page has no part at {url}", "the query")
    endpoint, names = found

    async def make() -> str | Unmade:
        try:
            response = await serve(endpoint, PartContext(context, where, names))
        except Problem as problem:
            return Unmade(problem.detail)  # for example, the task was deleted
        if isinstance(response, web.Response) and response.status == 200 and response.text is not None:
            return response.text
        return Unmade("this part of the page is not shown any more")

    return make


def _endpoint_at(pages: tuple[Endpoint, ...], path: str) -> tuple[Endpoint, dict[str, str]] | None:
    """Return the endpoint at a path, and the variables in the path, decoded; None if there is none."""
    for endpoint in pages:
        if endpoint.method != "GET" or endpoint.access != "browser" or endpoint.handler is live:
            continue
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(endpoint.path))
        if (match := re.fullmatch(pattern, path)) is not None:
            return endpoint, {name: unquote(value) for name, value in match.groupdict().items()}
    return None
