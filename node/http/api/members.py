"""The members: list, add, remove, drain and undrain them."""

from collections.abc import Iterable, Mapping
from typing import Annotated

from aiohttp import web
from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from node.duty.ownership import Ownership
from node.http.api.bootstraps import BootstrapView, catching_up
from node.http.api.pages import cursor_of, cut, key_of
from node.http.api.shapes import Cursor, PageQuery, RequestModel, Time
from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.problems import Problem
from node.http.door.request_context import RequestContext
from node.peer.bootstrap import Bootstrap
from node.peer.protocol import url_of
from node.state.entries import Seed
from node.state.members import Drain
from node.state.times import rfc3339_or_none
from node.state.value import DownReason, Member, MemberStatus, Run, State
from tasks.definition.run import HELD
from tasks.definition.spec import Name


class MemberView(TypedDict):
    """A member.

    `reason` says why it is down; `aside` is its own reason for accepting no new runs. `load` is the sum of the weights
    of the tasks that it owns, `running` the number of attempts that it holds, and `max_runs` how many it may hold
    (null: it has not told yet). `bootstrap` is how far it has fetched the finished runs that it lacks; null: it lacks
    none, as far as the member that answers knows.
    """

    id: str
    slot: int
    status: MemberStatus
    reason: DownReason | None
    aside: str | None
    incarnation: int
    labels: dict[str, str]
    capacity: int
    kinds: list[str]
    url: str
    since: Time | None
    load: int
    running: int
    max_runs: int | None
    bootstrap: BootstrapView | None


class MemberPage(TypedDict):
    """Members, by slot."""

    items: list[MemberView]
    next: Cursor


def _resolvable(host: str) -> str:
    # Connecting encodes the name in the same way, and would raise a UnicodeError, not the OSError of an unknown name.
    try:
        host.encode("idna")
    except UnicodeError:
        raise ValueError("is not a valid host name: each part between dots has 1 to 63 characters") from None
    return host


class MemberBody(RequestModel):
    """A new member."""

    id: Name
    host: Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,253}$"), AfterValidator(_resolvable)]
    raft_port: Annotated[int, Field(ge=1, le=65_535)]
    http_port: Annotated[int, Field(ge=1, le=65_535)]


endpoints = Endpoints("members")

_WRITES = ("no-quorum", "outcome-unknown")


@endpoints.add("GET", "/v1/members", {200: ResponseSpec("Members, by slot", MemberPage)}, ("invalid",))
async def members(context: RequestContext, query: PageQuery) -> web.Response:
    """List the members."""
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


def held_by_member(runs: Iterable[Run]) -> dict[str, int]:
    """Count the attempts that each member holds."""
    held: dict[str, int] = {}
    for run in runs:
        if run.state in HELD and run.node is not None:
            held[run.node] = held.get(run.node, 0) + 1
    return held


def member_view(
    member: Member, load: Mapping[str, int], held: Mapping[str, int], bootstraps: Mapping[str, Bootstrap]
) -> MemberView:
    """Return a member's API view. `bootstraps`: by member, how far it has fetched finished runs from others."""
    return {
        "id": member.id,
        "slot": member.slot,
        "status": member.status,
        "reason": member.reason,
        "aside": member.aside or None,
        "incarnation": member.incarnation,
        "labels": dict(member.labels),
        "capacity": member.capacity,
        "kinds": sorted(member.kinds),
        "url": url_of(member.host, member.http_port),
        "since": rfc3339_or_none(member.since_us or None),
        "load": load.get(member.id, 0),
        "running": held.get(member.id, 0),
        "max_runs": member.places.runs or None,
        "bootstrap": catching_up(member.id, bootstraps),
    }


def members_view(state: State, ownership: Ownership, bootstraps: Mapping[str, Bootstrap]) -> list[MemberView]:
    """Return all members, by slot, as the API shows them."""
    load, held = ownership.load(), held_by_member(state.runs.values())
    return [member_view(state.members[member], load, held, bootstraps) for member in state.slots if member is not None]
