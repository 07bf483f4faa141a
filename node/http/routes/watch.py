"""Server-sent events, and metrics for Prometheus."""

import asyncio
from contextlib import aclosing

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from node.http.endpoint import Endpoints, ResponseSpec
from node.http.request_context import RequestContext
from node.http.streaming import stream, until

endpoints = Endpoints("watch")


@endpoints.add(
    "GET",
    "/v1/events",
    {200: ResponseSpec("An endless stream", str, "text/event-stream")},
    ("overloaded",),
    headers={"Last-Event-ID": "The id of the last event that the client saw: later events are sent first"},
)
async def events(context: RequestContext) -> web.StreamResponse:
    """Server-sent events: `member`, `owner`, `run` and `deadline`, each with its subject as JSON, when it changes.

    A `deadline` event has what became of a task's deadline as `change`: breached, met, or dropped (what was late was
    skipped, missed or cancelled; or the task was paused, changed or deleted).

    A comment at the beginning says that the stream is connected. `reset` says that events may have been lost: read
    again what you show, and go on. Read the present state with the other endpoints.
    """
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    )
    # The stream begins before the headers are sent: a client that has them gets all later events.
    last_id, index = context.header("Last-Event-ID"), context.state.index
    listening = context.server.events.listener(last_id, index, context.server.limits.ping_s)
    with context.server.streams.one(), listening as pieces:
        async with aclosing(pieces):
            expires_s = None if context.session is None else context.session.expires_s
            return await stream(context.request, response, until(expires_s, context.server.now_us, pieces))


@endpoints.add("GET", "/metrics", {200: ResponseSpec("Metrics", str, "text/plain")})
async def metrics(context: RequestContext) -> web.Response:
    """Metrics in Prometheus' text format."""
    text = await asyncio.to_thread(context.server.metrics.text, await context.node.overdue())
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})
