"""The page of events: what the cluster decided lately, as far as this node has kept it."""

import asyncio
from typing import Any, Final
from urllib.parse import urlencode

from aiohttp import web

from node.http.api.event_hub import KEPT, EventHub
from node.http.api.events import EventSearch, newest_events
from node.http.api.pages import cursor_of, key_of
from node.http.door.request_context import RequestContext
from node.web.event_words import event_lines
from node.web.page_endpoints import PageEndpoints
from node.web.rendering import page
from node.web.requests import EventsPageQuery

endpoints = PageEndpoints("page")

EVENTS: Final = 100
"""How many events a page has."""


@endpoints.page("/events")
async def events_page(context: RequestContext, query: EventsPageQuery) -> web.Response:
    """The events that fit, newest first; with `part=rows`, only the rows."""
    template = "parts/event_rows.html" if query.part == "rows" else "events.html"
    return page(context, template, **await _values(context, query))


async def _values(context: RequestContext, query: EventsPageQuery) -> dict[str, Any]:
    kept = context.server.kept(EventHub).kept()
    before = None if query.after is None else int(key_of(query.after, int)[0])
    search = EventSearch(query.event, query.task or None, query.node)
    found, more = await asyncio.to_thread(newest_events, kept.events, search, before, EVENTS)
    return {
        "lines": event_lines(found),
        "kept": kept,
        "kept_max": KEPT,
        "query": query,
        "members": [name for name in context.state.slots if name is not None],
        "here": _url(query, after=query.after),
        "sorts": [
            (label, sort, _url(query, event=sort))
            for label, sort in (
                ("All", None),
                ("Members", "member"),
                ("Owners", "owner"),
                ("Runs", "run"),
                ("Late", "deadline"),
            )
        ],
        "next": _url(query, after=cursor_of(found[-1].number)) if more else None,
        "first": _url(query) if query.after else None,
    }


def _url(query: EventsPageQuery, **changed: str | None) -> str:
    """The page's path with a query that differs from `query` as given. It begins with the newest events."""
    given = {**query.model_dump(include={"event", "task", "node"}), **changed}
    text = urlencode({name: value for name, value in given.items() if value})
    return "events" + (f"?{text}" if text else "")
