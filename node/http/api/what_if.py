"""What would be if members were down, or drained ones back."""

import asyncio
from itertools import islice
from typing import Annotated

from aiohttp import web
from pydantic import Field
from pydantic_core import to_json
from typing_extensions import TypedDict

from node.duty.forecast import STEPS, Forecast, MemberForecast
from node.duty.what_if import Supposition, WhatIf
from node.http.api.placement import LoadView, MoveView
from node.http.api.shapes import RequestModel, Time
from node.http.api.what_ifs import members_named, what_if_of
from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.request_context import RequestContext
from node.state.times import rfc3339


class MajorityView(TypedDict):
    """How many of `members` can vote now and then; `left`: those then are `needed` or more, so that work goes on."""

    members: int
    needed: int
    now: int
    then: int
    left: bool


class UnownedView(TypedDict):
    """A task that nobody could run: a code and a sentence, as `GET /v1/tasks/{name}/why` says them.

    `now`: nobody can run it now either.
    """

    task: str
    code: str
    detail: str
    now: bool


InterruptedView = TypedDict("InterruptedView", {"run_id": str, "task": str, "from": str, "to": str | None})
"""A run that its member would lose, and the member that would go on with it; `to` null: nobody could."""


class MovesView(TypedDict):
    """The tasks that would change their owner: how many, and the first of them. `GET /v1/plan` has all."""

    count: int
    items: list[MoveView]


class UnownedPageView(TypedDict):
    """The tasks that nobody could run: how many, and the first of them. What somebody can run now is before others."""

    count: int
    items: list[UnownedView]


class InterruptedPageView(TypedDict):
    """The runs that would be lost and go on elsewhere: how many, and the first of them."""

    count: int
    items: list[InterruptedView]


class MemberAheadView(TypedDict):
    """How many occurrences a member begins: in all, in each step, and of these the ones that another member has now."""

    count: int
    starts: list[int]
    moved: list[int]


PlannedView = TypedDict(
    "PlannedView", {"at": Time, "task": str, "node": str | None, "from": str | None, "took_s": float | None}
)
"""An occurrence ahead: the member that begins it (null: nobody may), the one that would at present, and how long the
task's last run took (null: not known)."""


class AheadView(TypedDict):
    """What is due between two times, by schedules alone: policies such as `overlap` are applied when it is due.

    `members` has each member with what it begins in steps of `step_s`; `unowned` is what nobody may begin. `items`
    names occurrences in their order, those of members that have few; `unlisted` are counted only. `cut` tasks are due
    more often than is counted.
    """

    begins: Time
    ends: Time
    step_s: float
    members: dict[str, MemberAheadView]
    unowned: MemberAheadView | None
    items: list[PlannedView]
    unlisted: int
    cut: int


class WhatIfView(TypedDict):
    """What would be if the members `without` were down, and those of `back` were up."""

    without: list[str]
    back: list[str]
    index: int
    epoch: int
    majority: MajorityView
    moves: MovesView
    unowned: UnownedPageView
    interrupted: InterruptedPageView
    load: dict[str, LoadView]
    ahead: AheadView


class WhatIfQuery(RequestModel):
    """What is supposed, and how far ahead to look."""

    without: str | None = Field(default=None, description="As if this member were down (or these, comma-separated)")
    back: str | None = Field(default=None, description="As if this member, drained or down now, were up (or these)")
    ahead_s: Annotated[int, Field(ge=60, le=7 * 86_400)] = Field(
        default=86_400, description="How far ahead, in seconds"
    )
    limit: Annotated[int, Field(ge=0, le=10_000)] = Field(default=1000, description="How many items a list has at most")


endpoints = Endpoints("placement")


@endpoints.add(
    "GET", "/v1/placement/what-if", {200: ResponseSpec("What would be, and what is due", WhatIfView)}, ("invalid",)
)
async def what_if(context: RequestContext, query: WhatIfQuery) -> web.Response:
    """What would be without some members: who runs what is due, what moves, what nobody could run, and a majority.

    Nothing is changed. Without `without` and `back` it is what is due as things are. An answer that was dear to compute
    is given again for up to a minute, unless members or settings change: `index` says of which state it is.
    """
    state = context.state
    without = frozenset[str]() if query.without is None else members_named(state, "without", query.without)
    back = frozenset[str]() if query.back is None else members_named(state, "back", query.back)
    found = await what_if_of(context, Supposition(without, back - without), query.ahead_s)
    return context.answer_packed(await asyncio.to_thread(_packed, found, query.limit))


def _packed(found: WhatIf, limit: int) -> bytes:
    return to_json(what_if_view(found, limit))


def what_if_view(found: WhatIf, limit: int) -> WhatIfView:
    """The answer; each list has `limit` items at most."""
    majority = found.majority
    return {
        "without": sorted(found.supposition.without),
        "back": sorted(found.supposition.back),
        "index": found.index,
        "epoch": found.epoch,
        "majority": {
            "members": majority.members,
            "needed": majority.needed,
            "now": majority.now,
            "then": majority.then,
            "left": majority.left,
        },
        "moves": {
            "count": len(found.moves),
            "items": [{"task": one.task, "from": one.source, "to": one.target} for one in found.moves[:limit]],
        },
        "unowned": {
            "count": found.unowned_count,
            "items": [
                {"task": one.task, "code": one.code, "detail": one.detail, "now": one.now}
                for one in found.unowned[:limit]
            ],
        },
        "interrupted": {
            "count": len(found.interrupted),
            "items": [
                {"run_id": one.run_id, "task": one.task, "from": one.source, "to": one.target}
                for one in found.interrupted[:limit]
            ],
        },
        "load": {node: {"now": now, "then": found.load_then.get(node, 0)} for node, now in found.load_now.items()},
        "ahead": _ahead_view(found.ahead, limit),
    }


def _ahead_view(ahead: Forecast, limit: int) -> AheadView:
    runs = sorted(run for one in ahead.members.values() for run in one.runs)
    items: list[PlannedView] = [
        {
            "at": rfc3339(run.at_us),
            "task": run.task,
            "node": run.owner,
            "from": run.source,
            "took_s": None if run.took_us is None else run.took_us / 1e6,
        }
        for run in islice(runs, limit)
    ]
    nobody = ahead.members.get(None)
    return {
        "begins": rfc3339(ahead.span.from_us),
        "ends": rfc3339(ahead.span.until_us),
        "step_s": (ahead.span.until_us - ahead.span.from_us) / STEPS / 1e6,
        "members": {member: _member_view(one) for member, one in ahead.members.items() if member is not None},
        "unowned": None if nobody is None else _member_view(nobody),
        "items": items,
        "unlisted": ahead.count - len(items),
        "cut": ahead.cut,
    }


def _member_view(one: MemberForecast) -> MemberAheadView:
    return {"count": one.count, "starts": list(one.starts), "moved": list(one.moved_starts)}
