"""Server-sent events, and metrics for Prometheus."""

import asyncio
from contextlib import aclosing

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from node.http.endpoint import Endpoints, ResponseSpec
from node.http.event_search import EventSearch, newest_events
from node.http.pages import cursor_of, key_of
from node.http.request_context import RequestContext
from node.http.requests import EventsQuery
from node.http.responses.events import KeptEventsPage
from node.http.streaming import stream, until
from node.state.times import rfc3339

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
    with context.server.streams.one(context.request.remote), listening as pieces:
        async with aclosing(pieces):
            expires_s = None if context.session is None else context.session.expires_s
            return await stream(context.request, response, until(expires_s, context.server.now_us, pieces))


@endpoints.add("GET", "/v1/events/kept", {200: ResponseSpec("Events, newest first", KeptEventsPage)}, ("invalid",))
async def kept_events(context: RequestContext, query: EventsQuery) -> web.Response:
    """What happened lately, as far as this node has kept it: while somebody follows `/v1/events`, and 2 min longer.

    10,000 events at most. The history of runs (`/v1/runs`) is kept for days, and whoever watches.
    """
    hub = context.server.events
    kept, before = hub.kept(), None if query.after is None else int(key_of(query.after, int)[0])
    search = EventSearch(query.event, query.task, query.node)
    found, more = await asyncio.to_thread(newest_events, kept.events, search, before, query.limit)
    items = [
        {"id": hub.id_of(one), "at": rfc3339(one.at_us), "event": one.event.name, "data": one.event.data}
        for one in found
    ]
    since = None if kept.since_us is None else rfc3339(kept.since_us)
    return context.answer({"since": since, "items": items, "next": cursor_of(found[-1].number) if more else None})


@endpoints.add("GET", "/metrics", {200: ResponseSpec("Metrics", str, "text/plain")})
async def metrics(context: RequestContext) -> web.Response:
    """Metrics in Prometheus' text format."""
    text = await asyncio.to_thread(context.server.metrics.text, await context.node.overdue())
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})
