"""Backfills: a task, and those after it, run for times of its schedule that are past."""

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final, Literal

from aiohttp import web
from pydantic import Field
from typing_extensions import TypedDict

from node.duty.backfills import counted, least_s
from node.duty.occurrence_params import readable_params
from node.http.api.dry_runs import tried
from node.http.api.shapes import RequestModel, Time
from node.http.api.tasks import task_to_change
from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.problems import Problem, invalid_field
from node.http.door.request_context import RequestContext
from node.state.backfill import PARALLEL_MAX, BackfillRow, BackfillStatus
from node.state.backfills import (
    OCCURRENCES_MAX,
    BackfillChange,
    ChangeBackfill,
    StartBackfill,
    backfill_fault,
    with_joining,
)
from node.state.calendar import days_of
from node.state.run_times import took_us
from node.state.times import EPOCH, micros, rfc3339, rfc3339_or_none
from node.state.value import State, TaskRow
from tasks.definition.spec import after_of
from tasks.definition.written_time import WrittenTime

TIMED_BY: Final = 10
"""By how many of its latest runs it is estimated how long a task takes."""


class UnderWayView(TypedDict):
    """An occurrence of a backfill that is under way, and its active runs."""

    at: Time
    runs: list[str]


class FailedOccurrenceView(TypedDict):
    """An occurrence of a backfill that failed, and the run that failed first."""

    at: Time
    run_id: str


BackfillView = TypedDict(
    "BackfillView",
    {
        "number": int,
        "task": str,
        "from": Time,
        "to": Time,
        "status": BackfillStatus,
        "why": str | None,
        "downstream": bool,
        "parallel": int,
        "newest_first": bool,
        "total": int,
        "succeeded": int,
        "failed": int,
        "skipped": int,
        "left": int,
        "in_flight": list[UnderWayView],
        "failures": list[FailedOccurrenceView],
        "per_hour": float | None,
        "left_s": float | None,
        "asked_by": str | None,
        "asked_at": Time,
        "ended_at": Time | None,
    },
)
"""A backfill: the times of a task's schedule from `from` on and before `to`, and what has become of them.

`total` occurrences, each of which `succeeded`, `failed` (one of its runs did) or was `skipped` (its first run was
cancelled); `left` have not ended. `in_flight` are under way, and `failures` the latest failed ones, 20 at most.
`per_hour` is how many have ended an hour since it was asked for or resumed, `left_s` how long the rest takes at that
rate; null: not known. `why` it is paused, or was cancelled; null: by hand, or it is neither.
"""


class BackfillPage(TypedDict):
    """The open backfills and the latest ended ones, the newest first."""

    items: list[BackfillView]


BackfillPlanView = TypedDict(
    "BackfillPlanView",
    {
        "task": str,
        "from": Time,
        "to": Time,
        "total": int,
        "first": Time,
        "last": Time,
        "tasks": list[str],
        "one_at_a_time": list[str],
        "estimate_s": float | None,
    },
)
"""What a backfill would do: run `tasks` for `total` times of the schedule, from `first` to `last`.

Those in `one_at_a_time` have one run at a time, and none beside their other runs (their `overlap`). `estimate_s` is how
long it would take at least, by the durations of their latest runs; null: not known.
"""


class BackfillBody(RequestModel):
    """A backfill: for which times, and how."""

    from_time: WrittenTime = Field(alias="from", description="The first time that may be one of its occurrences")
    to_time: WrittenTime | None = Field(
        default=None, alias="to", description="The first time after its occurrences, not in the future; null: now"
    )
    downstream: bool = Field(
        default=False, description="Whether the tasks after it run, too, each once those before it have ended"
    )
    parallel: Annotated[int, Field(ge=1, le=PARALLEL_MAX, strict=True)] = Field(
        default=1, description="How many of its occurrences are under way at once"
    )
    newest_first: bool = Field(default=False, description="Whether the latest time comes first")
    dry_run: bool = Field(default=False, description="Whether only to answer what it would do")


endpoints = Endpoints("backfills")

_WRITES: Final = ("no-quorum", "outcome-unknown")
_CHANGED: Final = {200: ResponseSpec("The backfill", BackfillView)}
_CHANGES: Final = ("not-found", "conflict", *_WRITES)


@endpoints.add("GET", "/v1/backfills", {200: ResponseSpec("Backfills, the newest first", BackfillPage)})
async def backfills(context: RequestContext) -> web.Response:
    """List the open backfills and the latest ended ones, the newest first."""
    state, now_us = context.state, context.server.now_us()
    rows = sorted(state.backfills.values(), key=lambda row: row.number, reverse=True)
    return context.answer({"items": [backfill_view(state, row, now_us) for row in rows]})


@endpoints.add("GET", "/v1/backfills/{number}", {200: ResponseSpec("The backfill", BackfillView)}, ("not-found",))
async def backfill(context: RequestContext) -> web.Response:
    """Show one backfill."""
    return _shown(context, _number(context))


@endpoints.add(
    "POST",
    "/v1/tasks/{name}/backfills",
    {
        200: ResponseSpec("What it would do (`dry_run`)", BackfillPlanView),
        202: ResponseSpec("Its occurrences begin one after the other", BackfillView),
    },
    ("not-found", "conflict", "too-large", "invalid", *_WRITES),
    body=BackfillBody,
)
async def start_backfill(context: RequestContext) -> web.Response:
    """Run a task for the times of its schedule from `from` on and before `to`, behind everything else.

    Its runs take at most half of places and pools, and neither deadlines nor the task's last outcome count them.
    """
    name = await task_to_change(context)
    given = await context.model(BackfillBody)
    now_us = context.server.now_us()
    from_us = _micros(given.from_time, "from")
    to_us = now_us if given.to_time is None else _micros(given.to_time, "to")
    state = context.state
    plan = await asyncio.to_thread(_plan, context, state, name, given, from_us, to_us)
    entry = StartBackfill(
        at_us=now_us,
        task=name,
        from_us=from_us,
        to_us=to_us,
        total=plan["total"],
        parallel=given.parallel,
        newest_first=given.newest_first,
        downstream=given.downstream,
        asked_by=f"{context.role} through {context.node.settings.node}",
    )
    if given.dry_run:
        await tried(context, entry)
        return context.answer(plan)
    number = int((await context.propose(entry)).value["backfill"])
    return _shown(context, number, 202, {"Location": f"/v1/backfills/{number}"})


@endpoints.add("POST", "/v1/backfills/{number}/pause", _CHANGED, _CHANGES)
async def pause_backfill(context: RequestContext) -> web.Response:
    """Pause a backfill: no more of its occurrences begin. Those under way go on."""
    return await _change(context, "paused")


@endpoints.add("POST", "/v1/backfills/{number}/resume", _CHANGED, _CHANGES)
async def resume_backfill(context: RequestContext) -> web.Response:
    """Resume a paused backfill."""
    return await _change(context, "resumed")


@endpoints.add("DELETE", "/v1/backfills/{number}", _CHANGED, _CHANGES)
async def cancel_backfill(context: RequestContext) -> web.Response:
    """Cancel a backfill and its active runs."""
    return await _change(context, "cancelled")


async def _change(context: RequestContext, change: BackfillChange) -> web.Response:
    number = _number(context)
    if number not in context.state.backfills:
        await context.catch_up()
    await context.propose(ChangeBackfill(context.server.now_us(), number, change))
    return _shown(context, number)


def _shown(
    context: RequestContext, number: int, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    row = context.state.backfills.get(number)
    if row is None:
        raise Problem("not-found", f"there is no backfill {number}, or it is no longer kept")
    return context.answer(backfill_view(context.state, row, context.server.now_us()), status, headers)


def _number(context: RequestContext) -> int:
    text = context.path("number")
    if not (text.isascii() and text.isdecimal() and len(text) <= 20):
        raise Problem("not-found", f"{text[:40]!r} is no number of a backfill")
    return int(text)


def _micros(time: datetime, field: Literal["from", "to"]) -> int:
    if time < EPOCH:
        raise invalid_field(field, "must not be earlier than 1970")
    return max(1, micros(time))


def _plan(
    context: RequestContext, state: State, name: str, given: BackfillBody, from_us: int, to_us: int
) -> BackfillPlanView:
    """Work out what a backfill would do. Raises `Problem` if it cannot be. Runs in a thread."""
    row = state.tasks.get(name)
    if row is None:
        raise Problem("not-found", f"there is no task {name!r}")
    if (why := backfill_fault(state.tasks, row)) is not None:
        raise invalid_field("", why)
    tasks = with_joining(state.children, state.tasks, name) if given.downstream else [name]
    if tasks is None:
        raise invalid_field("downstream", f"too many tasks come after {name}: backfill without them")
    rows = {task: state.tasks[task] for task in tasks}
    for task, one in rows.items():
        if said := context.node.kinds.no_backfill(one.spec.kind, readable_params(one.spec), one.spec.overlap):
            raise invalid_field("", f"{task} cannot be backfilled: {said}")
    timing = row.timing
    days = days_of(state.calendars, timing)
    count, first_us, last_us = counted(timing.schedule, days, row.since_us, from_us, to_us, OCCURRENCES_MAX)
    if not count:
        raise invalid_field("from", f"{name} has no times from {rfc3339(from_us)} on and before {rfc3339(to_us)}")
    if count > OCCURRENCES_MAX:
        raise invalid_field("from", f"{name} has more than {OCCURRENCES_MAX} times since then: backfill a part of them")
    alone = [task for task, one in rows.items() if one.spec.overlap != "allow"]
    return {
        "task": name,
        "from": rfc3339(from_us),
        "to": rfc3339(to_us),
        "total": count,
        "first": rfc3339(first_us),
        "last": rfc3339(last_us),
        "tasks": tasks,
        "one_at_a_time": alone,
        "estimate_s": _estimate_s(context, rows, alone, count, given.parallel),
    }


def _estimate_s(
    context: RequestContext, rows: Mapping[str, TaskRow], alone: list[str], count: int, parallel: int
) -> float | None:
    took_s: dict[str, float] = {}
    for task in rows:
        runs = context.node.history.runs(task, "succeeded", None, None, TIMED_BY)
        times = [time_us for one in runs if (time_us := took_us(one.run, one.finished_at_us)) is not None]
        if not times:
            return None
        took_s[task] = sum(times) / len(times) / 1e6
    chain = {task: [one.task for one in after_of(row.spec_packed)] for task, row in rows.items()}
    return round(least_s(chain, took_s, alone, count, parallel), 1)


def backfill_view(state: State, row: BackfillRow, now_us: int) -> BackfillView:
    """Return a backfill, as the API shows it."""
    left = max(0, row.total - row.ended)
    since_s = (now_us - row.paced_us) / 1e6
    paced = row.ended - row.paced_from
    per_s = paced / since_s if row.status == "running" and paced and since_s > 0 else None
    return {
        "number": row.number,
        "task": row.task,
        "from": rfc3339(row.from_us),
        "to": rfc3339(row.to_us),
        "status": row.status,
        "why": row.why or None,
        "downstream": row.downstream,
        "parallel": row.parallel,
        "newest_first": row.newest_first,
        "total": row.total,
        "succeeded": row.succeeded,
        "failed": row.failed,
        "skipped": row.skipped,
        "left": left,
        "in_flight": [
            {"at": rfc3339(nominal_us), "runs": _runs_of(state, generation)} for nominal_us, generation in row.in_flight
        ],
        "failures": [{"at": rfc3339(nominal_us), "run_id": run_id} for nominal_us, run_id in reversed(row.failures)],
        "per_hour": None if per_s is None else round(per_s * 3600, 1),
        "left_s": None if per_s is None else round(left / per_s, 1),
        "asked_by": row.asked_by or None,
        "asked_at": rfc3339(row.asked_us),
        "ended_at": rfc3339_or_none(row.ended_us),
    }


def _runs_of(state: State, generation: int) -> list[str]:
    """Return the ids of the active runs of a rerun."""
    rerun = state.reruns.get(generation)
    tasks = () if rerun is None else rerun.unended
    ids = (run_id for task in tasks for run_id in state.runs_of.get(task, ()))
    return [run_id for run_id in ids if state.runs[run_id].generation == generation]
