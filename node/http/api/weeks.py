"""A week of the schedules: what is due by day and hour, what calendars leave out, and what collides.

Going over all tasks takes long (5 s of a core at 100,000): one week is worked out at a time, in another thread, and the
latest weeks are kept.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from time import monotonic, thread_time
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from aiohttp import web
from pydantic import Field
from typing_extensions import TypedDict

from node.duty.week import DAYS, DayLeftOut, DueMinute, Week, WeekDay, week_of
from node.http.api.blackouts import BlackoutView, blackout_view
from node.http.api.calendars import Day
from node.http.api.shapes import RequestModel, Time
from node.http.api.what_ifs import is_spared
from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.problems import invalid_field
from node.http.door.request_context import RequestContext
from node.state.times import rfc3339
from node.state.value import State
from tasks.definition.cron import known_zone

FIRST_DAY: Final = date(1970, 1, 2)
LAST_DAY: Final = date(9998, 12, 1)
"""The days with which a week may begin: schedules have no times before and after."""


class DueMinuteView(TypedDict):
    """How many occurrences are due within a minute, and the first tasks of them, by name."""

    at: Time
    count: int
    tasks: list[str]


class WeekHourView(TypedDict):
    """What is due within an hour of a day, by the clocks of the time zone: one that occurs twice is one hour.

    `due` has the first four minutes in which something is due; `count` counts all occurrences. `collides`: in one of
    its minutes more is due than there is room for.
    """

    hour: int
    count: int
    due: list[DueMinuteView]
    collides: bool


class DayLeftOutView(TypedDict):
    """How many tasks are not due on a day because of `calendars`, and the first ones, by name.

    `moved_to` is the day on which they are due instead; null: they are not due at all.
    """

    calendars: list[str]
    count: int
    tasks: list[str]
    moved_to: Day | None


class WeekDayView(TypedDict):
    """A day: the hours in which something is due, how many occurrences there are, and what calendars leave out."""

    day: Day
    begins: Time
    ends: Time
    count: int
    hours: list[WeekHourView]
    left_out: list[DayLeftOutView]


class OftenDueView(TypedDict):
    """Tasks with a schedule that is due more than 42 times in the week: how many, and the first ones, by name."""

    schedule: dict[str, Any]
    count: int
    tasks: list[str]


class WeekCollisionView(TypedDict):
    """A time of day at which more is due within a minute than there is room for, on one day or several.

    `pool` null: there are more runs than places (`room`); else the runs use `most` of the pool, which has `room`.
    `tasks` names the first ones, without those that are due often. `always`: it is so in every minute.
    """

    pool: str | None
    room: int
    most: int
    times: list[Time]
    tasks: list[str]
    always: bool


class WeekView(TypedDict):
    """A week by the present schedules alone: policies, such as `overlap`, decide when something is due.

    Tasks that only come after others have no times. `places` is how many runs the members that are up begin at once,
    without the quarter that is kept for continuous work and failovers; null: not all have told. `more_collisions` is
    how many more there are than `collisions` lists. Of more than 100,000 times, `cut` tasks are left out, and
    `uncounted` tasks that are due often are left out of what collides. `unknown_days` tasks have calendars whose days
    are not known up to the end of the week.
    """

    index: int
    timezone: str
    begins: Time
    ends: Time
    days: list[WeekDayView]
    often: list[OftenDueView]
    blackouts: list[BlackoutView]
    collisions: list[WeekCollisionView]
    more_collisions: int
    places: int | None
    cut: int
    uncounted: int
    unknown_days: int


class WeekQuery(RequestModel):
    """Which week to show."""

    begins: date | None = Field(default=None, description="Its first day, such as 2026-11-30; by default today")
    timezone: str = Field(default="UTC", max_length=100, description="The time zone of its days: Europe/Paris")


endpoints = Endpoints("calendars")


@endpoints.add("GET", "/v1/week", {200: ResponseSpec("The week", WeekView)}, ("invalid",))
async def week(context: RequestContext, query: WeekQuery) -> web.Response:
    """Show what is due within a week, by day and hour, what calendars leave out, and what collides.

    What was expensive to work out is used again for a while: `index` says of which state it is.
    """
    asked = asked_week(context, query.begins, query.timezone)
    found = await context.server.kept(WeekKeeper).week(context.state, asked)
    return context.answer(week_view(found, asked.zone.key, context.server.now_us()))


class AskedWeek(NamedTuple):
    """A time zone, and the first day of a week."""

    zone: ZoneInfo
    first: date


def asked_week(context: RequestContext, first: date | None, timezone: str) -> AskedWeek:
    """Return the week that is asked for; `first` None: it begins today. Raises `Problem` invalid."""
    zone = known_zone(timezone)
    if zone is None:
        why = f"{timezone!r} is not a time zone of the IANA database, such as Europe/Paris or UTC"
        raise invalid_field("timezone", why, "the query")
    if first is None:
        first = datetime.fromtimestamp(context.server.now_us() / 1e6, UTC).astimezone(zone).date()
    if not FIRST_DAY <= first <= LAST_DAY:
        raise invalid_field("begins", f"must be from {FIRST_DAY} to {LAST_DAY}", "the query")
    return AskedWeek(zone, first)


OLD_S: Final = 60.0
"""A week of an earlier state is used no longer than this, in seconds, whatever processor time it cost."""

KEPT: Final = 8
"""How many weeks are kept."""


@dataclass
class WeekKeeper:
    """The latest weeks of one server. `now_s` is a monotonic clock, `spent_s` the processor time of a thread."""

    now_s: Callable[[], float] = monotonic
    spent_s: Callable[[], float] = thread_time
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _weeks: dict[AskedWeek, tuple[Week, float, float]] = field(default_factory=dict)

    async def week(self, state: State, asked: AskedWeek) -> Week:
        """Return a week of `state`, or of a slightly earlier one."""
        async with self._lock:
            kept = self._weeks.pop(asked, None)
            if kept is None or not self._is_fresh(*kept, state.index):
                kept = await asyncio.to_thread(self._make, state, asked)
            self._weeks[asked] = kept  # now the last in the order; the first is forgotten
            while len(self._weeks) > KEPT:
                del self._weeks[next(iter(self._weeks))]
            return kept[0]

    def _is_fresh(self, made: Week, made_s: float, cost_s: float, index: int) -> bool:
        return made.index == index or is_spared(self.now_s() - made_s, cost_s, OLD_S)

    def _make(self, state: State, asked: AskedWeek) -> tuple[Week, float, float]:
        began_s = self.spent_s()
        found = week_of(state, asked.zone, asked.first)
        return found, self.now_s(), self.spent_s() - began_s


def week_view(found: Week, timezone: str, now_us: int) -> WeekView:
    """Return a week as the API shows it."""
    return {
        "index": found.index,
        "timezone": timezone,
        "begins": rfc3339(found.days[0].begins_us),
        "ends": rfc3339(found.days[-1].ends_us),
        "days": [_day_view(day) for day in found.days],
        "often": [
            {"schedule": one.schedule.model_dump(mode="json"), "count": one.count, "tasks": list(one.tasks)}
            for one in found.often
        ],
        "blackouts": [blackout_view(one, now_us) for one in found.blackouts],
        "collisions": [
            {
                "pool": one.pool or None,
                "room": one.room,
                "most": one.most,
                "times": [rfc3339(at_us) for at_us in one.times],
                "tasks": list(one.tasks),
                "always": one.always,
            }
            for one in found.collisions
        ],
        "more_collisions": found.more_collisions,
        "places": found.places,
        "cut": found.cut,
        "uncounted": found.uncounted,
        "unknown_days": found.unknown_days,
    }


def _day_view(day: WeekDay) -> WeekDayView:
    return {
        "day": day.day.isoformat(),
        "begins": rfc3339(day.begins_us),
        "ends": rfc3339(day.ends_us),
        "count": day.count,
        "hours": [
            {
                "hour": hour.hour,
                "count": hour.count,
                "due": [_minute_view(due) for due in hour.due],
                "collides": hour.collides,
            }
            for hour in day.hours
        ],
        "left_out": [_left_out_view(one) for one in day.left_out],
    }


def _minute_view(due: DueMinute) -> DueMinuteView:
    return {"at": rfc3339(due.at_us), "count": due.count, "tasks": list(due.tasks)}


def _left_out_view(one: DayLeftOut) -> DayLeftOutView:
    return {
        "calendars": list(one.calendars),
        "count": one.count,
        "tasks": list(one.tasks),
        "moved_to": None if one.moved_to is None else one.moved_to.isoformat(),
    }


def weeks_beside(first: date) -> tuple[date | None, date | None]:
    """Return the first days of the week before and of the week after; None: it cannot be shown."""
    before, after = first - timedelta(days=DAYS), first + timedelta(days=DAYS)
    return before if before >= FIRST_DAY else None, after if after <= LAST_DAY else None
