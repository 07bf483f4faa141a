"""Blackouts: times in which nothing new begins."""

from typing import Annotated, Final

from aiohttp import web
from pydantic import Field
from typing_extensions import TypedDict

from node.http.api.shapes import Cursor, RequestModel, Time
from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.problems import Problem
from node.http.door.request_context import RequestContext
from node.state.blackout import Blackout
from node.state.blackouts import BLACKOUT_LABELS_MAX, EndBlackout, SetBlackout
from node.state.times import rfc3339
from tasks.definition.cron import at_us_of, check_at
from tasks.definition.written_time import WrittenTime

_WRITES: Final = ("no-quorum", "outcome-unknown")


class BlackoutView(TypedDict):
    """A blackout. `active`: it holds tasks now, by the answering node's clock. `labels` empty: it holds all tasks."""

    name: str
    begins: Time
    ends: Time
    labels: dict[str, str]
    active: bool


class BlackoutPage(TypedDict):
    """Blackouts, by the time of their beginning."""

    items: list[BlackoutView]
    next: Cursor


class BlackoutBody(RequestModel):
    """When a blackout begins and ends, and which tasks it holds."""

    begins: WrittenTime | None = Field(default=None, description="RFC 3339 with an offset; null: now")
    ends: WrittenTime = Field(description="RFC 3339 with an offset")
    labels: Annotated[dict[str, str], Field(max_length=BLACKOUT_LABELS_MAX)] = Field(
        default={}, description="Only tasks with all of these labels are held; empty: all tasks are"
    )


endpoints = Endpoints("blackouts")


@endpoints.add("GET", "/v1/blackouts", {200: ResponseSpec("The blackouts", BlackoutPage)})
async def blackouts(context: RequestContext) -> web.Response:
    """List the blackouts, also some that have ended. One page lists all, because there are a hundred at most."""
    now_us = context.server.now_us()
    found = sorted(context.state.blackouts.values(), key=lambda one: (one.from_us, one.name))
    return context.answer({"items": [blackout_view(one, now_us) for one in found], "next": None})


@endpoints.add(
    "PUT",
    "/v1/blackouts/{name}",
    {200: ResponseSpec("It is set", BlackoutView)},
    ("bad-request", "too-large", "invalid", "conflict", *_WRITES),
    body=BlackoutBody,
)
async def put_blackout(context: RequestContext) -> web.Response:
    """Set or change a blackout. In it, no new occurrence, retry, child or run by hand begins.

    What runs goes on; so do failovers, continuous tasks and actions of kinds. At its end, each task's `catch_up`
    decides on the occurrences that it held; runs that wait begin.
    """
    name, body = context.path("name"), await context.model(BlackoutBody)
    now_us = context.server.now_us()
    times_us = []
    for at in (body.begins, body.ends):
        try:
            if at is not None:
                check_at(at)
        except ValueError as error:
            raise Problem("invalid", f"a time {error}") from None
        times_us.append(now_us if at is None else at_us_of(at))
    begins_us, ends_us = times_us
    labels = tuple(sorted(body.labels.items()))
    await context.propose(SetBlackout(now_us, name, max(0, begins_us), max(0, ends_us), labels))
    return context.answer(blackout_view(Blackout(name, begins_us, ends_us, labels), now_us))


@endpoints.add(
    "DELETE",
    "/v1/blackouts/{name}",
    {204: ResponseSpec("It is over, or does not come")},
    ("not-found", *_WRITES),
)
async def end_blackout(context: RequestContext) -> web.Response:
    """End a blackout now, or take back one that is to come."""
    name = context.path("name")
    if name not in context.state.blackouts:
        raise Problem("not-found", f"there is no blackout {name!r}; GET /v1/blackouts lists them")
    await context.propose(EndBlackout(context.server.now_us(), name))
    return web.Response(status=204)


def blackout_view(one: Blackout, now_us: int) -> BlackoutView:
    """Return a blackout, as the API shows it."""
    return {
        "name": one.name,
        "begins": rfc3339(one.from_us),
        "ends": rfc3339(one.until_us),
        "labels": dict(one.labels),
        "active": one.from_us <= now_us < one.until_us,
    }
