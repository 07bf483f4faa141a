"""The cluster's own state, saved and put back: what `rota cluster save` and `load` ask for."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Final

import msgpack
from aiohttp import web
from typing_extensions import TypedDict

from node.http.endpoint import Endpoints, Says
from node.http.request_context import Call
from node.http.requests import PutBackBody, SavedTask
from node.http.specs import kept
from node.http.streaming import stream
from node.state.entries import Kept, RestoreTasks
from node.state.saved import lines
from node.state.value import Outcome

endpoints = Endpoints("cluster")

MEDIA_TYPE: Final = "application/x-ndjson"
LINES: Final = 200
"""So many are made at once, in another thread."""


class PutBackView(TypedDict):
    """How many tasks were put back."""

    tasks: int


@endpoints.add("GET", "/v1/cluster/saved", {200: Says("A line of JSON each", bytes, MEDIA_TYPE)}, ("overloaded",))
async def saved(call: Call) -> web.StreamResponse:
    """The cluster's settings and tasks, as of one index.

    A head, the tasks in the order of their registration, and an end with a checksum. Members and runs are not in it.
    """
    response = web.StreamResponse(headers={"Content-Type": MEDIA_TYPE})
    with call.service.streams.one():
        return await stream(call.request, response, _pieces(lines(call.state, call.service.now_us())))


@endpoints.add(
    "POST",
    "/v1/cluster/saved",
    {200: Says("They are there", PutBackView)},
    ("conflict", "invalid", "no-quorum", "outcome-unknown", "too-large"),
    body=PutBackBody,
)
async def put_back(call: Call) -> web.Response:
    """Put back a part of what was saved, into a cluster that has no other tasks. All of the part or none."""
    body = await call.model(PutBackBody)
    settings = body.settings.changed() if body.settings is not None else {}
    tasks = tuple(_kept(task, position) for position, task in enumerate(body.tasks))
    entry = RestoreTasks(call.service.now_us(), body.beside, body.token, body.orders, settings, tasks)
    result = await call.propose(entry)
    return call.answer(result.value)


async def _pieces(made: Iterator[bytes]) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(lambda: b"".join(itertools.islice(made, LINES))):
        yield piece


def _kept(saved: SavedTask, position: int) -> Kept:
    given = saved.model_dump(exclude={"task", "last", "requests"})
    return Kept(
        spec_packed=kept(lambda: msgpack.packb(saved.task), ("tasks", position, "task")),
        last=None if saved.last is None else Outcome(**saved.last.model_dump()),
        requests=tuple(saved.requests),
        **given,
    )
