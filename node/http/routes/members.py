"""The members: who they are, drain and undrain, come and go."""

from aiohttp import web

from node.http.endpoint import Endpoints, Says
from node.http.pages import cursor_of, cut, key_of
from node.http.problems import Problem
from node.http.request_context import Call
from node.http.requests import MemberBody, PageQuery
from node.http.responses import MemberPage, MemberView
from node.http.views import held_by_member, member_view, members_view
from node.state.entries import Drain, Seed

endpoints = Endpoints("members")

_WRITES = ("no-quorum", "outcome-unknown")


@endpoints.add("GET", "/v1/members", {200: Says("Members, by slot", MemberPage)}, ("invalid",))
async def members(call: Call, query: PageQuery) -> web.Response:
    """The members."""
    after = -1 if query.after is None else int(key_of(query.after, int)[0])
    found = [view for view in members_view(call.state, await call.ownership()) if view["slot"] > after]
    items, more = cut(found, query.limit)
    return call.answer({"items": items, "next": cursor_of(items[-1]["slot"]) if more else None})


@endpoints.add(
    "POST",
    "/v1/members",
    {201: Says("It may join now", MemberView)},
    ("invalid", "conflict", *_WRITES),
    body=MemberBody,
)
async def add_member(call: Call) -> web.Response:
    """Let a new member in. It is down until it joins; one change of membership at a time."""
    return await let_in(call)


async def let_in(call: Call) -> web.Response:
    """Let the member in that the body names. Raises `Problem`."""
    given = await call.model(MemberBody)
    seed = Seed(given.id, given.host, given.raft_port, given.http_port)
    await call.committed("AddMember", call.node.add_member(seed, call.service.limits.write_s))
    return await _told(call, given.id, 201)


@endpoints.add("DELETE", "/v1/members/{id}", {204: Says("It is gone")}, ("not-found", "conflict", *_WRITES))
async def remove_member(call: Call) -> web.Response:
    """Let a member go for good: its slot is vacant, and its runs are taken over."""
    member = _known(call)
    await call.committed("RemoveMember", call.node.remove_member(member, call.service.limits.write_s))
    return web.Response(status=204)


@endpoints.add(
    "POST",
    "/v1/members/{id}/drain",
    {200: Says("It gets nothing new", MemberView)},
    ("not-found", "conflict", *_WRITES),
)
async def drain(call: Call) -> web.Response:
    """Let a member keep what runs, and give it nothing new."""
    return await _drain(call, on=True)


@endpoints.add(
    "POST",
    "/v1/members/{id}/undrain",
    {200: Says("It takes part again", MemberView)},
    ("not-found", "conflict", *_WRITES),
)
async def undrain(call: Call) -> web.Response:
    """Let a drained member take part again."""
    return await _drain(call, on=False)


async def _drain(call: Call, *, on: bool) -> web.Response:
    member = _known(call)
    await call.propose(Drain(call.service.now_us(), member, on))
    return await _told(call, member, 200)


def _known(call: Call) -> str:
    member = call.path("id")
    if member not in call.state.members:
        raise Problem("not-found", f"there is no member {member!r}; GET /v1/members lists them")
    return member


async def _told(call: Call, name: str, status: int) -> web.Response:
    ownership = await call.ownership()
    state = call.state
    if name not in state.members:
        raise Problem("not-found", f"the member {name!r} has been removed meanwhile")
    view = member_view(state.members[name], ownership.load(), held_by_member(state.runs.values()))
    return call.answer(view, status)
