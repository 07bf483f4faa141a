"""The week: what is due by day and hour, in a time zone, what calendars leave out, and what collides."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, Final
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from aiohttp import web
from pydantic import Field

from node.duty.week import Week, WeekDay, WeekHour
from node.http.api.weeks import AskedWeek, WeekKeeper, asked_week, weeks_beside
from node.http.door.request_context import RequestContext
from node.state.blackout import Blackout
from node.web.page_endpoints import PageEndpoints, ViewQuery
from node.web.rendering import page
from node.web.words import schedule_words
from tasks.definition.calendar_times import day_words

OFTEN_MAX: Final = 12
"""At most this many schedules that are due often are listed; the others are counted."""

HOUR_PX: Final = 24
"""The height of an hour in the drawing of a blackout, which is stretched over its cell."""


class WeekPageQuery(ViewQuery):
    """Which week to show: its first day (None: it begins today), and the time zone of its days."""

    begins: date | None = None
    timezone: str | None = Field(default=None, max_length=100)


endpoints = PageEndpoints("page")


@endpoints.page("/week")
async def week_page(context: RequestContext, query: WeekPageQuery) -> web.Response:
    """Show a week."""
    values = await week_values(context, query)
    # In a thread, because hundreds of cells take tens of milliseconds.
    return await asyncio.to_thread(page, context, "week.html", **values)


@dataclass(frozen=True, slots=True)
class HeldBand:
    """The part of an hour's cell that a blackout holds, in `HOUR_PX` parts of it; `first`: the day's first with it."""

    name: str
    y: int
    height: int
    first: bool


@dataclass(frozen=True, slots=True)
class WeekCell:
    """A day's hour in the grid: what is due, and which blackouts hold it. `hour` None: nothing is due."""

    hour: WeekHour | None
    bands: tuple[HeldBand, ...]


async def week_values(context: RequestContext, query: WeekPageQuery) -> dict[str, Any]:
    """Return the values for the template of the week. Raises `Problem`."""
    asked = asked_week(context, query.begins, query.timezone or "UTC")
    found = await context.server.kept(WeekKeeper).week(context.state, asked)
    cells = [_cells(day, found, asked.zone) for day in found.days]
    before, after = weeks_beside(asked.first)
    now_us = context.server.now_us()
    return {
        "week": found,
        "title": day_words(asked.first.toordinal()),
        "zone": asked.zone,
        "timezone": asked.zone.key,
        "chosen": query.timezone is not None,
        "begins": query.begins,
        "zones": sorted({"UTC", asked.zone.key, *found.zones}),
        "rows": [(hour, [of_day[hour] for of_day in cells]) for hour in range(24)],
        "used": {hour for of_day in cells for hour, cell in enumerate(of_day) if cell.hour or cell.bands},
        "today": next((day.day for day in found.days if day.begins_us <= now_us < day.ends_us), None),
        "hours_of": {day.day: round((day.ends_us - day.begins_us) / 3_600_000_000) for day in found.days},
        "often": [(schedule_words(one.schedule), one) for one in found.often[:OFTEN_MAX]],
        "more_often": sum(one.count for one in found.often[OFTEN_MAX:]),
        "clock": lambda at_us: f"{_local(at_us, asked.zone):%H:%M}",
        "named_days": lambda times: _named_days(times, asked.zone),
        "moment_of": lambda at_us: f"{_local(at_us, asked.zone):%a %H:%M}",
        "before_url": None if before is None else _url(asked, before),
        "after_url": None if after is None else _url(asked, after),
        "now_url": _url(asked, None),
    }


def _url(asked: AskedWeek, first: date | None) -> str:
    given = {} if first is None else {"begins": first.isoformat()}
    return f"week?{urlencode({**given, 'timezone': asked.zone.key})}"


def _local(at_us: int, zone: ZoneInfo) -> datetime:
    return datetime.fromtimestamp(at_us / 1e6, UTC).astimezone(zone)


def _named_days(times: tuple[int, ...], zone: ZoneInfo) -> str:
    """Name the days of some times, each once.

    >>> _named_days((0, 86_400_000_000), ZoneInfo("UTC"))
    'Thu, Fri'
    """
    return ", ".join(dict.fromkeys(f"{_local(at_us, zone):%a}" for at_us in times))


def _cells(day: WeekDay, week: Week, zone: ZoneInfo) -> list[WeekCell]:
    due = {hour.hour: hour for hour in day.hours}
    bands: list[list[HeldBand]] = [[] for _ in range(24)]
    for one in week.blackouts:
        for number, (hour, y, end) in enumerate(_held(one, day, zone)):
            bands[hour].append(HeldBand(one.name, y, end - y, first=number == 0))
    return [WeekCell(due.get(hour), tuple(bands[hour])) for hour in range(24)]


def _held(one: Blackout, day: WeekDay, zone: ZoneInfo) -> Iterator[tuple[int, int, int]]:
    """Yield the hours of a day that a blackout meets, each with the part that it holds, in `HOUR_PX` parts of it."""
    if one.from_us >= day.ends_us or one.until_us <= day.begins_us:
        return
    begins = 0.0 if one.from_us <= day.begins_us else _of_day(one.from_us, zone)
    ends = 24.0 if one.until_us >= day.ends_us else _of_day(one.until_us, zone)
    for hour in range(int(begins), 24):
        y, end = round(max(0.0, begins - hour) * HOUR_PX), round(min(1.0, ends - hour) * HOUR_PX)
        if end > 0:
            yield hour, min(y, end - 1), end


def _of_day(at_us: int, zone: ZoneInfo) -> float:
    local = _local(at_us, zone)
    return local.hour + local.minute / 60 + local.second / 3600
