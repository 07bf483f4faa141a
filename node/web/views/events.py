"""The page of events: the latest decisions of the cluster, as far as this node has kept them."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import urlencode

from aiohttp import web
from pydantic import Field

from node.http.api.event_hub import KEPT, ClusterEvent, EventHub, NumberedEvent
from node.http.api.events import EventSearch, newest_events
from node.http.api.pages import cursor_of, key_of
from node.http.door.request_context import RequestContext
from node.web.page_endpoints import PageEndpoints, ViewQuery
from node.web.rendering import page


class EventsPageQuery(ViewQuery):
    """Which events to show: their name, a part of their task's name, a member that they name."""

    event: Literal["member", "owner", "run", "deadline"] | None = None
    task: str = Field(default="", max_length=200)
    node: str | None = Field(default=None, max_length=200)
    after: str | None = Field(default=None, max_length=1000)
    part: Literal["rows"] | None = None


endpoints = PageEndpoints("page")

EVENTS: Final = 100
"""The number of events on a page."""


@endpoints.page("/events")
async def events_page(context: RequestContext, query: EventsPageQuery) -> web.Response:
    """Show the matching events, newest first; with `part=rows`, only the rows."""
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
    """Return the page's link for `query` updated by `changed`. `after` is taken from `changed` only."""
    given = {**query.model_dump(include={"event", "task", "node"}), **changed}
    text = urlencode({name: value for name, value in given.items() if value})
    return "events" + (f"?{text}" if text else "")


EventLook = Literal["good", "bad", "warn", "busy", "none"]

TOGETHER: Final = 4
"""This many moves of tasks at one index, or more, share a line."""

_RUN_LOOKS: Final[dict[str, EventLook]] = {
    "succeeded": "good",
    "failed": "bad",
    "timed_out": "bad",
    "abandoned": "bad",
    "orphaned": "warn",
    "missed": "warn",
    "upstream_failed": "bad",
    "upstream_late": "bad",
    "claimed": "busy",
    "running": "busy",
}
_DEADLINE_SAID: Final[dict[str, tuple[str, EventLook]]] = {
    "breached": ("is late", "bad"),
    "met": ("is no more late", "good"),
    "dropped": ("is no more late, and nothing has made up for it", "none"),
}
_MEMBER_LOOKS: Final[dict[str, EventLook]] = {"up": "good", "down": "bad", "left": "warn", "draining": "warn"}


@dataclass(frozen=True, slots=True)
class EventLine:
    """A line about a task, run or member, or about several tasks that moved at once."""

    #: When it happened, in microseconds since the epoch.
    at_us: int
    #: The number of the event; if there are several, the number of the oldest.
    number: int
    #: The event's name: `member`, `owner`, `deadline` or `run`.
    sort: str
    #: The line's colour and sign.
    look: EventLook
    #: The name of the task, run or member, or the number of tasks.
    subject: str
    #: The parts of the path of the subject's page; empty texts: it has no page.
    path: tuple[str, str]
    #: The words after the subject.
    said: str
    #: Details, such as the names of tasks; "": none.
    more: str = ""


def event_lines(events: Sequence[NumberedEvent]) -> list[EventLine]:
    """Make a line for each event; many tasks that moved at once share a line."""
    lines: list[EventLine] = []
    first = 0
    while first < len(events):
        last = first
        while last < len(events) and _moved_together(events[first], events[last]):
            last += 1
        if last - first >= TOGETHER:
            lines.append(_moves_line(events[first:last]))
            first = last
        else:
            lines.append(_line(events[first]))
            first += 1
    return lines


def _moved_together(one: NumberedEvent, other: NumberedEvent) -> bool:
    return one.event.name == other.event.name == "owner" and one.event.index == other.event.index


def _moves_line(moves: Sequence[NumberedEvent]) -> EventLine:
    pairs = Counter((one.event.data["from"], one.event.data["to"]) for one in moves)
    said = ", ".join(f"{number:,} {_way(*pair)}" for pair, number in pairs.most_common(6))
    named = ", ".join(one.event.data["task"] for one in moves[:5]) + (" and more" if len(moves) > 5 else "")
    oldest = moves[-1]
    return EventLine(
        at_us=oldest.at_us,
        number=oldest.number,
        sort="owner",
        look="none",
        subject=f"{len(moves):,} tasks",
        path=("", ""),
        said=said,
        more=named,
    )


def _line(one: NumberedEvent) -> EventLine:
    event = one.event
    match event.name:
        case "member":
            return _member_line(one, event)
        case "owner":
            task, look = event.data["task"], "bad" if event.data["to"] is None else "none"
            said = _way(event.data["from"], event.data["to"])
            return EventLine(
                at_us=one.at_us,
                number=one.number,
                sort="owner",
                look=look,  # type: ignore[arg-type]
                subject=task,
                path=("tasks", task),
                said=said,
            )
        case "deadline":
            return _deadline_line(one, event)
        case _:
            return _run_line(one, event)


def _way(source: str | None, target: str | None) -> str:
    """Say in words how a task moved from one owner to another.

    >>> _way("a", "b"), _way(None, "b"), _way("a", None)
    ('moved from a to b', 'owned by b', 'owned by nobody any more, before by a')
    """
    if source is None:
        return f"owned by {target}"
    return f"moved from {source} to {target}" if target else f"owned by nobody any more, before by {source}"


def _member_line(one: NumberedEvent, event: ClusterEvent) -> EventLine:
    data = event.data
    status, why = data["status"], data.get("aside") or data.get("reason") or ""
    look = _MEMBER_LOOKS.get(status, "none")
    said = "was removed" if status == "left" else status + (f": {why}" if why else "")
    detail = f"incarnation {data['incarnation']}, {data['running']} running" if "incarnation" in data else ""
    return EventLine(
        at_us=one.at_us,
        number=one.number,
        sort="member",
        look=look,
        subject=data["id"],
        path=("members", ""),
        said=said,
        more=detail,
    )


def _deadline_line(one: NumberedEvent, event: ClusterEvent) -> EventLine:
    """Make a line about a deadline that was breached, met again, or dropped without being met."""
    data = event.data
    said, look = _DEADLINE_SAID[data["change"]]
    what = f"{said}: {data['deadline']}"
    return EventLine(
        at_us=one.at_us,
        number=one.number,
        sort="deadline",
        look=look,
        subject=data["task"],
        path=("tasks", data["task"]),
        said=what,
    )


def _run_line(one: NumberedEvent, event: ClusterEvent) -> EventLine:
    data = event.data
    state, node, count = data["state"], data["node"], data.get("count", 1)
    said = state.replace("_", " ")
    if count > 1:
        said = f"{count:,} occurrences {said}"
    elif node is not None:
        said += f" on {node}" + (f", attempt {data['attempt']}" if (data["attempt"] or 1) > 1 else "")
    if data["cancelling"] and state in ("claimed", "running"):
        said += ", being cancelled"
    error = " ".join((data["error"] or "").split())[:200]
    look = _RUN_LOOKS.get(state, "none")
    return EventLine(
        at_us=one.at_us,
        number=one.number,
        sort="run",
        look=look,
        subject=data["run_id"],
        path=("runs", data["run_id"]),
        said=said,
        more=error,
    )
