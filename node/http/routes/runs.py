"""Runs: those that are active, from the state, and those that ended, from this member's history."""

import asyncio
from collections.abc import Iterable
from typing import Final

import msgpack
from aiohttp import web

from node.history.store import Before
from node.http.endpoint import Endpoints, Says
from node.http.pages import cursor_of, cut, run_before
from node.http.problems import Problem, invalid
from node.http.request_context import Call
from node.http.requests import RunsQuery, StartBody, TaskRunsQuery
from node.http.responses import RunPage, RunView, StartedView
from node.http.routes.tasks import known_task, task_to_change
from node.http.specs import Given, check_params, kept
from node.http.times import micros
from node.http.views import ended_view, run_view
from node.peer.protocol import PeerAway, RunProgress
from node.state.entries import Cancel, Start
from node.state.value import EndedRun, Run, State
from tasks.run import ACTIVE, HELD

endpoints = Endpoints("runs")

_WRITES: Final = ("no-quorum", "outcome-unknown")
MAX_KEY: Final = 200
_AT_ONCE: Final = 100


@endpoints.add(
    "POST",
    "/v1/tasks/{name}/runs",
    {202: Says("It waits for the task's owner to claim it", StartedView)},
    ("bad-request", "not-found", "conflict", "too-large", "invalid", "member-away", *_WRITES),
    body=StartBody,
    body_needed=False,
    headers={"Idempotency-Key": "A second request that bears it is answered with the first one's run"},
)
async def start_run(call: Call) -> web.Response:
    """Run a task now, by hand. Refused where `overlap` forbids it. A paused task can be run, too."""
    name = await task_to_change(call)
    given = await call.model(StartBody, empty=True)
    key = call.header("Idempotency-Key")
    if key is not None and len(key) > MAX_KEY:
        raise Problem("bad-request", f"an Idempotency-Key has {MAX_KEY} characters at most")
    if given.params is not None:
        # Looked up again: it may have been deleted while the body was on its way.
        spec = call.state.tasks[known_task(call)].spec
        [errors] = await check_params(call, spec.kind, [Given(given.params, spec.bound)])
        if errors:
            raise invalid(errors)
        kept(lambda: msgpack.packb(given.params), ("params",))
    fire_at_us = micros(given.fire_at) if given.fire_at is not None else None
    result = await call.propose(Start(call.service.now_us(), name, given.params, fire_at_us, key))
    run_id = result.value["run_id"]
    return call.answer({"run_id": run_id}, 202, {"Location": f"/v1/runs/{run_id}"})


@endpoints.add("GET", "/v1/tasks/{name}/runs", {200: Says("Its runs, newest first", RunPage)}, ("not-found", "invalid"))
async def task_runs(call: Call, query: TaskRunsQuery) -> web.Response:
    """The runs of a task, newest first; of a deleted one, those that are still known."""
    name = call.path("name")
    page = await _page(call, RunsQuery(**query.model_dump(), task=name))
    if not page["items"] and query.after is None and name not in call.state.tasks:
        known_task(call)
    return call.answer(page)


@endpoints.add("GET", "/v1/runs", {200: Says("Runs, newest first", RunPage)}, ("invalid",))
async def runs(call: Call, query: RunsQuery) -> web.Response:
    """The runs of all tasks, newest first: by when they were made."""
    return call.answer(await _page(call, query))


@endpoints.add("GET", "/v1/runs/{run_id}", {200: Says("The run", RunView)}, ("not-found",))
async def run(call: Call) -> web.Response:
    """One run. Its progress is asked of the member that runs it."""
    found = await find(call, call.path("run_id"))
    if isinstance(found, EndedRun):
        return call.answer(ended_view(found))
    progress = await _progress(call, [found])
    return call.answer(run_view(found, progress=progress.get(found.run_id)))


@endpoints.add(
    "DELETE",
    "/v1/runs/{run_id}",
    {202: Says("It is being cancelled, or has been", RunView)},
    ("not-found", "conflict", *_WRITES),
)
async def cancel_run(call: Call) -> web.Response:
    """Cancel a run: at once where nobody holds it, else by whoever does."""
    run_id = call.path("run_id")
    if run_id not in call.state.runs:
        await call.catch_up()
    found = await find(call, run_id)
    if isinstance(found, EndedRun):
        raise Problem("conflict", f"the run is over: {found.state.replace('_', ' ')}", state=found.state)
    await call.propose(Cancel(call.service.now_us(), found.run_id))
    found = await find(call, found.run_id)
    return call.answer(ended_view(found) if isinstance(found, EndedRun) else run_view(found), 202)


async def find(call: Call, run_id: str) -> Run | EndedRun:
    """A run, active or ended. Raises `Problem` not-found."""
    active = call.state.runs.get(run_id)
    if active is not None:
        return active
    ended = await asyncio.to_thread(call.node.history.run, run_id)
    if ended is None:
        named = f"; that is a task's name: its runs are those of `rota runs {run_id}`" * (run_id in call.state.tasks)
        raise Problem("not-found", f"there is no run {run_id[:200]!r}, or it is no longer kept{named}")
    return ended


async def _page(call: Call, query: RunsQuery) -> RunPage:
    before = run_before(query.after)
    # The state first: what ends in between is in the history then, and what is in both is told once.
    active = _active(call.state, query, before)
    ended: dict[str, EndedRun] = {}
    if query.state is None or query.state not in ACTIVE:
        asked = (query.task, query.state, query.node, before, query.limit + 1)
        ended = {one.run.run_id: one for one in await asyncio.to_thread(call.node.history.runs, *asked)}
    runs: list[Run | EndedRun] = [*ended.values(), *(run for run in active if run.run_id not in ended)]
    page, more = cut(sorted(runs, key=_age, reverse=True), query.limit)
    progress = await _progress(call, [run for run in page if isinstance(run, Run)])
    items: list[RunView] = []
    for run in page:
        known = progress.get(run.run_id) if isinstance(run, Run) else None
        items.append(ended_view(run) if isinstance(run, EndedRun) else run_view(run, progress=known))
        if len(items) % _AT_ONCE == 0:
            await asyncio.sleep(0)  # others' requests come in between
    return {"items": items, "next": cursor_of(*_age(page[-1])) if more else None}


def _age(run: Run | EndedRun) -> Before:
    made = run.run if isinstance(run, EndedRun) else run
    return Before(made.created_at_us, made.run_id)


def _active(state: State, query: RunsQuery, before: Before | None) -> list[Run]:
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


async def _progress(call: Call, runs: list[Run]) -> dict[str, RunProgress]:
    """How far runs are, asked at once of the members that hold them; of one that does not answer nothing is known."""
    by_member: dict[str, list[str]] = {}
    for run in runs:
        if run.state in HELD and run.node is not None:
            by_member.setdefault(run.node, []).append(run.run_id)
    here = {run_id: call.node.progress(run_id) for run_id in by_member.pop(call.node.facts.node, [])}
    known = {run_id: said for run_id, said in here.items() if said is not None}
    for answer in await asyncio.gather(*(_ask(call, member, held) for member, held in by_member.items())):
        known |= answer
    return known


async def _ask(call: Call, member: str, runs: list[str]) -> dict[str, RunProgress]:
    try:
        progress, _ = await call.service.peers.progress(member, runs, [], call.service.limits.peer_s)
    except PeerAway:
        return {}
    return progress
