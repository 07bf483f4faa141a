"""Server-sent events, and those that this node has kept."""

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
    """Something that happened, as `/v1/events` sends it: `data` is its subject. `at` is when this node noted it."""

    id: str
    at: Time
    event: Literal["member", "owner", "run", "deadline"]
    data: dict[str, Any]


class KeptEventsPage(TypedDict):
    """Events, the newest first. `since`: all since then are kept; null: none, since nobody follows the events."""

    since: Time | None
    items: list[EventView]
    next: Cursor


class EventsQuery(PageQuery):
    """A filter of the events that the node has kept."""

    event: Literal["member", "owner", "run", "deadline"] | None = Field(default=None, description="Only of this sort")
    task: str | None = Field(default=None, description="Only of tasks with this in their names")
    node: str | None = Field(default=None, description="Only what this member is named in")


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
    listening = context.server.kept(EventHub).listener(last_id, index, context.server.limits.ping_s)
    with context.server.streams.one(context.request.remote), listening as pieces:
        async with aclosing(pieces):
            expires_s = None if context.session is None else context.session.expires_s
            return await stream(context.request, response, until(expires_s, context.server.now_us, pieces))


@endpoints.add("GET", "/v1/events/kept", {200: ResponseSpec("Events, newest first", KeptEventsPage)}, ("invalid",))
async def kept_events(context: RequestContext, query: EventsQuery) -> web.Response:
    """What happened lately, as far as this node has kept it: while somebody follows `/v1/events`, and 2 min longer.

    10,000 events at most. The history of runs (`/v1/runs`) is kept for days, and whoever watches.
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
    """What an event must fit: its sort (member, owner or run), a part of its task's name, a member that it names."""

    name: str | None = None
    task: str | None = None
    node: str | None = None

    def fits(self, event: ClusterEvent) -> bool:
        """Whether an event fits.

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
    """The members that an event names."""
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
    """The newest `limit` of `events` (oldest first) that fit and are numbered less than `before`; and whether there are
    more.
    """
    found: list[NumberedEvent] = []
    for one in reversed(tuple(events)):
        if (before is None or one.number < before) and search.fits(one.event):
            if len(found) == limit:
                return found, True
            found.append(one)
    return found, False
