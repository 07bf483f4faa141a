"""What would happen if members were down, or drained ones were back."""

import asyncio
from itertools import islice
from typing import Annotated

from aiohttp import web
from pydantic import Field
from pydantic_core import to_json
from typing_extensions import TypedDict

from node.duty.forecast import STEPS, Forecast, MemberForecast
from node.duty.room_ahead import RoomAhead
from node.duty.what_if import Supposition, WhatIf
from node.http.api.placement import LoadView, MoveView
from node.http.api.shapes import RequestModel, Time
from node.http.api.task_shapes import HeldTimeView
from node.http.api.tasks import held_time_view
from node.http.api.what_ifs import members_named, what_if_of
from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.request_context import RequestContext
from node.state.times import rfc3339


class MajorityView(TypedDict):
    """How many of `members` can vote `now`, and how many could `then`. `left`: `then` is a majority, of `needed`."""

    members: int
    needed: int
    now: int
    then: int
    left: bool


class UnownedView(TypedDict):
    """A task that no member could run, and why: a code and a sentence, as in `GET /v1/tasks/{name}/why`.

    `now`: no member can run it now either.
    """

    task: str
    code: str
    detail: str
    now: bool


InterruptedView = TypedDict("InterruptedView", {"run_id": str, "task": str, "from": str, "to": str | None})
"""A run that its member would lose, and the member that would continue it; `to` null: no member could."""


class MovesView(TypedDict):
    """The tasks that would change their owner: how many, and the first of them. `GET /v1/plan` has all."""

    count: int
    items: list[MoveView]


class UnownedPageView(TypedDict):
    """The tasks that no member could run: how many, and the first of them. Tasks that can run now come first."""

    count: int
    items: list[UnownedView]


class InterruptedPageView(TypedDict):
    """The runs that would be lost and go on elsewhere: how many, and the first of them."""

    count: int
    items: list[InterruptedView]


class MemberAheadView(TypedDict):
    """How many occurrences a member would begin: in all, and per step. `moved`: those of them that others begin now."""

    count: int
    starts: list[int]
    moved: list[int]


PlannedView = TypedDict(
    "PlannedView",
    {
        "at": Time,
        "task": str,
        "node": str | None,
        "from": str | None,
        "took_s": float | None,
        "held": HeldTimeView | None,
    },
)
"""A future occurrence: the member that would begin it (null: none may), the member that begins it without the
supposition, and how long the task's last run took (null: unknown). `held`: the blackout that it is in."""


class AheadView(TypedDict):
    """The occurrences between two times, by schedules alone: policies such as `overlap` are applied later, when due.

    `members` counts the occurrences that each member would begin, in steps of `step_s`; `unowned` counts those that no
    member may begin. `items` lists, by time, occurrences of the members that have few; `unlisted` is the number of the
    others. `cut` is the number of tasks that are due more often than is counted. `held` is how many of all occurrences
    are due in a blackout, and begin at its end or are missed; they are counted at the times at which they are due.
    """

    begins: Time
    ends: Time
    step_s: float
    members: dict[str, MemberAheadView]
    unowned: MemberAheadView | None
    items: list[PlannedView]
    unlisted: int
    cut: int
    held: int


class RoomAheadView(TypedDict):
    """How the occurrences that are `due` until `ends`, within an hour, fare: each is counted once.

    `at_once`: they have a place on a member and their pools when due. `no_place` wait for a place, `no_pool` for a
    pool, by its name; `longest_wait_s` is the longest such wait. `behind`: the run of their task before them still
    works, and `overlap` decides. `held`: a blackout holds them. `unowned`: no member could begin them. `uncounted` are
    not looked at, because there are more than 5,000.

    Runs are taken to last as long as the last one of their task. What is not due by a schedule of its own is left out
    (tasks after others, backfills, retries, runs by hand), and so are priorities, rates and the bounds of kinds.
    """

    ends: Time
    due: int
    uncounted: int
    at_once: int
    no_place: int
    no_pool: dict[str, int]
    behind: int
    held: int
    unowned: int
    longest_wait_s: float


class WhatIfView(TypedDict):
    """What would happen if the members `without` were down, and the members `back` were up."""

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
    room: RoomAheadView


class WhatIfQuery(RequestModel):
    """The supposition, and how far ahead to look."""

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
    """Predict the cluster without some members: who runs due tasks, which tasks move or cannot run, and the majority.

    Nothing is changed. Without `without` and `back`, it shows what is due as things are. An answer that was expensive
    to compute is used again for up to a minute, unless members or settings change: `index` says which state it is of.
    """
    state = context.state
    without = frozenset[str]() if query.without is None else members_named(state, "without", query.without)
    back = frozenset[str]() if query.back is None else members_named(state, "back", query.back)
    found = await what_if_of(context, Supposition(without, back - without), query.ahead_s)
    return context.answer_packed(await asyncio.to_thread(_packed, found, query.limit))


def _packed(found: WhatIf, limit: int) -> bytes:
    return to_json(what_if_view(found, limit))


def what_if_view(found: WhatIf, limit: int) -> WhatIfView:
    """Return a prediction, as the API shows it. Each list has `limit` items at most."""
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
        "room": _room_view(found.room),
    }


def _room_view(room: RoomAhead) -> RoomAheadView:
    return {
        "ends": rfc3339(room.span.until_us),
        "due": room.due,
        "uncounted": room.uncounted,
        "at_once": room.at_once,
        "no_place": room.no_place,
        "no_pool": dict(sorted(room.no_pool.items())),
        "behind": room.behind,
        "held": room.held,
        "unowned": room.unowned,
        "longest_wait_s": room.longest_us / 1e6,
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
            "held": held_time_view(run.held),
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
        "held": ahead.held,
    }


def _member_view(one: MemberForecast) -> MemberAheadView:
    return {"count": one.count, "starts": list(one.starts), "moved": list(one.moved_starts)}
