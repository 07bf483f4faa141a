"""Runs: active ones from the replicated state, ended ones from this member's history."""

import asyncio
from collections.abc import Iterable
from typing import Final

import msgpack
from aiohttp import web
from pydantic import JsonValue

from node.history.filters import RunPosition
from node.http.asking import progress_of
from node.http.endpoint import Endpoints, ResponseSpec
from node.http.pages import cursor_of, cut, run_before
from node.http.problems import Problem, invalid
from node.http.request_context import RequestContext
from node.http.requests import ActionBody, RunsQuery, StartBody, TaskRunsQuery
from node.http.responses.runs import RunPage, RunView, StartedView
from node.http.routes.tasks import known_task, task_to_change
from node.http.specs import ParamsToCheck, errors_by_kind, storable
from node.http.views import ended_view, run_view
from node.state.attempts import Cancel
from node.state.occurrences import Start
from node.state.times import micros
from node.state.value import EndedRun, Run, State
from tasks.definition.run import ACTIVE

endpoints = Endpoints("runs")

_WRITES: Final = ("no-quorum", "outcome-unknown")
MAX_KEY: Final = 200
_VIEWS_BATCH: Final = 100


@endpoints.add(
    "POST",
    "/v1/tasks/{name}/runs",
    {202: ResponseSpec("It waits for the task's owner to claim it", StartedView)},
    ("bad-request", "not-found", "conflict", "too-large", "invalid", "member-away", *_WRITES),
    body=StartBody,
    body_needed=False,
    headers={"Idempotency-Key": "A repeated request with the same key returns the run of the first one"},
)
async def start_run(context: RequestContext) -> web.Response:
    """Start a run by hand. Refused if `overlap` forbids it. A paused task can be run, too."""
    name = await task_to_change(context)
    given = await context.model(StartBody, empty=True)
    key = _key(context)
    await refuse_bad_params(context, given.params)
    fire_at_us = micros(given.fire_at) if given.fire_at is not None else None
    return _started(context, await propose_run(context, name, given.params, fire_at_us, key))


@endpoints.add(
    "POST",
    "/v1/tasks/{name}/actions/{action}",
    {202: ResponseSpec("It waits for the task's owner to claim it", StartedView)},
    ("bad-request", "not-found", "conflict", "too-large", "invalid", "member-away", *_WRITES),
    body=ActionBody,
    body_needed=False,
    headers={"Idempotency-Key": "A repeated request with the same key returns the run of the first one"},
)
async def start_action(context: RequestContext) -> web.Response:
    """Ask a task's kind for something beside the task's work, such as a preview: the result is that of the run.

    The run begins beside others of the task, is not retried, and counts for none of the task's figures. It fails if the
    kind has no such action.
    """
    name, action = await task_to_change(context), context.path("action")
    given = await context.model(ActionBody, empty=True)
    key = _key(context)
    await refuse_bad_params(context, given.params)
    storable(lambda: msgpack.packb(given.args), ("args",))
    entry = Start(
        at_us=context.server.now_us(),
        task=name,
        params=given.params,
        fire_at_us=None,
        key=key,
        action=action,
        args=dict(given.args),
    )
    return _started(context, str((await context.propose(entry)).value["run_id"]))


def _key(context: RequestContext) -> str | None:
    """The Idempotency-Key. Raises `Problem` bad-request."""
    key = context.header("Idempotency-Key")
    if key is not None and len(key) > MAX_KEY:
        raise Problem("bad-request", f"an Idempotency-Key may have at most {MAX_KEY} characters")
    return key


async def refuse_bad_params(context: RequestContext, params: dict[str, JsonValue] | None) -> None:
    """Raise `Problem` for params, given for one run of the task in the path, that are not valid."""
    if params is None:
        return
    # Looked up again: the task may have been deleted while the body arrived.
    spec = context.state.tasks[known_task(context)].spec
    [errors] = await errors_by_kind(context, spec.kind, [ParamsToCheck(params, spec.bound)])
    if errors:
        raise invalid(errors)
    storable(lambda: msgpack.packb(params), ("params",))


async def propose_run(
    context: RequestContext,
    name: str,
    params: dict[str, JsonValue] | None = None,
    fire_at_us: int | None = None,
    key: str | None = None,
) -> str:
    """Start a run of a task by hand, with checked params. Returns the run's id. Raises `Problem`."""
    entry = Start(context.server.now_us(), name, params, fire_at_us, key)
    return str((await context.propose(entry)).value["run_id"])


def _started(context: RequestContext, run_id: str) -> web.Response:
    return context.answer({"run_id": run_id}, 202, {"Location": f"/v1/runs/{run_id}"})


@endpoints.add(
    "GET", "/v1/tasks/{name}/runs", {200: ResponseSpec("Its runs, newest first", RunPage)}, ("not-found", "invalid")
)
async def task_runs(context: RequestContext, query: TaskRunsQuery) -> web.Response:
    """The runs of a task, newest first; of a deleted task, those that are still kept."""
    name = context.path("name")
    page = await runs_page(context, RunsQuery(**query.model_dump(), task=name))
    if not page["items"] and query.after is None and name not in context.state.tasks:
        known_task(context)
    return context.answer(page)


@endpoints.add("GET", "/v1/runs", {200: ResponseSpec("Runs, newest first", RunPage)}, ("invalid",))
async def runs(context: RequestContext, query: RunsQuery) -> web.Response:
    """The runs of all tasks, newest first, by creation time."""
    return context.answer(await runs_page(context, query))


@endpoints.add("GET", "/v1/runs/{run_id}", {200: ResponseSpec("The run", RunView)}, ("not-found",))
async def run(context: RequestContext) -> web.Response:
    """One run. Its progress is requested from the member that runs it."""
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
    """A run, active or ended. Raises `Problem` not-found."""
    active = context.state.runs.get(run_id)
    if active is not None:
        return active
    ended = await asyncio.to_thread(context.node.history.run, run_id)
    if ended is None:
        named = f"; that is a task's name: `rota runs {run_id}` lists its runs" * (run_id in context.state.tasks)
        raise Problem("not-found", f"there is no run {run_id[:200]!r}, or it is no longer kept{named}")
    return ended


async def runs_page(context: RequestContext, query: RunsQuery) -> RunPage:
    """A page of runs, newest first. Raises `Problem`."""
    before = run_before(query.after)
    # The state is read first: a run that ends in between is in the history then. A run in both is listed once.
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
