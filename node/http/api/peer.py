"""Requests between members. They must be signed (`node.peer.signing`); a client's token is not accepted."""

import asyncio
from dataclasses import asdict, replace
from typing import Annotated

from aiohttp import web
from pydantic import Field, JsonValue, model_validator
from typing_extensions import TypedDict

from node.http.api.logs import TailBytes, local
from node.http.api.members import MemberBody, MemberView, add_from_body
from node.http.api.runs import ProgressView, progress_view
from node.http.api.shapes import Count, Moment, RequestModel
from node.http.api.vitals import vitals_here
from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.problems import FieldProblem, Problem
from node.http.door.request_context import RequestContext
from node.peer.bootstrap import Bootstrap
from node.peer.portions import Gap, pack_portion
from node.peer.protocol import MEMBER, roster_of
from node.peer.vitals import PeerVitalsView
from tasks.definition.spec import Name
from tasks.installed_kinds import KindError


class PeerHoldView(TypedDict):
    """What holds a task on its owner: a code, a sentence, and the runs that occupy the owner's places for runs."""

    code: str
    detail: str
    runs: list[str]


class PeerProgressView(TypedDict):
    """The known progress of runs, since when they are frozen (microseconds since the epoch), and what holds tasks.

    `waiting` has the sentences of `holds`: members of earlier versions send and read only these.
    """

    progress: dict[str, ProgressView]
    frozen: dict[str, int]
    waiting: dict[str, str]
    holds: dict[str, PeerHoldView]


class PeerSeedView(TypedDict):
    """A member's addresses."""

    id: str
    host: str
    raft_port: int
    http_port: int


class PeerMembersView(TypedDict):
    """The members, by slot, as of the index applied here, and the vitals of the answering member."""

    cluster_id: str
    index: int
    members: list[PeerSeedView]
    vitals: PeerVitalsView | None


class PeerOfferView(TypedDict):
    """Why this member does not offer a kind (a sentence); null if it does."""

    why_not: str | None


class PeerCheckView(TypedDict):
    """The errors of each item of `params`, in order."""

    errors: list[list[FieldProblem]]


class PeerLogQuery(RequestModel):
    """Which of this member's logs to read. `run_id` is a folder's name: the pattern allows no path to elsewhere."""

    run_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._~-]{0,254}$")]
    attempt: Annotated[int, Field(ge=1)]
    follow: bool = False
    tail_bytes: TailBytes = None


class PeerHistoryQuery(RequestModel):
    """Which finished runs to send: those that ended at log indexes i with after < i <= through."""

    after: Count
    through: Count


class PeerBootstrapBody(RequestModel):
    """The progress of a member that fetches finished runs, with the fields of `node.peer.bootstrap.Bootstrap`."""

    member: Name
    started_us: Moment
    indexes_total: Count
    indexes: Count
    index: Count
    feeder: Name | None
    fed: Annotated[list[tuple[Name, Count]], Field(max_length=1000)]
    fetching_s: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    waiting: Annotated[str | None, Field(max_length=10_000)]
    finished_us: Moment | None

    def value(self) -> Bootstrap:
        """Return the `Bootstrap` that the body describes."""
        return Bootstrap(**{**dict(self), "fed": tuple(self.fed)})


class PeerProgressBody(RequestModel):
    """The runs whose progress is requested, and the tasks whose reasons for waiting are requested."""

    runs: Annotated[list[str], Field(max_length=1000)] = []  # noqa: RUF012 - pydantic copies it
    tasks: Annotated[list[str], Field(max_length=1000)] = []  # noqa: RUF012 - pydantic copies it


class PeerCheckBody(RequestModel):
    """Params to be checked by a kind that is installed on this member."""

    kind: str
    params: list[dict[str, JsonValue]]
    bound: list[bool] = Field(description="For each: whether its task is bound to one member")
    others: list[dict[str, JsonValue] | None] | None = Field(
        default=None, description="For each: its params for another occurrence; null: they are the same"
    )

    @model_validator(mode="after")
    def _for_each(self) -> "PeerCheckBody":
        if any(len(each) != len(self.params) for each in (self.bound, self.others) if each is not None):
            raise ValueError("`bound` and `others` must have as many values as `params`")
        return self


endpoints = Endpoints("between members")


@endpoints.add(
    "POST",
    "/peer/progress",
    {200: ResponseSpec("What this member knows", PeerProgressView)},
    ("invalid",),
    access="member",
    body=PeerProgressBody,
)
async def peer_progress(context: RequestContext) -> web.Response:
    """Return the progress of attempts that run here, and why tasks that this member owns wait."""
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
async def peer_members(context: RequestContext) -> web.Response:
    """Return this member's vitals, and all members' addresses for a node that joins or was perhaps removed."""
    return context.answer(asdict(replace(roster_of(context.state), vitals=vitals_here(context))))


@endpoints.add(
    "POST",
    "/peer/members",
    {201: ResponseSpec("It is added, and may join now", MemberView)},
    ("invalid", "conflict", "no-quorum", "outcome-unknown"),
    access="member",
    body=MemberBody,
)
async def peer_join(context: RequestContext) -> web.Response:
    """Add a member, as `POST /v1/members` does: for a node that knows the cluster's secret but no token."""
    return await add_from_body(context)


@endpoints.add(
    "GET",
    "/peer/log",
    {200: ResponseSpec("The log as written so far", str, "text/plain")},
    ("not-found", "invalid", "overloaded"),
    access="member",
)
async def peer_log(context: RequestContext, query: PeerLogQuery) -> web.StreamResponse:
    """Return the log of an attempt that ran here."""
    with context.server.streams.one(context.request.remote):
        return await local(context, query.run_id, query.attempt, follow=query.follow, tail_bytes=query.tail_bytes)


@endpoints.add(
    "GET", "/peer/kinds/{kind}", {200: ResponseSpec("A JSON schema", dict)}, ("not-found", "internal"), access="member"
)
async def peer_schema(context: RequestContext) -> web.Response:
    """Return the JSON schema of a kind's params."""
    try:
        return context.answer(context.node.kinds.schema(context.path("kind")))
    except KeyError:
        raise Problem("not-found", "this kind is not installed here") from None
    except KindError as error:
        raise Problem("internal", str(error)) from None


@endpoints.add("GET", "/peer/kinds/{kind}/offer", {200: ResponseSpec("Why not", PeerOfferView)}, access="member")
async def peer_offer(context: RequestContext) -> web.Response:
    """Say why this member does not offer a kind."""
    return context.answer({"why_not": context.node.unoffered(context.path("kind"))})


@endpoints.add(
    "POST",
    "/peer/check",
    {200: ResponseSpec("Their errors", PeerCheckView)},
    ("not-found", "internal", "invalid", "too-large"),
    access="member",
    body=PeerCheckBody,
)
async def peer_check(context: RequestContext) -> web.Response:
    """Check params with a kind that is installed here."""
    given = await context.model(PeerCheckBody)
    try:
        each = zip(given.params, given.bound, given.others or [None] * len(given.params), strict=True)
        found = [
            context.node.kinds.check(given.kind, params, bound=bound, other=other) for params, bound, other in each
        ]
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
async def peer_history(context: RequestContext, query: PeerHistoryQuery) -> web.Response:
    """Return finished runs, for a member that has a gap in its history."""
    portion = await asyncio.to_thread(context.node.history.export, Gap(query.after, query.through))
    if portion is None:
        raise Problem("conflict", "this member does not have these finished runs either")
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
async def peer_bootstrap(context: RequestContext) -> web.Response:
    """Note how far a member is with fetching the finished runs that it lacks."""
    given = await context.model(PeerBootstrapBody)
    if given.member not in context.state.members:
        raise Problem("not-found", f"there is no member {given.member!r}")
    context.node.bootstraps.hear(given.value())
    return web.Response(status=204)
