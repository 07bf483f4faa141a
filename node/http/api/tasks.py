"""Tasks: read, pause and delete them."""

import asyncio
import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from aiohttp import web
from pydantic import Field

from hashing.chunked import sorted_in_chunks
from node.duty.held_times import HeldTime, held_time
from node.duty.why_values import Why
from node.http.api.explaining import unexpectedly_held
from node.http.api.pages import cursor_of, cut, name_after
from node.http.api.shapes import PageQuery, RequestModel
from node.http.api.task_shapes import (
    BreachView,
    HeldTimeView,
    HeldView,
    LastView,
    LateView,
    ListedTaskView,
    RegisteredView,
    TaskPage,
    TaskView,
)
from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.problems import NAME_RULE, Problem
from node.http.door.request_context import RequestContext
from node.state.calendar import Calendars, days_of
from node.state.registry import DeleteTask, Pause
from node.state.times import rfc3339, rfc3339_or_none
from node.state.value import Breach, Outcome, State, TaskRow
from tasks.definition.deadlines import DeadlineName, Deadlines, deadlines_of
from tasks.definition.schedule import next_due_us
from tasks.definition.spec import NAME_PATTERN, Spec, set_of


class TasksQuery(PageQuery):
    """A filter of tasks."""

    kind: str | None = None
    owner: str | None = Field(default=None, description="Only those that this member owns")
    set: str | None = Field(default=None, description="Only those of this set of files (`rota apply --set`)")
    late: bool | None = Field(default=None, description="Only those that have a breached deadline; false: the others")


class DeleteQuery(RequestModel):
    """How a task is deleted."""

    with_children: bool = Field(
        default=False, description="Also if other tasks come after it; nothing makes them due then until they change"
    )


_LATE: Final[dict[DeadlineName, str]] = {
    "start_within": "not begun within {:g} s of its due time",
    "finish_within": "not succeeded within {:g} s of its due time",
    "success_every": "no run has succeeded for {:g} s",
}

endpoints = Endpoints("tasks")

_NAME: Final = re.compile(NAME_PATTERN)
_VERSION: Final = re.compile(r'"?(\d{1,18})"?')
_WRITES: Final = ("no-quorum", "outcome-unknown")
_BESIDE_THE_SPEC: Final = tuple(name for name in RegisteredView.__annotations__ if name not in Spec.model_fields)
_VIEWS_BATCH: Final = 50
_ROWS_BATCH: Final = 2000


@endpoints.add("GET", "/v1/tasks", {200: ResponseSpec("Tasks, by name", TaskPage)}, ("invalid",))
async def tasks(context: RequestContext, query: TasksQuery) -> web.Response:
    """List the tasks."""
    ownership = await context.ownership()
    state = context.state
    names = await context.server.kept(TaskNames).after(state, name_after(query.after))
    found: list[tuple[str, TaskRow, str | None]] = []
    for number, name in enumerate(names, 1):
        if number % _ROWS_BATCH == 0:
            await asyncio.sleep(0)  # let other requests run
        row = state.tasks.get(name)
        if row is None or (query.kind is not None and row.placing.kind != query.kind):
            continue
        if query.set is not None and set_of(row.spec_packed) != query.set:
            continue
        if query.late is not None and query.late != bool(row.breaches):
            continue
        owner = ownership.owner(name)
        if query.owner is None or owner == query.owner:
            found.append((name, row, owner))
            if len(found) > query.limit:
                break
    page, more = cut(found, query.limit)
    held = await unexpectedly_held(context, [name for name, _, _ in page if name in context.state.tasks], ownership)
    items: list[ListedTaskView] = []
    for name, row, owner in page:
        items.append(
            {
                **task_view(context.state, row, owner, context.server.now_us()),
                "held": held_view(held.get(name)),
            }
        )
        if len(items) % _VIEWS_BATCH == 0:
            await asyncio.sleep(0)
    return context.answer({"items": items, "next": cursor_of(page[-1][0]) if more else None})


@endpoints.add("GET", "/v1/tasks/{name}", {200: ResponseSpec("The task", TaskView)}, ("not-found",))
async def task(context: RequestContext) -> web.Response:
    """Show one task with its complete definition. The ETag is its version."""
    return await _task_response(context, known_task(context))


@endpoints.add(
    "DELETE",
    "/v1/tasks/{name}",
    {204: ResponseSpec("It is deleted, and its runs are cancelled")},
    ("not-found", "conflict", "version-conflict", *_WRITES),
    headers={"If-Match": 'Only if it has this version, such as "3"; *: any'},
)
async def delete_task(context: RequestContext, query: DeleteQuery) -> web.Response:
    """Delete a task, and cancel its runs. Refused while other tasks come after it, unless `with_children` allows it."""
    name = await task_to_change(context)
    await delete(context, name, expected_version(context, name), with_children=query.with_children)
    return web.Response(status=204)


async def delete(context: RequestContext, name: str, expected: int | None, *, with_children: bool = False) -> None:
    """Delete a task and cancel its runs. `expected` is the version that it must have; None: any. Raises `Problem`.

    `with_children`: also if other tasks come after it, which then wait for it in vain.
    """
    await context.propose(DeleteTask(context.server.now_us(), name, expected, with_children))


@endpoints.add(
    "POST",
    "/v1/tasks/{name}/pause",
    {200: ResponseSpec("It has no due times until it is resumed", TaskView)},
    ("not-found", *_WRITES),
)
async def pause(context: RequestContext) -> web.Response:
    """Pause a task: it has no due times. Its active runs continue, and it can be run by hand."""
    return await _set_paused(context, on=True)


@endpoints.add(
    "POST",
    "/v1/tasks/{name}/resume",
    {200: ResponseSpec("Its schedule starts from now", TaskView)},
    ("not-found", *_WRITES),
)
async def resume(context: RequestContext) -> web.Response:
    """Resume a paused task. Its schedule starts from now."""
    return await _set_paused(context, on=False)


async def _set_paused(context: RequestContext, *, on: bool) -> web.Response:
    name = await task_to_change(context)
    await context.propose(Pause(context.server.now_us(), name, on))
    return await _task_response(context, name)


async def _task_response(context: RequestContext, name: str) -> web.Response:
    ownership = await context.ownership()
    row = context.state.tasks.get(name)
    if row is None:
        raise Problem("not-found", f"the task {name!r} was deleted meanwhile")
    owner = ownership.owner(name)
    return context.answer(
        task_view(context.state, row, owner, context.server.now_us()), headers={"ETag": f'"{row.version}"'}
    )


def known_task(context: RequestContext) -> str:
    """Return the name in the path. Raises `Problem` not-found if it is no registered task."""
    name = context.path("name")
    if name not in context.state.tasks:
        detail = (
            f"there is no task {name!r}"
            if _NAME.fullmatch(name)
            else f"this is not a valid task name: {name_fault(name)}"
        )
        raise Problem("not-found", detail)
    return name


async def task_to_change(context: RequestContext) -> str:
    """As `known_task`, for a write: if the task is unknown here, catch up with the log first. Raises `Problem`."""
    await catch_up_if_unknown(context, context.path("name"))
    return known_task(context)


async def catch_up_if_unknown(context: RequestContext, name: str) -> None:
    """Wait for all committed entries, if the task is unknown here and its name is valid. Raises `Problem` no-quorum."""
    if name not in context.state.tasks and _NAME.fullmatch(name):
        await context.catch_up()


def expected_version(context: RequestContext, name: str) -> int | None:
    """Return the version that If-Match or If-None-Match requires; 0: unregistered; None: any. Raises `Problem`."""
    if_match, if_none = context.header("If-Match"), context.header("If-None-Match")
    if if_none is not None:
        if if_none != "*" or if_match is not None:
            raise Problem(
                "bad-request",
                "the only supported value of If-None-Match is * (only if it is not registered), without If-Match",
            )
        return 0
    if if_match is None:
        return None
    if if_match == "*":
        if name not in context.state.tasks:
            raise Problem("version-conflict", f"there is no task {name!r}, and If-Match requires one")
        return None
    found = _VERSION.fullmatch(if_match)
    if found is None:
        raise Problem("bad-request", f'If-Match is {if_match}; it must be one version, such as "3"')
    if int(found[1]) == 0:
        raise Problem("version-conflict", "no task has version 0")
    return int(found[1])


def name_fault(name: str) -> str:
    """Say what is wrong with an invalid task name."""
    return f"{name[:140]!r} {NAME_RULE}"


class TaskNames:
    """Task names, sorted once for each epoch: every change of the set of tasks increments the epoch.

    They are sorted in another thread: sorting 100,000 takes 50 ms.
    """

    def __init__(self) -> None:
        self._version: tuple[str, int] | None = None
        self._names: list[str] = []

    async def after(self, state: State, name: str | None) -> Iterator[str]:
        """Return an iterator of the names greater than `name`, or of all names (None)."""
        version = (state.cluster_id, state.epoch)
        names = self._names
        if self._version != version:
            names = await asyncio.to_thread(sorted_in_chunks, state.tasks)
            self._version, self._names = version, names
        return islice(names, 0 if name is None else bisect_right(names, name), None)


def next_fire_us(calendars: Calendars, row: TaskRow, now_us: int) -> int | None:
    """Return when the task is due next. If it is overdue and has no further time, this is in the past."""
    spec = row.spec
    if row.paused or not spec.enabled or spec.schedule is None:
        return None
    days = days_of(calendars, row.timing)
    coming = next_due_us(spec.schedule, days, row.since_us, max(row.through_us, now_us))
    return coming if coming is not None else next_due_us(spec.schedule, days, row.since_us, row.through_us)


def held_time_view(held: HeldTime | None) -> HeldTimeView | None:
    """Return what holds an occurrence in a blackout; None: nothing does."""
    if held is None:
        return None
    return {
        "blackouts": list(held.blackouts),
        "until": rfc3339(held.until_us),
        "begins": held.begins,
        "detail": str(held),
    }


def next_held_view(state: State, row: TaskRow, next_us: int | None, now_us: int) -> HeldTimeView | None:
    """Return what holds the next occurrence of a task, which is due at `next_us` (`next_fire_us`); None: nothing."""
    return None if next_us is None or next_us <= now_us else held_time_view(held_time(state, row, next_us))


def task_view(state: State, row: TaskRow, owner: str | None, now_us: int) -> TaskView:
    """Return a task, with its definition and its owner."""
    return {**registered_view(state, row, now_us), "owner": owner}


def registered_view(state: State, row: TaskRow, now_us: int) -> RegisteredView:
    """Return a task, with its definition."""
    next_us = next_fire_us(state.calendars, row, now_us)
    made = {
        "registered_at": rfc3339(row.registered_at_us),
        "next_fire_at": rfc3339_or_none(next_us),
        "next_held": next_held_view(state, row, next_us, now_us),
        "last": last_view(row.last),
        "late": late_view(row),
        "degraded": row.degraded or None,
    }
    view: dict[str, Any] = row.spec.model_dump(mode="json")
    view.update({name: made[name] if name in made else getattr(row, name) for name in _BESIDE_THE_SPEC})
    return view  # type: ignore[return-value]  # the spec's fields, which pydantic dumps as a dict of Any


def last_view(last: Outcome | None) -> LastView | None:
    """Return how a task's last run ended."""
    if last is None:
        return None
    return {
        "run_id": last.run_id,
        "state": last.state,
        "fire_at": rfc3339(last.fire_at_us),
        "finished_at": rfc3339(last.finished_at_us),
        "error": last.error,
    }


def late_view(row: TaskRow | None) -> list[LateView]:
    """Return a task's breached deadlines, the oldest breach first. `row` None: the task was deleted meanwhile."""
    limits = (row and deadlines_of(row.spec_packed)) or Deadlines()
    breaches = () if row is None else row.breaches
    return [
        {**breach_view(one), "limit_s": limit_s, "detail": _LATE[one.deadline].format(limit_s)}
        for one in breaches
        for limit_s in [(limits.limit_us(one.deadline) or 0) / 1e6]
    ]


def breach_view(breach: Breach) -> BreachView:
    """Return a deadline that is breached, or was, as the API shows it."""
    return {
        "deadline": breach.deadline,
        "due_at": None if breach.deadline == "success_every" else rfc3339(breach.due_us),
        "since": rfc3339(breach.since_us),
    }


def held_view(found: Why | None) -> HeldView | None:
    """Return why a task is held, as shown in a list of tasks."""
    if found is None:
        return None
    return {"code": found.code, "detail": found.detail, "until": rfc3339_or_none(found.until_us)}
