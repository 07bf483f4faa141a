"""Server-sent events, and the events that this node has kept."""

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal

from aiohttp import web
from pydantic import Field
from typing_extensions import TypedDict

from node.http.api.event_hub import ClusterEvent, EventHub, NumberedEvent
from node.http.api.pages import cursor_of, key_of
from node.http.api.shapes import Cursor, PageQuery, Time
from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.request_context import RequestContext
from node.http.door.streaming import stream, until
from node.state.times import rfc3339


class EventView(TypedDict):
    """An event, as `/v1/events` sends it: `data` describes its subject. `at` is when this node noted the event."""

    id: str
    at: Time
    event: Literal["member", "owner", "run", "deadline"]
    data: dict[str, Any]


class KeptEventsPage(TypedDict):
    """Events, newest first. All events since the time `since` are kept; null: none, because no client follows them."""

    since: Time | None
    items: list[EventView]
    next: Cursor


class EventsQuery(PageQuery):
    """A filter of the events that the node has kept."""

    event: Literal["member", "owner", "run", "deadline"] | None = Field(
        default=None, description="Only this sort of event"
    )
    task: str | None = Field(default=None, description="Only events of tasks with this in their names")
    node: str | None = Field(default=None, description="Only events that name this member")


endpoints = Endpoints("watch")


@endpoints.add(
    "GET",
    "/v1/events",
    {200: ResponseSpec("An endless stream", str, "text/event-stream")},
    ("overloaded",),
    headers={"Last-Event-ID": "The id of the last event that the client saw: later events are sent first"},
)
async def events(context: RequestContext) -> web.StreamResponse:
    """Stream server-sent events: `member`, `owner`, `run` and `deadline`. Each shows its changed subject as JSON.

    The `change` of a `deadline` event says what became of a task's deadline: breached, met, or dropped (the late run
    was skipped, missed or cancelled; or the task was paused, changed or deleted).

    A comment at the beginning says that the stream is connected. `reset` says that events may have been lost: read the
    present state again with the other endpoints, and go on.
    """
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    )
    # The stream begins before the headers are sent: a client that has them gets all later events.
    last_id, index = context.header("Last-Event-ID"), context.state.index
    listening = context.server.kept(EventHub).listener(last_id, index, context.server.limits.ping_s)
    with context.server.streams.one(context.request.remote), listening as pieces:
        async with aclosing(pieces):
            expires_s = None if context.session is None else context.session.expires_s
            return await stream(context.request, response, until(expires_s, context.server.now_us, pieces))


@endpoints.add("GET", "/v1/events/kept", {200: ResponseSpec("Events, newest first", KeptEventsPage)}, ("invalid",))
async def kept_events(context: RequestContext, query: EventsQuery) -> web.Response:
    """List the latest events. This node keeps events while a client follows `/v1/events`, and 2 min longer.

    It keeps 10,000 events at most. The history of runs (`/v1/runs`) is kept for days, without any client, too.
    """
    hub = context.server.kept(EventHub)
    kept, before = hub.kept(), None if query.after is None else int(key_of(query.after, int)[0])
    search = EventSearch(query.event, query.task, query.node)
    found, more = await asyncio.to_thread(newest_events, kept.events, search, before, query.limit)
    items = [
        {"id": hub.id_of(one), "at": rfc3339(one.at_us), "event": one.event.name, "data": one.event.data}
        for one in found
    ]
    since = None if kept.since_us is None else rfc3339(kept.since_us)
    return context.answer({"since": since, "items": items, "next": cursor_of(found[-1].number) if more else None})


@dataclass(frozen=True, slots=True)
class EventSearch:
    """A search for events: by sort (such as `run`), by a part of the task's name, by a member that they name."""

    name: str | None = None
    task: str | None = None
    node: str | None = None

    def fits(self, event: ClusterEvent) -> bool:
        """Return whether an event matches.

        >>> moved = ClusterEvent("owner", 7, {"task": "nightly", "from": "node-1", "to": "node-2"})
        >>> EventSearch(task="night").fits(moved), EventSearch(node="node-3").fits(moved)
        (True, False)
        """
        if self.name is not None and event.name != self.name:
            return False
        if self.task is not None and self.task.casefold() not in str(event.data.get("task", "")).casefold():
            return False
        return self.node is None or self.node in nodes_of(event)


def nodes_of(event: ClusterEvent) -> tuple[str | None, ...]:
    """Return the members that an event names."""
    data = event.data
    match event.name:
        case "member":
            return (data["id"],)
        case "owner":
            return (data["from"], data["to"])
        case _:
            return (data.get("node"),)


def newest_events(
    events: Iterable[NumberedEvent], search: EventSearch, before: int | None, limit: int
) -> tuple[list[NumberedEvent], bool]:
    """Return the newest `limit` of `events` (oldest first) that match and have numbers below `before`; and whether
    there are more.
    """
    found: list[NumberedEvent] = []
    for one in reversed(tuple(events)):
        if (before is None or one.number < before) and search.fits(one.event):
            if len(found) == limit:
                return found, True
            found.append(one)
    return found, False
