"""Runs and their attempts."""

import asyncio
import base64
from collections.abc import Iterable
from typing import Any, Final

import msgpack
from aiohttp import web
from pydantic import Field
from typing_extensions import TypedDict

from node.history.file import RunPosition
from node.http.api.asking import progress_of
from node.http.api.pages import cursor_of, cut, run_before
from node.http.api.shapes import Cursor, PageQuery, Time
from node.http.api.tasks import known_task
from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.problems import Problem
from node.http.door.request_context import RequestContext
from node.peer.protocol import RunProgress
from node.state.attempts import Cancel
from node.state.facts import degraded_of
from node.state.run_times import took_us
from node.state.times import rfc3339, rfc3339_or_none
from node.state.value import Attempt, EndedRun, Run, State, Trigger
from tasks.definition.run import ACTIVE, RunState


class ProgressView(TypedDict):
    """How far an attempt is."""

    done: float
    total: float | None
    unit: str


class AttemptView(TypedDict):
    """An attempt of a run. `log_truncated`: its log reached its limit, or could not be written to its end."""

    attempt: int
    node: str
    token: int
    state: RunState
    started_at: Time | None
    finished_at: Time | None
    error: str | None
    log_truncated: bool


class RunView(TypedDict):
    """A run. `attempt`, `token`, `node`, `claimed_at` and `started_at` are those of the present or latest attempt.

    Consecutive occurrences that were skipped or missed for one reason are listed as one run, of `count` occurrences
    from `fire_at` to `last_fire_at`; `blocked_by` is the run that was active meanwhile. Any other run has `count` 1.

    `progress` and `frozen_since` come from the member that runs it, and are null if that member does not answer. A run
    is frozen while its member holds no lease: it continues when the lease is back, or another member takes it over.

    `params` were given for this run in place of the task's; null: it uses the task's. Secrets in them are references,
    as they were given.

    `action` is the kind's action, such as `preview`, that the run does instead of the task's work, with `args`; null:
    it does the task's work.

    `due_at` is when a run that no member holds may be claimed, such as a retry after a failed attempt; `error` says why
    it waits.

    `member` is the only member that may claim the run, of a task with `each`; null: any may.

    `degraded` is what a run that succeeded left undone, as its result says; null: nothing.

    `rerun` is the number that runs share which were started together by hand (`downstream`); null: it is of no rerun.
    `offered` is the member with more room that a waiting run was last offered to; null: to none.

    `backfill` is the number of the backfill that it is of; null: it is of none.

    `took_s` is the time from the run's first claim to its end, with the pauses between its attempts; null: the run has
    not ended, or no member claimed it.
    """

    run_id: str
    task: str
    kind: str
    trigger: Trigger
    member: str | None
    params: dict[str, Any] | None
    action: str | None
    args: dict[str, Any] | None
    fire_at: Time
    attempt: int | None
    token: int | None
    node: str | None
    state: RunState
    claimed_at: Time | None
    started_at: Time | None
    finished_at: Time | None
    took_s: float | None
    progress: ProgressView | None
    frozen_since: Time | None
    due_at: Time | None
    checkpoint: Any
    result: dict[str, Any] | None
    degraded: str | None
    error: str | None
    attempts: list[AttemptView]
    cancelling: str | None
    count: int
    last_fire_at: Time
    blocked_by: str | None
    rerun: int | None
    backfill: int | None
    offered: str | None


class RunPage(TypedDict):
    """Runs, newest first."""

    items: list[RunView]
    next: Cursor


class TaskRunsQuery(PageQuery):
    """A filter of a task's runs."""

    state: RunState | None = None


class RunsQuery(TaskRunsQuery):
    """A filter of runs."""

    node: str | None = Field(default=None, description="Only those whose present or latest attempt is on this member")
    task: str | None = None


endpoints = Endpoints("runs")

_WRITES: Final = ("no-quorum", "outcome-unknown")
_VIEWS_BATCH: Final = 100


@endpoints.add(
    "GET", "/v1/tasks/{name}/runs", {200: ResponseSpec("Its runs, newest first", RunPage)}, ("not-found", "invalid")
)
async def task_runs(context: RequestContext, query: TaskRunsQuery) -> web.Response:
    """List the runs of a task, newest first; of a deleted task, the runs that are still kept."""
    name = context.path("name")
    page = await runs_page(context, RunsQuery(**query.model_dump(), task=name))
    if not page["items"] and query.after is None and name not in context.state.tasks:
        known_task(context)
    return context.answer(page)


@endpoints.add("GET", "/v1/runs", {200: ResponseSpec("Runs, newest first", RunPage)}, ("invalid",))
async def runs(context: RequestContext, query: RunsQuery) -> web.Response:
    """List the runs of all tasks, newest first, by creation time."""
    return context.answer(await runs_page(context, query))


@endpoints.add("GET", "/v1/runs/{run_id}", {200: ResponseSpec("The run", RunView)}, ("not-found",))
async def run(context: RequestContext) -> web.Response:
    """Show one run. Its progress is requested from the member that runs it."""
    found = await find_run(context, context.path("run_id"))
    if isinstance(found, EndedRun):
        return context.answer(ended_view(found))
    progress = await progress_of(context, [found])
    return context.answer(run_view(found, progress=progress.get(found.run_id)))


@endpoints.add(
    "DELETE",
    "/v1/runs/{run_id}",
    {202: ResponseSpec("It is being cancelled, or is cancelled", RunView)},
    ("not-found", "conflict", *_WRITES),
)
async def cancel_run(context: RequestContext) -> web.Response:
    """Cancel a run. The member that holds it stops it; a run that no member holds ends at once."""
    run_id = context.path("run_id")
    if run_id not in context.state.runs:
        await context.catch_up()
    found = await find_run(context, run_id)
    if isinstance(found, EndedRun):
        raise Problem("conflict", f"the run has ended: {found.state.replace('_', ' ')}", state=found.state)
    await context.propose(Cancel(context.server.now_us(), found.run_id))
    found = await find_run(context, found.run_id)
    return context.answer(ended_view(found) if isinstance(found, EndedRun) else run_view(found), 202)


async def find_run(context: RequestContext, run_id: str) -> Run | EndedRun:
    """Return a run, active or ended. Raises `Problem` not-found."""
    active = context.state.runs.get(run_id)
    if active is not None:
        return active
    ended = await asyncio.to_thread(context.node.history.run, run_id)
    if ended is None:
        named = f"; that is a task's name: `rota runs {run_id}` lists its runs" * (run_id in context.state.tasks)
        raise Problem("not-found", f"there is no run {run_id[:200]!r}, or it is no longer kept{named}")
    return ended


async def runs_page(context: RequestContext, query: RunsQuery) -> RunPage:
    """Return a page of runs, newest first. Raises `Problem`."""
    before = run_before(query.after)
    # The state is read before the history, so that a run that ends in between is in both. A run in both is listed once.
    active = _active(context.state, query, before)
    ended: dict[str, EndedRun] = {}
    if query.state is None or query.state not in ACTIVE:
        asked = (query.task, query.state, query.node, before, query.limit + 1)
        ended = {one.run.run_id: one for one in await asyncio.to_thread(context.node.history.runs, *asked)}
    runs: list[Run | EndedRun] = [*ended.values(), *(run for run in active if run.run_id not in ended)]
    page, more = cut(sorted(runs, key=_age, reverse=True), query.limit)
    progress = await progress_of(context, [run for run in page if isinstance(run, Run)])
    items: list[RunView] = []
    for run in page:
        known = progress.get(run.run_id) if isinstance(run, Run) else None
        items.append(ended_view(run) if isinstance(run, EndedRun) else run_view(run, progress=known))
        if len(items) % _VIEWS_BATCH == 0:
            await asyncio.sleep(0)  # let other requests run
    return {"items": items, "next": cursor_of(*_age(page[-1])) if more else None}


def _age(run: Run | EndedRun) -> RunPosition:
    made = run.run if isinstance(run, EndedRun) else run
    return RunPosition(made.created_at_us, made.run_id)


def _active(state: State, query: RunsQuery, before: RunPosition | None) -> list[Run]:
    if query.task is not None:
        candidates: Iterable[Run] = (state.runs[run_id] for run_id in state.runs_of.get(query.task, ()))
    else:
        candidates = state.runs.values()
    return [
        run
        for run in candidates
        if (query.state is None or run.state == query.state)
        and (query.node is None or (run.attempts and run.attempts[-1].node == query.node))
        and (before is None or _age(run) < before)
    ]


def progress_view(progress: RunProgress | None) -> ProgressView | None:
    """Return the progress of an attempt; None while it has reported none."""
    if progress is None or progress.done is None:
        return None
    return {"done": progress.done, "total": progress.total, "unit": progress.unit}


def run_view(run: Run, ended: EndedRun | None = None, progress: RunProgress | None = None) -> RunView:
    """Return a run as the API shows it, with its end (`ended`) if it has one."""
    latest = run.attempts[-1] if run.attempts else None
    series = ended.series if ended else None
    return {
        "run_id": run.run_id,
        "task": run.task,
        "kind": run.spec.kind,
        "trigger": run.trigger,
        "member": run.member or None,
        "params": run.params,
        "action": run.action or None,
        "args": run.args,
        "fire_at": rfc3339(run.fire_at_us),
        "attempt": latest.attempt if latest else None,
        "token": latest.token if latest else None,
        "node": latest.node if latest else None,
        "state": ended.state if ended else run.state,
        "claimed_at": rfc3339(latest.claimed_at_us) if latest else None,
        "started_at": rfc3339_or_none(latest.started_at_us) if latest else None,
        "finished_at": rfc3339(ended.finished_at_us) if ended else None,
        "took_s": None if ended is None or (time_us := took_us(run, ended.finished_at_us)) is None else time_us / 1e6,
        "progress": progress_view(progress),
        "frozen_since": rfc3339_or_none(progress.frozen_since_us) if progress else None,
        "due_at": rfc3339(run.due_us)
        if ended is None and run.state in ("waiting", "orphaned") and run.due_us
        else None,
        "checkpoint": checkpoint_view(run.checkpoint),
        "result": ended.result if ended else None,
        "degraded": (ended and ended.state == "succeeded" and degraded_of(ended.result)) or None,
        "error": ended.error if ended else latest.error if latest else None,
        "attempts": [attempt_view(attempt) for attempt in run.attempts],
        "cancelling": run.cancelling,
        "count": series.count if series else 1,
        "last_fire_at": rfc3339(series.last_fire_at_us if series else run.fire_at_us),
        "blocked_by": (series.blocked_by or None) if series else None,
        "rerun": run.generation or None,
        "backfill": run.backfill or None,
        "offered": run.offered or None,
    }


def ended_view(ended: EndedRun) -> RunView:
    """Return a finished run as the API shows it."""
    return run_view(ended.run, ended)


def attempt_view(attempt: Attempt) -> AttemptView:
    """Return an attempt as the API shows it."""
    return {
        "attempt": attempt.attempt,
        "node": attempt.node,
        "token": attempt.token,
        "state": attempt.state,
        "started_at": rfc3339_or_none(attempt.started_at_us),
        "finished_at": rfc3339_or_none(attempt.finished_at_us),
        "error": attempt.error,
        "log_truncated": attempt.log_truncated,
    }


def checkpoint_view(packed: bytes | None) -> Any:
    """Return a checkpoint, as far as JSON can express it: bytes become {"base64": ...}, other values a string."""
    if packed is None:
        return None
    try:
        return _plain(msgpack.unpackb(packed, strict_map_key=False, timestamp=3))
    except (ValueError, msgpack.UnpackException):
        return {"base64": base64.b64encode(packed).decode()}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
