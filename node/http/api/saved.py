"""Save and restore the cluster's own state, for `rota cluster save` and `load`."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from dataclasses import MISSING, fields
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args, get_type_hints

import msgpack
from aiohttp import web
from pydantic import Field, JsonValue, create_model
from typing_extensions import TypedDict

from node.http.api.calendars import make_holidays
from node.http.api.cluster import SettingsBody
from node.http.api.shapes import Count, Due, Moment, RequestModel
from node.http.api.specs import storable
from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.request_context import RequestContext
from node.http.door.streaming import stream
from node.state.restoring import RestoreTasks
from node.state.saved import Kept, lines
from node.state.value import Outcome


class PutBackView(TypedDict):
    """How many tasks were restored."""

    tasks: int


_TYPES: Final[dict[str, Any]] = {
    "order": Annotated[Count, Field(ge=1)],
    "version": Annotated[Count, Field(ge=1)],
    "since_us": Due,
    "through_us": Due,
    "took_us": Count,
}
"""The types of the saved numbers that are neither a `Moment` (`*_us`) nor any `Count`."""


def _body_of(name: str, saved: type[Any], about: str, **more: Any) -> type[RequestModel]:
    """Return the model of a saved value: it has all fields and their defaults, except for fields of packed bytes."""
    hints = get_type_hints(saved)
    for one in fields(saved):
        if hints[one.name] is not bytes:
            default = ... if one.default is MISSING else one.default
            more[one.name] = (_type_in_body(one.name, hints[one.name]), default)
    return create_model(name, __base__=RequestModel, __doc__=about, **more)


def _type_in_body(name: str, hint: Any) -> Any:
    if NoneType in get_args(hint):
        [inner] = set(get_args(hint)) - {NoneType}
        return _type_in_body(name, inner) | None
    if hint is Outcome:
        return OutcomeBody
    return _TYPES.get(name, Moment if name.endswith("_us") else Count) if hint is int else hint


OutcomeBody: Final = _body_of("OutcomeBody", Outcome, "How a task's last run ended.")

if TYPE_CHECKING:

    class SavedTask(RequestModel):
        """A task as in `GET /v1/cluster/saved`. mypy knows only one field, since the others are derived below."""

        task: dict[str, JsonValue]

else:
    SavedTask = _body_of("SavedTask", Kept, "A task as in `GET /v1/cluster/saved`.", task=(dict[str, JsonValue], ...))


class PutBackBody(RequestModel):
    """A part of a saved cluster state. The parts are sent in order, with `settings` in the first."""

    beside: Annotated[
        Count,
        Field(description="How many of the saved tasks are restored already; the cluster may have no other tasks"),
    ]
    token: Count
    orders: Count
    settings: SettingsBody | None = None
    tasks: list[SavedTask]


endpoints = Endpoints("cluster")

MEDIA_TYPE: Final = "application/x-ndjson"
LINES_BATCH: Final = 200
"""How many lines are made in one step, in another thread."""


@endpoints.add("GET", "/v1/cluster/saved", {200: ResponseSpec("Lines of JSON", bytes, MEDIA_TYPE)}, ("overloaded",))
async def saved(context: RequestContext) -> web.StreamResponse:
    """Return the cluster's settings and tasks, as of one index.

    The lines are a head, the tasks in the order of their registration, and an end with a checksum. Members and runs are
    not included.
    """
    response = web.StreamResponse(headers={"Content-Type": MEDIA_TYPE})
    with context.server.streams.one(context.request.remote):
        return await stream(context.request, response, _pieces(lines(context.state, context.server.now_us())))


@endpoints.add(
    "POST",
    "/v1/cluster/saved",
    {200: ResponseSpec("They are restored", PutBackView)},
    ("conflict", "invalid", "no-quorum", "outcome-unknown", "too-large"),
    body=PutBackBody,
)
async def put_back(context: RequestContext) -> web.Response:
    """Restore a part of a saved state into a cluster that has no other tasks: all of the part, or nothing."""
    body = await context.model(PutBackBody)
    settings = body.settings.changed() if body.settings is not None else {}
    tasks = tuple(_saved_task(task, position) for position, task in enumerate(body.tasks))
    entry = RestoreTasks(
        at_us=context.server.now_us(),
        beside=body.beside,
        token=body.token,
        orders=body.orders,
        settings=settings,
        tasks=tasks,
    )
    await make_holidays(context, (task.spec_packed for task in tasks))
    result = await context.propose(entry)
    return context.answer(result.value)


async def _pieces(made: Iterator[bytes]) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(lambda: b"".join(itertools.islice(made, LINES_BATCH))):
        yield piece


def _saved_task(saved: SavedTask, position: int) -> Kept:
    given = saved.model_dump(exclude={"task"})
    last = given.pop("last")
    return Kept(
        spec_packed=storable(lambda: msgpack.packb(saved.task), ("tasks", position, "task")),
        last=None if last is None else Outcome(**last),
        **given,
    )
