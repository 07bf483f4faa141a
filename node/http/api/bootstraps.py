"""Bootstraps, in which members fetch finished runs that they lack: which member sends the runs, and the progress."""

from collections.abc import Mapping, Sequence
from typing import Literal

from aiohttp import web
from typing_extensions import TypedDict

from hashing.view import Slot
from node.history.feeders import feeders
from node.http.api.placement import OwnerQuery, OwnerView, bootstrap_owner
from node.http.api.runs import ProgressView
from node.http.api.shapes import Cursor, Time
from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.request_context import RequestContext
from node.peer.bootstrap import Bootstrap, task_of
from node.state.times import rfc3339, rfc3339_or_none
from node.state.value import State


class BootstrapView(TypedDict):
    """How far a member is with fetching the finished runs that it lacks.

    `feeder` is the member that sends them now, `fed` how many each feeder has sent. `progress` counts indexes of the
    log, at each of which any number of runs may have ended; `index` is the last index of the latest portion. `waiting`
    says why no member sends runs; null: one does. `runs_per_s` leaves out the time of waiting.
    """

    state: Literal["fetching", "waiting", "done"]
    feeder: str | None
    runs: int
    fed: dict[str, int]
    index: int
    progress: ProgressView
    runs_per_s: float
    started_at: Time
    finished_at: Time | None
    waiting: str | None


class BootstrapTaskView(TypedDict):
    """The bootstrap of a member, which is assigned like a task: `owner` feeds it, then the next of `preference`.

    `latest` is the member's latest bootstrap that the answering member knows; null: none since the latter has started.
    """

    task: str
    member: str
    owner: str | None
    preference: list[str]
    latest: BootstrapView | None


class BootstrapPage(TypedDict):
    """The bootstraps of all members, by slot."""

    items: list[BootstrapTaskView]
    next: Cursor


endpoints = Endpoints("placement")


@endpoints.add("GET", "/v1/bootstraps", {200: ResponseSpec("All members' bootstraps, by slot", BootstrapPage)})
async def bootstraps(context: RequestContext) -> web.Response:
    """List each member's bootstrap: which member sends it the finished runs that it lacks, and the progress.

    Members tell one another their progress, once a second; it is not replicated.
    """
    items = bootstraps_view(context.state, context.node.bootstraps.known(context.state))
    return context.answer({"items": items, "next": None})


@endpoints.add(
    "GET",
    "/v1/tasks/bootstrap/{id}/owner",
    {200: ResponseSpec("Who feeds it, and why", OwnerView)},
    ("not-found", "invalid"),
)
async def feeder(context: RequestContext, query: OwnerQuery) -> web.Response:
    """Say which member sends a member the finished runs that it lacks: the owner of the task `bootstrap/ID`, and why.

    The response is like that of `GET /v1/tasks/{name}/owner`. Its `run_id` is the task's own name, as it has no runs.
    """
    return await bootstrap_owner(context, context.path("id"), query)


def bootstrap_view(bootstrap: Bootstrap) -> BootstrapView:
    """Return a bootstrap, as the API shows it."""
    return {
        "state": "done" if bootstrap.finished_us is not None else "waiting" if bootstrap.feeder is None else "fetching",
        "feeder": bootstrap.feeder,
        "runs": bootstrap.runs,
        "fed": dict(bootstrap.fed),
        "index": bootstrap.index,
        "progress": {"done": bootstrap.indexes, "total": bootstrap.indexes_total, "unit": "indexes"},
        "runs_per_s": round(bootstrap.runs_per_s, 1),
        "started_at": rfc3339(bootstrap.started_us),
        "finished_at": rfc3339_or_none(bootstrap.finished_us),
        "waiting": bootstrap.waiting,
    }


def catching_up(member: str, known: Mapping[str, Bootstrap]) -> BootstrapView | None:
    """Return a member's bootstrap, or None if the member lacks no finished runs, as far as this node knows."""
    bootstrap = known.get(member)
    return None if bootstrap is None or bootstrap.finished_us is not None else bootstrap_view(bootstrap)


def bootstraps_view(state: State, known: Mapping[str, Bootstrap]) -> list[BootstrapTaskView]:
    """Return the bootstraps of all members, by slot, as the API shows them."""
    slots = state.seats()
    return [bootstrap_task_view(slots, member, known.get(member)) for member in state.slots if member is not None]


def bootstrap_task_view(slots: Sequence[Slot], member: str, latest: Bootstrap | None) -> BootstrapTaskView:
    """Return the bootstrap of one member, with the members that feed it, as the API shows it."""
    order = feeders(slots, member)
    return {
        "task": task_of(member),
        "member": member,
        "owner": order[0] if order else None,
        "preference": order,
        "latest": None if latest is None else bootstrap_view(latest),
    }
