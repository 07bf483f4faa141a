"""The calendars by which tasks are due: lists of days, and the public holidays of regions."""

import asyncio
from collections.abc import Iterable
from datetime import date
from typing import Annotated, Final

from aiohttp import web
from pydantic import Field
from typing_extensions import TypedDict

from node.duty.calendars import wanted_days
from node.http.api.pages import cursor_of, cut, name_after
from node.http.api.set_queries import OwnQuery, PruneQuery
from node.http.api.shapes import Cursor, PageQuery, RequestModel
from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.problems import Problem, invalid_field
from node.http.door.request_context import RequestContext
from node.state.calendar import Calendar, Calendars
from node.state.calendars import CALENDAR_DAYS_MAX, SetCalendar
from tasks.definition.calendars import HOLIDAYS
from tasks.definition.public_holidays import UnknownRegion, public_holidays, region_of
from tasks.definition.spec import calendar_of

Day = Annotated[str, Field(json_schema_extra={"format": "date"}, description="RFC 3339, such as 2026-12-24")]
"""A day in a response."""

_WRITES: Final = ("no-quorum", "outcome-unknown")


class CalendarView(TypedDict):
    """A calendar: how many days it has, the last day up to which these are known, and how many tasks use it.

    `known_until` null: these are all its days. It is a day for public holidays, of which the leader adds further ones.
    `set` is the set of files that made it; null: none.
    """

    name: str
    count: int
    known_until: Day | None
    tasks: int
    set: str | None


class CalendarDaysView(CalendarView):
    """A calendar with its days, in order."""

    dates: list[Day]


class CalendarPage(TypedDict):
    """Calendars, by name."""

    items: list[CalendarView]
    next: Cursor


class CalendarBody(RequestModel):
    """The days of a calendar."""

    dates: Annotated[list[date], Field(max_length=CALENDAR_DAYS_MAX)]


endpoints = Endpoints("calendars")


@endpoints.add("GET", "/v1/calendars", {200: ResponseSpec("Calendars, by name", CalendarPage)}, ("invalid",))
async def calendars(context: RequestContext, query: PageQuery) -> web.Response:
    """List the calendars. Those of public holidays are there once a task has used them."""
    after = name_after(query.after)
    known = context.state.calendars
    names, more = cut([name for name in sorted(known) if after is None or name > after], query.limit)
    items = [calendar_view(name, known[name]) for name in names]
    return context.answer({"items": items, "next": cursor_of(names[-1]) if more else None})


@endpoints.add("GET", "/v1/calendars/{name}", {200: ResponseSpec("The calendar", CalendarDaysView)}, ("not-found",))
async def calendar(context: RequestContext) -> web.Response:
    """Show one calendar with its days. In the path, a `/` in its name is `%2F`."""
    name = context.path("name")
    return context.answer(calendar_days_view(name, _known(context, name)))


@endpoints.add(
    "PUT",
    "/v1/calendars/{name}",
    {
        200: ResponseSpec("It was there before, and now has these days", CalendarDaysView),
        201: ResponseSpec("It is made", CalendarDaysView),
    },
    ("bad-request", "too-large", "invalid", "conflict", *_WRITES),
    body=CalendarBody,
)
async def put_calendar(context: RequestContext, query: OwnQuery) -> web.Response:
    """Make a calendar, or give it other days. It counts at once for what is not decided yet; no run is ended.

    With `set`, a calendar that this makes is of that set of files.
    """
    name = context.path("name")
    if region_of(name) is not None:
        raise invalid_field("name", f"{HOLIDAYS} is kept for public holidays, which need no calendar", "the path")
    body = await context.model(CalendarBody)
    days = tuple(sorted({one.toordinal() for one in body.dates}))
    result = await context.propose(
        SetCalendar(context.server.now_us(), name, days, by_set=query.by_set(context), adopt=query.adopt)
    )
    return context.answer(
        calendar_days_view(name, _known(context, name)), 201 if result.value["change"] == "created" else 200
    )


@endpoints.add(
    "DELETE",
    "/v1/calendars/{name}",
    {204: ResponseSpec("It is deleted")},
    ("not-found", "conflict", *_WRITES),
)
async def delete_calendar(context: RequestContext, query: PruneQuery) -> web.Response:
    """Delete a calendar that no task uses."""
    name = context.path("name")
    _known(context, name)
    await context.propose(SetCalendar(context.server.now_us(), name, None, by_set=query.by_set(context)))
    return web.Response(status=204)


def calendar_view(name: str, found: Calendar) -> CalendarView:
    """Return a calendar, as a list shows it."""
    until = date.fromordinal(found.until).isoformat() if found.until else None
    return {
        "name": name,
        "count": len(found.days),
        "known_until": until,
        "tasks": len(found.tasks),
        "set": found.of_set or None,
    }


def calendar_days_view(name: str, found: Calendar) -> CalendarDaysView:
    """Return a calendar with its days."""
    return {**calendar_view(name, found), "dates": [date.fromordinal(day).isoformat() for day in found.days]}


def _known(context: RequestContext, name: str) -> Calendar:
    found = context.state.calendars.get(name)
    if found is None:
        raise Problem("not-found", f"there is no calendar {name!r}; GET /v1/calendars lists them")
    return found


async def missing_holidays(context: RequestContext, packed: Iterable[bytes]) -> list[SetCalendar]:
    """Return the entries that make the calendars of public holidays that definitions name and that are not there yet.

    Raises `Problem` invalid for a region that is not known.
    """
    known: Calendars = context.state.calendars
    rules = [rule for one in packed if (rule := calendar_of(one)) is not None]
    entries: list[SetCalendar] = []
    now_us = context.server.now_us()
    for name in sorted({name for rule in rules for name in rule.names if name not in known}):
        if (region := region_of(name)) is None:
            continue
        wanted = wanted_days(name, region, now_us)
        try:
            # In a thread, since the first call imports the rules of a country.
            days = await asyncio.to_thread(public_holidays, region, wanted.first, wanted.last)
        except UnknownRegion as error:
            raise invalid_field("calendar", str(error)) from None
        entries.append(SetCalendar(now_us, name, days, wanted.last))
    return entries


async def make_holidays(context: RequestContext, packed: Iterable[bytes]) -> None:
    """Make the calendars of public holidays that definitions name and that are not there yet. Raises `Problem`."""
    for entry in await missing_holidays(context, packed):
        await context.propose(entry)
