"""Runs that clients start: by hand, and as an action of a kind."""

import asyncio
from datetime import datetime
from typing import Annotated, Any, Final

import msgpack
from aiohttp import web
from pydantic import AfterValidator, Field, JsonValue
from typing_extensions import TypedDict

from node.http.api.params_at import params_by_hand, params_of_action
from node.http.api.shapes import RequestModel
from node.http.api.specs import ParamsToCheck, errors_by_kind, storable
from node.http.api.tasks import known_task, task_to_change
from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.problems import Problem, invalid, invalid_field
from node.http.door.request_context import RequestContext
from node.state.occurrences import Start
from node.state.times import EPOCH, micros
from tasks.definition.cron import check_at
from tasks.definition.written_time import WrittenTime

_TURNS_TO_CLAIM: Final = 2
"""The turns of the event loop from a new state to the claim: one for its placement, and one for the decision."""


class StartedView(TypedDict):
    """The new run; it waits for the task's owner to claim it.

    A task with `each` is started on all of its members: `run_ids` are all new runs, of which `run_id` is the first, and
    `busy` are the members on which `overlap` forbids another run now.
    """

    run_id: str
    run_ids: list[str]
    busy: list[str]


def _in_the_calendar(at: datetime) -> datetime:
    check_at(at)
    if at < EPOCH:
        raise ValueError("must not be earlier than 1970")
    return at


class StartBody(RequestModel):
    """Options of a manual run. `params` replaces all of the task's params for this run."""

    params: dict[str, JsonValue] | None = None
    fire_at: Annotated[WrittenTime, AfterValidator(_in_the_calendar)] | None = Field(
        default=None, description="The time that the run stands for; default: now"
    )
    downstream: bool = Field(
        default=False, description="Whether the tasks after it run, too, each once those before it have ended"
    )
    member: str | None = Field(
        default=None, description="Of a task with `each`: the member to run it on; default: all of them"
    )


class ActionBody(RequestModel):
    """The input of an action of a kind. `params` replaces all of the task's params for this run."""

    args: dict[str, JsonValue] = Field(default={}, description="The arguments of the action, by name")
    params: dict[str, JsonValue] | None = None
    member: str | None = Field(default=None, description="Of a task with `each`, which needs it: the member to ask")


endpoints = Endpoints("runs")

_WRITES: Final = ("no-quorum", "outcome-unknown")
MAX_KEY: Final = 200


@endpoints.add(
    "POST",
    "/v1/tasks/{name}/runs",
    {202: ResponseSpec("It waits for the task's owner to claim it", StartedView)},
    ("bad-request", "not-found", "conflict", "too-large", "invalid", "member-away", *_WRITES),
    body=StartBody,
    body_needed=False,
    headers={"Idempotency-Key": "A repeated request with the same key returns the run of the first one"},
)
async def start_run(context: RequestContext) -> web.Response:
    """Start a run by hand. Refused if `overlap` forbids it. A paused task can be run, too."""
    name = await task_to_change(context)
    given = await context.model(StartBody, empty=True)
    key = _key(context)
    fire_at_us = micros(given.fire_at) if given.fire_at is not None else None
    member = on_member(context, name, given.member)
    return _started(
        context,
        await propose_run(context, name, given.params, fire_at_us, key, downstream=given.downstream, member=member),
    )


@endpoints.add(
    "POST",
    "/v1/tasks/{name}/actions/{action}",
    {202: ResponseSpec("It waits for the task's owner to claim it", StartedView)},
    ("bad-request", "not-found", "conflict", "too-large", "invalid", "member-away", *_WRITES),
    body=ActionBody,
    body_needed=False,
    headers={"Idempotency-Key": "A repeated request with the same key returns the run of the first one"},
)
async def start_action(context: RequestContext) -> web.Response:
    """Start an action of a task's kind, such as a preview, as a run that does not do the task's work.

    The run's result is the action's result. The run may overlap others of the task, is not retried, and does not count
    in the task's figures. It fails if the kind has no such action.
    """
    name, action = await task_to_change(context), context.path("action")
    given = await context.model(ActionBody, empty=True)
    key = _key(context)
    now_us = context.server.now_us()
    params = params_of_action(context.state, context.state.tasks[known_task(context)], given.params, now_us)
    await _refuse_bad_params(context, params)
    storable(lambda: msgpack.packb(given.args), ("args",))
    entry = Start(
        at_us=now_us,
        task=name,
        params=params,
        fire_at_us=None,
        key=key,
        action=action,
        args=dict(given.args),
        member=on_member(context, name, given.member, needed=True),
    )
    return _started(context, await _begun(context, entry))


def on_member(context: RequestContext, task: str, member: str | None, *, needed: bool = False) -> str:
    """Return the member that a run by hand is for; "": it is for none, or for all. Raises `Problem` invalid.

    `needed`: a task with `each` needs one.
    """
    on_each = task in context.state.each
    if member == "":
        raise invalid_field("member", "names no member: give one, or leave it out")
    if member and not on_each:
        raise invalid_field("member", f"{task} has no `each`: it runs on its owner, and on no other member")
    if needed and on_each and not member:
        raise invalid_field("member", f"{task} runs on each member: name the one that is asked")
    return member or ""


def _key(context: RequestContext) -> str | None:
    """Return the Idempotency-Key header; None if it is absent. Raises `Problem` bad-request."""
    key = context.header("Idempotency-Key")
    if key is not None and len(key) > MAX_KEY:
        raise Problem("bad-request", f"an Idempotency-Key may have at most {MAX_KEY} characters")
    return key


async def _refuse_bad_params(context: RequestContext, params: dict[str, JsonValue] | None) -> None:
    """Check params given for one run of the task in the path. Raises `Problem` if they are not valid."""
    if params is None:
        return
    # Looked up again: the task may have been deleted while the body arrived.
    spec = context.state.tasks[known_task(context)].spec
    [errors] = await errors_by_kind(context, spec.kind, [ParamsToCheck(params, spec.bound)])
    if errors:
        raise invalid(errors)
    storable(lambda: msgpack.packb(params), ("params",))


async def propose_run(
    context: RequestContext,
    name: str,
    params: dict[str, JsonValue] | None = None,
    fire_at_us: int | None = None,
    key: str | None = None,
    *,
    downstream: bool = False,
    member: str = "",
) -> dict[str, Any]:
    """Start a run of the task in the path by hand. Returns the entry's result (`Start`). Raises `Problem`.

    With a template, the expressions in `params`, or in those of the task, are replaced for the time of the run.
    """
    now_us = context.server.now_us()
    # Looked up again: the task may have been deleted while the body arrived.
    row = context.state.tasks[known_task(context)]
    at_us = now_us if fire_at_us is None else fire_at_us
    params = params_by_hand(context.state, row, params, at_us, downstream=downstream)
    await _refuse_bad_params(context, params)
    entry = Start(now_us, name, params, fire_at_us, key, downstream=downstream, member=member)
    return await _begun(context, entry)


async def _begun(context: RequestContext, entry: Start) -> dict[str, Any]:
    """Propose a start, and return its result. Raises `Problem`.

    If this member owns the task, it goes first: the claim is proposed before the client is answered.
    """
    value = (await context.propose(entry)).value
    for _ in range(_TURNS_TO_CLAIM):
        await asyncio.sleep(0)
    return value


def _started(context: RequestContext, value: dict[str, Any]) -> web.Response:
    run_id = str(value["run_id"])
    view = {"run_id": run_id, "run_ids": value.get("run_ids", [run_id]), "busy": value.get("busy", [])}
    return context.answer(view, 202, {"Location": f"/v1/runs/{run_id}"})
