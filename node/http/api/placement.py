"""Who owns a task and why, and what would move if members were down."""

import asyncio
from collections.abc import Sequence
from typing import Final

from aiohttp import web
from pydantic import Field
from pydantic_core import to_json
from typing_extensions import TypedDict

from hashing.preference import Verdict
from hashing.view import Slot
from node.duty.conditions import UNEXPECTED
from node.duty.overdue import unbegun_since_us
from node.duty.ownership import Ownership
from node.duty.standing import TaskStanding, standing
from node.history.feeders import feeders, why_feeder
from node.http.api.explaining import explain
from node.http.api.shapes import RequestModel, Time
from node.http.api.task_shapes import HeldTimeView, LastView
from node.http.api.tasks import known_task, last_view, next_fire_us, next_held_view
from node.http.api.what_ifs import members_named
from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.problems import Problem
from node.http.door.request_context import RequestContext
from node.peer.bootstrap import Bootstrap, member_of, summary, task_of
from node.state.times import rfc3339_or_none
from node.state.value import State
from tasks.definition.run import HELD


class RunningOn(TypedDict):
    """A member that holds a run of the task; for `bootstrap/MEMBER`, which has no runs, `run_id` is the task itself."""

    node: str
    run_id: str


class Because(TypedDict):
    """One step of the search for the owner: a member and why it was passed over or chosen; node null: a vacant slot."""

    node: str | None
    verdict: Verdict


class StandingView(TypedDict):
    """One statement about a task's status.

    `code` is one of no_owner, paused, disabled, running, backing_off, behind (waits for another run), due (and not
    begun), not_due, by_hand, after (other tasks), over (the schedule has no further times), unreadable (this member
    cannot evaluate the schedule), member_away (the only one that may claim the run is not up) and more (further active
    runs, not listed). Of a task with `each`, the statement `each` names its members.
    """

    code: str
    detail: str
    until: Time | None
    run_id: str | None


class MemberPartView(TypedDict):
    """How a task with `each` fares on one member: how its last run there ended, and when one last succeeded.

    `failing`: the latest of its runs there that either succeeded or failed for good is a failed one. `degraded` is what
    the last succeeded one left undone; null: nothing.
    """

    member: str
    last: LastView | None
    succeeded_at: Time | None
    failing: bool
    degraded: str | None


class OwnerView(TypedDict):
    """Who owns a task, and why. `waiting` says why a due run has not begun, if that is unexpected. `next_held`: the
    blackout in which the next occurrence is due, as of a task.

    Of a task with `each`, the owner only makes the runs of all members; see `members`.
    """

    task: str
    owner: str | None
    running_on: list[RunningOn]
    preference: list[str]
    standbys: list[str]
    epoch: int
    index: int
    because: list[Because]
    next_fire_at: Time | None
    next_held: HeldTimeView | None
    waiting: str | None
    standing: list[StandingView]
    members: list[MemberPartView]


MoveView = TypedDict("MoveView", {"task": str, "from": str | None, "to": str | None})
"""A task that would change its owner."""


class LoadView(TypedDict):
    """A member's load now, and with the supposed placement."""

    now: int
    then: int


class PlanView(TypedDict):
    """What would move if some members were down."""

    moves: list[MoveView]
    load: dict[str, LoadView]


class OwnerQuery(RequestModel):
    """A question about a supposed placement: as if some members were down."""

    without: str | None = Field(default=None, description="As if this member were down (or these, comma-separated)")


class PlanQuery(RequestModel):
    """A question about a supposed placement: as if some members were down."""

    without: str = Field(description="As if this member were down (or these, comma-separated)")


endpoints = Endpoints("placement")

_MOVES_BATCH: Final = 500
"""How many moves are serialized in one piece: less than a millisecond's work."""


@endpoints.add(
    "GET", "/v1/tasks/{name}/owner", {200: ResponseSpec("Its owner, and why", OwnerView)}, ("not-found", "invalid")
)
async def owner(context: RequestContext, query: OwnerQuery) -> web.Response:
    """Say who owns a task and why, its standbys, and where it runs.

    With `without`, the same as if those members were down; `running_on` stays as it is. `bootstrap%2FID` is the task of
    sending the member ID the finished runs that it lacks.
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
    """Return a response that says which member sends `member` the finished runs that it lacks. Raises `Problem`."""
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
    """Predict which tasks would move, and every member's load, if some members were down."""
    now = await context.ownership()
    then = await _without(context, now, query.without)
    return context.answer_packed(await asyncio.to_thread(plan_packed, now, then))


def plan_packed(now: Ownership, then: Ownership, batch: int = _MOVES_BATCH) -> bytes:
    """Return the `PlanView` as JSON, in pieces of `batch` moves: 33,000 in one piece would block threads for 50 ms."""
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


def running_on(state: State, task: str) -> list[RunningOn]:
    """Return the members that hold runs of a task."""
    runs = (state.runs[run_id] for run_id in state.runs_of.get(task, ()))
    return [{"node": run.node, "run_id": run.run_id} for run in runs if run.state in HELD and run.node is not None]


def owner_view(state: State, ownership: Ownership, task: str, now_us: int) -> OwnerView:
    """Return who owns a task, and why. Raises `KeyError` if the placement does not have the task yet."""
    next_us = next_fire_us(state.calendars, state.tasks[task], now_us)
    standings = standing(state, task, ownership.owner(task), ownership.explain(task), now_us)
    return {
        "task": task,
        "owner": ownership.owner(task),
        "running_on": running_on(state, task),
        "preference": list(ownership.preference(task)),
        "standbys": list(ownership.standbys(task)),
        "epoch": ownership.state.epoch,
        "index": state.index,
        "because": [{"node": node, "verdict": verdict} for node, verdict in ownership.explain(task)],
        "next_fire_at": rfc3339_or_none(next_us),
        "next_held": next_held_view(state, state.tasks[task], next_us, now_us),
        "waiting": None,
        "standing": [standing_view(told) for told in standings],
        "members": parts_view(state, task),
    }


def parts_view(state: State, task: str) -> list[MemberPartView]:
    """Return how a task with `each` fares on each member, by member; of others, nothing."""
    each = state.each.get(task)
    return [
        {
            "member": part.member,
            "last": last_view(part.last),
            "succeeded_at": rfc3339_or_none(part.succeeded_at_us),
            "failing": part.failing,
            "degraded": part.degraded or None,
        }
        for part in (each.parts if each is not None else ())
    ]


def standing_view(told: TaskStanding) -> StandingView:
    """Return a statement about a task's status."""
    until = rfc3339_or_none(told.until_us)
    return {"code": told.code, "detail": told.detail, "until": until, "run_id": told.run_id}


def bootstrap_owner_view(state: State, slots: Sequence[Slot], member: str, latest: Bootstrap | None) -> OwnerView:
    """Return who feeds a member, in the shape of a task's owner. In `slots`, members may be supposed to be down."""
    order, task = feeders(slots, member), task_of(member)
    feeder = None if latest is None else latest.feeder
    return {
        "task": task,
        "owner": order[0] if order else None,
        "running_on": [] if feeder is None else [{"node": feeder, "run_id": task}],
        "preference": order,
        "standbys": [],
        "epoch": state.epoch,
        "index": state.index,
        "because": [{"node": node, "verdict": verdict} for node, verdict in why_feeder(slots, member)],
        "next_fire_at": None,
        "next_held": None,
        "waiting": None if latest is None else latest.waiting,
        "standing": [_standing(member, latest)],
        "members": [],
    }


def _standing(member: str, latest: Bootstrap | None) -> StandingView:
    if latest is None:
        code, detail = "not_due", f"{member} lacks no finished runs, as far as is known here"
    elif latest.finished_us is not None:
        code, detail = "not_due", f"{member} lacks no finished runs; it has fetched {summary(latest)}"
    elif latest.feeder is None:
        code, detail = "due", f"{member} lacks finished runs, and waits: {latest.waiting}"
    else:
        code = "running"
        detail = (
            f"{latest.feeder} sends {member} the finished runs that it lacks: {latest.indexes:,} of "
            f"{latest.indexes_total:,} indexes, {summary(latest)}"
        )
    return {"code": code, "detail": detail, "until": None, "run_id": None}
