"""Members that fetch the finished runs that they lack: who feeds them, and how far they are."""

from aiohttp import web

from node.http.bootstrap_views import bootstraps_view
from node.http.endpoint import Endpoints, ResponseSpec
from node.http.request_context import RequestContext
from node.http.requests import OwnerQuery
from node.http.responses.bootstraps import BootstrapPage
from node.http.responses.placement import OwnerView
from node.http.routes.owner import bootstrap_owner

endpoints = Endpoints("placement")


@endpoints.add("GET", "/v1/bootstraps", {200: ResponseSpec("All members' bootstraps, by slot", BootstrapPage)})
async def bootstraps(context: RequestContext) -> web.Response:
    """Which member feeds which with finished runs that it lacks, and how far that is.

    Members tell one another how far they are, once a second; nothing of it is replicated.
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
    """Who feeds a member that lacks finished runs: the owner of the task `bootstrap/ID`, and why.

    As `GET /v1/tasks/{name}/owner`; its `run_id` is the task's own name, since it has no runs.
    """
    return await bootstrap_owner(context, context.path("id"), query)
