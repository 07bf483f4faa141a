"""Who owns a task and why, and what would move if members were down."""

import asyncio
from typing import Final

from aiohttp import web
from pydantic_core import to_json

from node.duty.overdue import unbegun_since_us
from node.duty.ownership import Ownership
from node.duty.why_values import UNEXPECTED
from node.http.bootstrap_views import bootstrap_owner_view
from node.http.endpoint import Endpoints, ResponseSpec
from node.http.explaining import explain
from node.http.problems import Problem
from node.http.request_context import RequestContext
from node.http.requests import OwnerQuery, PlanQuery
from node.http.responses.placement import LoadView, MoveView, OwnerView, PlanView
from node.http.routes.tasks import known_task
from node.http.views import owner_view
from node.http.what_ifs import members_named
from node.peer.bootstrap import member_of

endpoints = Endpoints("placement")

_MOVES_BATCH: Final = 500
"""How many moves are serialized in one piece: less than a millisecond's work."""


@endpoints.add(
    "GET", "/v1/tasks/{name}/owner", {200: ResponseSpec("Its owner, and why", OwnerView)}, ("not-found", "invalid")
)
async def owner(context: RequestContext, query: OwnerQuery) -> web.Response:
    """Who owns a task, its standbys, where it runs, and why.

    With `without`, the same as if those members were down; `running_on` stays as it is. `bootstrap%2FID` is the work of
    feeding the member ID with finished runs that it lacks.
    """
    if (member := member_of(context.path("name"))) is not None:
        return await bootstrap_owner(context, member, query)
    name = known_task(context)
    ownership = await context.ownership()
    if query.without is not None:
        ownership = await _without(context, ownership, query.without)
    state = context.state
    if name not in state.tasks:
        raise Problem("not-found", f"the task {name!r} was deleted meanwhile")
    if name not in ownership.state.tasks:
        raise Problem("behind", "the placement with this task is still being computed: try again")
    now_us = context.server.now_us()
    view = owner_view(state, ownership, name, now_us)
    since_us = unbegun_since_us(state, name)
    if query.without is None and since_us is not None and since_us <= now_us:
        found = await explain(context, name, ownership)
        view["waiting"] = found.detail if found.code in UNEXPECTED - {"due"} else None
    return context.answer(view)


async def bootstrap_owner(context: RequestContext, member: str, query: OwnerQuery) -> web.Response:
    """Who feeds a member with finished runs that it lacks. Raises `Problem`."""
    ownership = await context.ownership()
    if query.without is not None:
        ownership = await _without(context, ownership, query.without)
    state = context.state
    if member not in state.members:
        raise Problem("not-found", f"there is no member {member!r}; GET /v1/members lists them")
    latest = context.node.bootstraps.known(state).get(member)
    return context.answer(bootstrap_owner_view(state, ownership.slots, member, latest))


@endpoints.add("GET", "/v1/plan", {200: ResponseSpec("What would move", PlanView)}, ("invalid",))
async def plan(context: RequestContext, query: PlanQuery) -> web.Response:
    """What would move, and every member's load, if some members were down."""
    now = await context.ownership()
    then = await _without(context, now, query.without)
    return context.answer_packed(await asyncio.to_thread(plan_packed, now, then))


def plan_packed(now: Ownership, then: Ownership, batch: int = _MOVES_BATCH) -> bytes:
    """The `PlanView` as JSON, in pieces of `batch` moves: 33,000 in one piece would block all threads for 50 ms."""
    moves = now.moves_to(then)
    pieces = []
    for first in range(0, len(moves), batch):
        part = moves[first : first + batch]
        views: list[MoveView] = [{"task": move.task, "from": move.source, "to": move.target} for move in part]
        pieces.append(to_json(views)[1:-1])
    later = then.load()
    load: dict[str, LoadView] = {
        node: {"now": weight, "then": later.get(node, 0)} for node, weight in now.load().items()
    }
    return b'{"moves":[' + b",".join(pieces) + b'],"load":' + to_json(load) + b"}"


async def _without(context: RequestContext, ownership: Ownership, without: str) -> Ownership:
    return await asyncio.to_thread(ownership.without, members_named(ownership.state, "without", without))
