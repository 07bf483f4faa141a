"""Save and restore the cluster's own state, for `rota cluster save` and `load`."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Final

import msgpack
from aiohttp import web
from pydantic import Field, JsonValue
from typing_extensions import TypedDict

from node.http.api.cluster import SettingsBody
from node.http.api.shapes import Count, Due, Moment, RequestModel
from node.http.api.specs import storable
from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.request_context import RequestContext
from node.http.door.streaming import stream
from node.state.restoring import RestoreTasks
from node.state.saved import Kept, lines
from node.state.value import Outcome
from tasks.definition.run import RunState


class PutBackView(TypedDict):
    """How many tasks were restored."""

    tasks: int


class OutcomeBody(RequestModel):
    """How a task's last run ended."""

    run_id: str
    state: RunState
    fire_at_us: Moment
    finished_at_us: Moment
    error: str | None = None
    took_us: Count | None = None


class SavedTask(RequestModel):
    """A task as in `GET /v1/cluster/saved`."""

    task: dict[str, JsonValue]
    order: Annotated[Count, Field(ge=1)]
    version: Annotated[Count, Field(ge=1)]
    registered_at_us: Moment
    since_us: Due
    through_us: Due
    paused: bool = False
    incumbent: str | None = None
    skipped: Count = 0
    missed: Count = 0
    last: OutcomeBody | None = None
    requests: list[tuple[str, str]] = []  # noqa: RUF012 - pydantic copies it
    succeeded_at_us: Moment | None = None


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
    """The cluster's settings and tasks, as of one index.

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
    result = await context.propose(entry)
    return context.answer(result.value)


async def _pieces(made: Iterator[bytes]) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(lambda: b"".join(itertools.islice(made, LINES_BATCH))):
        yield piece


def _saved_task(saved: SavedTask, position: int) -> Kept:
    given = saved.model_dump(exclude={"task", "last", "requests"})
    return Kept(
        spec_packed=storable(lambda: msgpack.packb(saved.task), ("tasks", position, "task")),
        last=None if saved.last is None else Outcome(**saved.last.model_dump()),
        requests=tuple(saved.requests),
        **given,
    )
