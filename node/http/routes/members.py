"""The members: list, add, remove, drain and undrain them."""

from aiohttp import web

from node.http.endpoint import Endpoints, ResponseSpec
from node.http.pages import cursor_of, cut, key_of
from node.http.problems import Problem
from node.http.request_context import RequestContext
from node.http.requests import MemberBody, PageQuery
from node.http.responses.cluster import MemberPage, MemberView
from node.http.views import held_by_member, member_view, members_view
from node.state.entries import Seed
from node.state.members import Drain

endpoints = Endpoints("members")

_WRITES = ("no-quorum", "outcome-unknown")


@endpoints.add("GET", "/v1/members", {200: ResponseSpec("Members, by slot", MemberPage)}, ("invalid",))
async def members(context: RequestContext, query: PageQuery) -> web.Response:
    """The members."""
    after = -1 if query.after is None else int(key_of(query.after, int)[0])
    ownership = await context.ownership()
    state = context.state
    views = members_view(state, ownership, context.node.bootstraps.known(state))
    found = [view for view in views if view["slot"] > after]
    items, more = cut(found, query.limit)
    return context.answer({"items": items, "next": cursor_of(items[-1]["slot"]) if more else None})


@endpoints.add(
    "POST",
    "/v1/members",
    {201: ResponseSpec("It is added, and may join now", MemberView)},
    ("invalid", "conflict", *_WRITES),
    body=MemberBody,
)
async def add_member(context: RequestContext) -> web.Response:
    """Add a member. It is down until it joins. Only one membership change may be pending at a time."""
    return await add_from_body(context)


async def add_from_body(context: RequestContext) -> web.Response:
    """Add the member that the body describes. Raises `Problem`."""
    given = await context.model(MemberBody)
    seed = Seed(given.id, given.host, given.raft_port, given.http_port)
    await context.committed("AddMember", context.node.add_member(seed, context.server.limits.write_s))
    return await _member_response(context, given.id, 201)


@endpoints.add("DELETE", "/v1/members/{id}", {204: ResponseSpec("It is removed")}, ("not-found", "conflict", *_WRITES))
async def remove_member(context: RequestContext) -> web.Response:
    """Remove a member for good: its slot becomes vacant, and other members take over its runs."""
    member = _known_member(context)
    await context.committed("RemoveMember", context.node.remove_member(member, context.server.limits.write_s))
    return web.Response(status=204)


@endpoints.add(
    "POST",
    "/v1/members/{id}/drain",
    {200: ResponseSpec("It gets no new runs", MemberView)},
    ("not-found", "conflict", *_WRITES),
)
async def drain(context: RequestContext) -> web.Response:
    """Drain a member: its runs continue, and it gets no new ones."""
    return await _drain(context, on=True)


@endpoints.add(
    "POST",
    "/v1/members/{id}/undrain",
    {200: ResponseSpec("It gets new runs again", MemberView)},
    ("not-found", "conflict", *_WRITES),
)
async def undrain(context: RequestContext) -> web.Response:
    """Undrain a member: it gets new runs again."""
    return await _drain(context, on=False)


async def _drain(context: RequestContext, *, on: bool) -> web.Response:
    member = _known_member(context)
    await context.propose(Drain(context.server.now_us(), member, on))
    return await _member_response(context, member, 200)


def _known_member(context: RequestContext) -> str:
    member = context.path("id")
    if member not in context.state.members:
        raise Problem("not-found", f"there is no member {member!r}; GET /v1/members lists them")
    return member


async def _member_response(context: RequestContext, name: str, status: int) -> web.Response:
    ownership = await context.ownership()
    state = context.state
    if name not in state.members:
        raise Problem("not-found", f"the member {name!r} was removed meanwhile")
    bootstraps = context.node.bootstraps.known(state)
    view = member_view(state.members[name], ownership.load(), held_by_member(state.runs.values()), bootstraps)
    return context.answer(view, status)
