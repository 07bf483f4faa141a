"""When a task is due next, and which days its calendars leave out."""

from datetime import date
from itertools import islice
from typing import Annotated, Final

from aiohttp import web
from pydantic import Field
from typing_extensions import TypedDict

from node.duty.held_times import held_time
from node.http.api.calendars import Day
from node.http.api.shapes import RequestModel, Time
from node.http.api.task_shapes import HeldTimeView
from node.http.api.tasks import held_time_view, known_task
from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.request_context import RequestContext
from node.state.calendar import days_of
from node.state.times import rfc3339
from node.state.value import State, TaskRow
from tasks.definition.schedule import left_out_days, occurrences

COUNT_MAX: Final = 100
"""The most times, and the most days that are left out, in one response."""


class LeftOutView(TypedDict):
    """A day on which the task is not due because of `calendars`: the day, and the time at which it would be due.

    `moved_to` is the day on which it is due instead; null: not at all. `detail` says it in words.
    """

    day: Day
    at: Time
    calendars: list[str]
    moved_to: Day | None
    detail: str


class HeldDueTimeView(HeldTimeView):
    """A time at which the task is due in a blackout."""

    at: Time


class DueTimesView(TypedDict):
    """The next times at which a task is due, and the days up to the last of them that its calendars leave out.

    `held` has those of the times that are in a blackout, with what becomes of them.

    `known_until` is the last day up to which its calendars are known, after which nothing is decided yet; null: there
    is none. `missing` lists calendars that it names and that are not there.
    """

    times: list[Time]
    held: list[HeldDueTimeView]
    left_out: list[LeftOutView]
    known_until: Day | None
    missing: list[str]


class DueTimesQuery(RequestModel):
    """How many times are shown."""

    count: Annotated[int, Field(ge=1, le=COUNT_MAX, description="How many times at most")] = 10


endpoints = Endpoints("tasks")


@endpoints.add(
    "GET",
    "/v1/tasks/{name}/times",
    {200: ResponseSpec("Its next times", DueTimesView)},
    ("not-found", "invalid"),
)
async def due_times(context: RequestContext, query: DueTimesQuery) -> web.Response:
    """Show when a task is due next, and which days its calendars leave out.

    There are no times for a task that is paused, not enabled, continuous, or without a schedule of its own.
    """
    row = context.state.tasks[known_task(context)]
    return context.answer(due_times_view(context.state, row, context.server.now_us(), query.count))


def due_times_view(state: State, row: TaskRow, now_us: int, count: int) -> DueTimesView:
    """Return the next times of a task, and the days that its calendars leave out up to the last of them."""
    timing = row.timing
    days = days_of(state.calendars, timing)
    if row.paused or not timing.enabled or timing.continuous:
        times, out = [], []
    else:
        after_us = max(now_us, row.through_us, row.since_us)
        times = list(islice(occurrences(timing.schedule, days, row.since_us, after_us), count))
        until_us = times[-1] if times else after_us
        out = list(islice(left_out_days(timing.schedule, days, after_us, until_us), COUNT_MAX))
    until = days.until if days is not None else 0
    return {
        "times": [rfc3339(at_us) for at_us in times],
        "held": [
            {"at": rfc3339(at_us), **view}
            for at_us in times
            if (view := held_time_view(held_time(state, row, at_us))) is not None
        ],
        "left_out": [
            {
                "day": date.fromordinal(one.day).isoformat(),
                "at": rfc3339(one.at_us),
                "calendars": list(one.calendars),
                "moved_to": None if one.home is None else date.fromordinal(one.home).isoformat(),
                "detail": str(one),
            }
            for one in out
        ],
        "known_until": date.fromordinal(until).isoformat() if until else None,
        "missing": list(days.missing) if days is not None else [],
    }
