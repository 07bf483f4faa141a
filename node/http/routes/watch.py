"""What goes on: server-sent events, and figures for Prometheus."""

import asyncio
from contextlib import aclosing

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from node.http.endpoint import Endpoints, Says
from node.http.request_context import Call
from node.http.streaming import stream

endpoints = Endpoints("watch")


@endpoints.add(
    "GET",
    "/v1/events",
    {200: Says("A stream that does not end", str, "text/event-stream")},
    ("overloaded",),
    headers={"Last-Event-ID": "The id of the last event that you saw: what came since is sent first"},
)
async def events(call: Call) -> web.StreamResponse:
    """Server-sent events: `member`, `owner` and `run`, each with what it is about as JSON.

    `reset` says that some may have been lost: read again what you show, and go on.
    """
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    )
    # Taken before the headers go out: a client that has them is sent all that comes after.
    listening = call.service.hub.listener(call.header("Last-Event-ID"), call.service.limits.ping_s)
    with call.service.streams.one(), listening as pieces:
        async with aclosing(pieces):
            return await stream(call.request, response, pieces)


@endpoints.add("GET", "/metrics", {200: Says("Figures", str, "text/plain")})
async def metrics(call: Call) -> web.Response:
    """Figures in Prometheus' text format."""
    text = await asyncio.to_thread(call.service.metrics.text, await call.node.overdue())
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})
