"""What members ask one another. It must be signed (`node.peer.signing`); a client's token will not do."""

import asyncio
from dataclasses import asdict

from aiohttp import web
from typing_extensions import TypedDict

from node.http.endpoint import Endpoints, Says
from node.http.problems import Problem
from node.http.request_context import Call
from node.http.requests import MemberBody, PeerCheckBody, PeerHistoryQuery, PeerLogQuery, PeerProgressBody
from node.http.responses import FieldProblem, MemberView, ProgressView
from node.http.routes.logs import local
from node.http.routes.members import let_in
from node.http.views import progress_view
from node.peer.portions import Gap, pack_portion
from node.peer.protocol import roster_of
from tasks.kinds import KindError

endpoints = Endpoints("between members")


class PeerProgressView(TypedDict):
    """What is known here of runs and tasks."""

    progress: dict[str, ProgressView]
    frozen: dict[str, int]
    """Since when, in microseconds since the epoch."""
    waiting: dict[str, str]


class PeerSeedView(TypedDict):
    """Where a member is."""

    id: str
    host: str
    raft_port: int
    http_port: int


class PeerMembersView(TypedDict):
    """The members, by slot, as they are known here at `index`."""

    cluster_id: str
    index: int
    members: list[PeerSeedView]


class PeerCheckView(TypedDict):
    """What is wrong with each of the params, in order."""

    errors: list[list[FieldProblem]]


@endpoints.add(
    "POST",
    "/peer/progress",
    {200: Says("What is known here", PeerProgressView)},
    ("invalid",),
    access="member",
    body=PeerProgressBody,
)
async def progress(call: Call) -> web.Response:
    """How far the attempts that run here are, and why what this member owns waits."""
    given = await call.model(PeerProgressBody)
    known = {run: said for run in given.runs if (said := call.node.progress(run)) is not None}
    views = {run: progress_view(said) for run, said in known.items()}
    waiting = {task: call.node.waiting(task) for task in given.tasks}
    return call.answer(
        {
            "progress": {run: view for run, view in views.items() if view is not None},
            "frozen": {run: said.frozen_since_us for run, said in known.items() if said.frozen_since_us is not None},
            "waiting": {task: why for task, why in waiting.items() if why is not None},
        }
    )


@endpoints.add("GET", "/peer/members", {200: Says("Who and where they are", PeerMembersView)}, access="member")
async def members(call: Call) -> web.Response:
    """Who the members are, and where: for one that wants to join, or does not know whether it still belongs."""
    return call.answer(asdict(roster_of(call.state)))


@endpoints.add(
    "POST",
    "/peer/members",
    {201: Says("It may join now", MemberView)},
    ("invalid", "conflict", "no-quorum", "outcome-unknown"),
    access="member",
    body=MemberBody,
)
async def join(call: Call) -> web.Response:
    """Let a new member in, as `POST /v1/members` does: for a node that knows the cluster's secret, and no token."""
    return await let_in(call)


@endpoints.add(
    "GET",
    "/peer/log",
    {200: Says("The log, as far as it goes", str, "text/plain")},
    ("not-found", "invalid", "overloaded"),
    access="member",
)
async def log(call: Call, query: PeerLogQuery) -> web.StreamResponse:
    """The log of an attempt that ran here."""
    with call.service.streams.one():
        return await local(call, query.run_id, query.attempt, follow=query.follow)


@endpoints.add(
    "GET", "/peer/kinds/{kind}", {200: Says("A JSON schema", dict)}, ("not-found", "internal"), access="member"
)
async def schema(call: Call) -> web.Response:
    """The JSON schema of a kind's params."""
    try:
        return call.answer(call.node.kinds.schema(call.path("kind")))
    except KeyError:
        raise Problem("not-found", "this kind is not installed here") from None
    except KindError as error:
        raise Problem("internal", str(error)) from None


@endpoints.add(
    "POST",
    "/peer/check",
    {200: Says("What is wrong with them", PeerCheckView)},
    ("not-found", "internal", "invalid", "too-large"),
    access="member",
    body=PeerCheckBody,
)
async def check(call: Call) -> web.Response:
    """What a kind's own model says of params."""
    given = await call.model(PeerCheckBody)
    try:
        pairs = zip(given.params, given.bound, strict=True)
        found = [call.node.kinds.check(given.kind, params, bound=bound) for params, bound in pairs]
    except KeyError:
        raise Problem("not-found", "this kind is not installed here") from None
    except KindError as error:
        raise Problem("internal", str(error)) from None
    return call.answer({"errors": [[asdict(error) for error in errors] for errors in found]})


@endpoints.add(
    "GET",
    "/peer/history",
    {200: Says("A portion, as msgpack", bytes, "application/vnd.msgpack")},
    ("conflict", "invalid"),
    access="member",
)
async def history(call: Call, query: PeerHistoryQuery) -> web.Response:
    """Finished runs, for a member that has skipped the entries that ended them."""
    portion = await asyncio.to_thread(call.node.history.export, Gap(query.after, query.through))
    if portion is None:
        raise Problem("conflict", "this member has none of them either")
    packed = await asyncio.to_thread(pack_portion, portion)
    return web.Response(body=packed, content_type="application/vnd.msgpack")
