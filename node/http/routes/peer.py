"""Requests between members. They must be signed (`node.peer.signing`); a client's token is not accepted."""

import asyncio
from dataclasses import asdict, replace

from aiohttp import web

from node.http.endpoint import Endpoints, ResponseSpec
from node.http.member_lag import vitals_here
from node.http.problems import Problem
from node.http.request_context import RequestContext
from node.http.requests import (
    MemberBody,
    PeerBootstrapBody,
    PeerCheckBody,
    PeerHistoryQuery,
    PeerLogQuery,
    PeerProgressBody,
)
from node.http.responses.cluster import MemberView
from node.http.responses.peer import PeerCheckView, PeerMembersView, PeerOfferView, PeerProgressView
from node.http.routes.logs import local
from node.http.routes.members import add_from_body
from node.http.views import progress_view
from node.peer.portions import Gap, pack_portion
from node.peer.protocol import MEMBER, roster_of
from tasks.installed_kinds import KindError

endpoints = Endpoints("between members")


@endpoints.add(
    "POST",
    "/peer/progress",
    {200: ResponseSpec("What this member knows", PeerProgressView)},
    ("invalid",),
    access="member",
    body=PeerProgressBody,
)
async def progress(context: RequestContext) -> web.Response:
    """The progress of attempts that run here, and why tasks that this member owns wait."""
    given = await context.model(PeerProgressBody)
    known = {run: progress for run in given.runs if (progress := context.node.progress(run)) is not None}
    views = {run: progress_view(progress) for run, progress in known.items()}
    asked = {task: await context.node.hold(task) for task in given.tasks}
    holds = {task: hold for task, hold in asked.items() if hold is not None}
    return context.answer(
        {
            "progress": {run: view for run, view in views.items() if view is not None},
            "frozen": {run: one.frozen_since_us for run, one in known.items() if one.frozen_since_us is not None},
            # Members of earlier versions read the sentence only.
            "waiting": {task: hold.detail for task, hold in holds.items()},
            "holds": {task: asdict(hold) for task, hold in holds.items()},
        }
    )


@endpoints.add("GET", "/peer/members", {200: ResponseSpec("Their ids and addresses", PeerMembersView)}, access="member")
async def member_addresses(context: RequestContext) -> web.Response:
    """The members and their addresses: for a node that joins, or checks whether it was removed; and how this one is."""
    return context.answer(asdict(replace(roster_of(context.state), vitals=vitals_here(context))))


@endpoints.add(
    "POST",
    "/peer/members",
    {201: ResponseSpec("It is added, and may join now", MemberView)},
    ("invalid", "conflict", "no-quorum", "outcome-unknown"),
    access="member",
    body=MemberBody,
)
async def add_joining_member(context: RequestContext) -> web.Response:
    """Add a member, as `POST /v1/members` does: for a node that knows the cluster's secret but no token."""
    return await add_from_body(context)


@endpoints.add(
    "GET",
    "/peer/log",
    {200: ResponseSpec("The log as written so far", str, "text/plain")},
    ("not-found", "invalid", "overloaded"),
    access="member",
)
async def local_log(context: RequestContext, query: PeerLogQuery) -> web.StreamResponse:
    """The log of an attempt that ran here."""
    with context.server.streams.one(context.request.remote):
        return await local(context, query.run_id, query.attempt, follow=query.follow, tail_bytes=query.tail_bytes)


@endpoints.add(
    "GET", "/peer/kinds/{kind}", {200: ResponseSpec("A JSON schema", dict)}, ("not-found", "internal"), access="member"
)
async def schema(context: RequestContext) -> web.Response:
    """The JSON schema of a kind's params."""
    try:
        return context.answer(context.node.kinds.schema(context.path("kind")))
    except KeyError:
        raise Problem("not-found", "this kind is not installed here") from None
    except KindError as error:
        raise Problem("internal", str(error)) from None


@endpoints.add("GET", "/peer/kinds/{kind}/offer", {200: ResponseSpec("Why not", PeerOfferView)}, access="member")
async def offer(context: RequestContext) -> web.Response:
    """Why this member does not offer a kind."""
    return context.answer({"why_not": context.node.unoffered(context.path("kind"))})


@endpoints.add(
    "POST",
    "/peer/check",
    {200: ResponseSpec("Their errors", PeerCheckView)},
    ("not-found", "internal", "invalid", "too-large"),
    access="member",
    body=PeerCheckBody,
)
async def check_here(context: RequestContext) -> web.Response:
    """Check params with a kind that is installed here."""
    given = await context.model(PeerCheckBody)
    try:
        pairs = zip(given.params, given.bound, strict=True)
        found = [context.node.kinds.check(given.kind, params, bound=bound) for params, bound in pairs]
    except KeyError:
        raise Problem("not-found", "this kind is not installed here") from None
    except KindError as error:
        raise Problem("internal", str(error)) from None
    return context.answer({"errors": [[asdict(error) for error in errors] for errors in found]})


@endpoints.add(
    "GET",
    "/peer/history",
    {200: ResponseSpec("A portion, as msgpack", bytes, "application/vnd.msgpack")},
    ("conflict", "invalid"),
    access="member",
)
async def history(context: RequestContext, query: PeerHistoryQuery) -> web.Response:
    """Finished runs, for a member that has a gap in its own."""
    portion = await asyncio.to_thread(context.node.history.export, Gap(query.after, query.through))
    if portion is None:
        raise Problem("conflict", "this member does not have them either")
    packed = await asyncio.to_thread(pack_portion, portion)
    context.server.metrics.sent_runs(context.header(MEMBER) or "", len(portion.runs))
    return web.Response(body=packed, content_type="application/vnd.msgpack")


@endpoints.add(
    "POST",
    "/peer/bootstrap",
    {204: ResponseSpec("It is noted")},
    ("not-found", "invalid"),
    access="member",
    body=PeerBootstrapBody,
)
async def bootstrap(context: RequestContext) -> web.Response:
    """How far a member is with fetching the finished runs that it lacks."""
    given = await context.model(PeerBootstrapBody)
    if given.member not in context.state.members:
        raise Problem("not-found", f"there is no member {given.member!r}")
    context.node.bootstraps.hear(given.value())
    return web.Response(status=204)
