"""Who owns a task and why, and what would be, were some members down."""

import asyncio
from typing import Final

from aiohttp import web
from pydantic_core import to_json

from node.duty.ownership import Ownership
from node.http.endpoint import Endpoints, Says
from node.http.problems import Problem, invalid_field
from node.http.request_context import Call
from node.http.requests import OwnerQuery, PlanQuery
from node.http.responses import LoadView, MoveView, OwnerView, PlanView
from node.http.routes.tasks import known_task
from node.http.views import overdue, owner_view
from node.peer.protocol import PeerAway

endpoints = Endpoints("placement")

_AT_ONCE: Final = 500
"""So many moves are packed in one piece: less than a millisecond's work."""


@endpoints.add("GET", "/v1/tasks/{name}/owner", {200: Says("Its owner, and why", OwnerView)}, ("not-found", "invalid"))
async def owner(call: Call, query: OwnerQuery) -> web.Response:
    """Who owns a task, who stands by, where it runs, and why.

    With `without`, the same as if those members were down; what runs, runs where it does.
    """
    name = known_task(call)
    ownership = await call.ownership()
    if query.without is not None:
        ownership = await _without(call, ownership, query.without)
    state = call.state
    if name not in state.tasks:
        raise Problem("not-found", f"the task {name!r} has been deleted meanwhile")
    if name not in ownership.state.tasks:
        raise Problem("behind", "the placement with this task is still being computed: ask again")
    now_us = call.service.now_us()
    view = owner_view(state, ownership, name, now_us)
    if query.without is None and overdue(state, name, now_us):
        view["waiting"] = await _waiting(call, name, view["owner"])
    return call.answer(view)


@endpoints.add("GET", "/v1/plan", {200: Says("What would move", PlanView)}, ("invalid",))
async def plan(call: Call, query: PlanQuery) -> web.Response:
    """What would move, and who would carry how much, were some members down."""
    now = await call.ownership()
    then = await _without(call, now, query.without)
    return call.answer_packed(await asyncio.to_thread(plan_packed, now, then))


def plan_packed(now: Ownership, then: Ownership) -> bytes:
    """The `PlanView` as JSON, made piece by piece: 33,000 moves at once keep all threads waiting for 50 ms."""
    moves = now.moves_to(then)
    pieces = []
    for first in range(0, len(moves), _AT_ONCE):
        part = moves[first : first + _AT_ONCE]
        views: list[MoveView] = [{"task": move.task, "from": move.source, "to": move.target} for move in part]
        pieces.append(to_json(views)[1:-1])
    later = then.load()
    load: dict[str, LoadView] = {
        node: {"now": weight, "then": later.get(node, 0)} for node, weight in now.load().items()
    }
    return b'{"moves":[' + b",".join(pieces) + b'],"load":' + to_json(load) + b"}"


async def _without(call: Call, ownership: Ownership, without: str) -> Ownership:
    members = frozenset(part.strip() for part in without.split(",") if part.strip())
    unknown = sorted(member for member in members if member not in ownership.state.members)
    if unknown or not members:
        there = ", ".join(sorted(ownership.state.members))
        which = ", ".join(unknown) or "''"
        raise invalid_field("without", f"no member is called {which}; the members are {there}", "the query")
    return await asyncio.to_thread(ownership.without, members)


async def _waiting(call: Call, task: str, owner: str | None) -> str | None:
    """Why what is due has not begun, as far as the owner can say."""
    if owner is None:
        return "no member may run it: see `because`"
    if owner == call.node.facts.node:
        return call.node.waiting(task)
    try:
        _, waiting = await call.service.peers.progress(owner, [], [task], call.service.limits.peer_s)
    except PeerAway as away:
        return str(away)
    return waiting.get(task)
