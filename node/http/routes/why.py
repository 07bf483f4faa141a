"""Why a task does not run."""

from aiohttp import web

from node.http.endpoint import Endpoints, ResponseSpec
from node.http.explaining import explain
from node.http.problems import Problem, invalid_field
from node.http.request_context import RequestContext
from node.http.requests import WhyQuery
from node.http.responses.why import WhyView
from node.http.routes.tasks import known_task
from node.http.views import late_view, why_view

endpoints = Endpoints("placement")


@endpoints.add(
    "GET",
    "/v1/tasks/{name}/why",
    {200: ResponseSpec("What holds it, or where it runs", WhyView)},
    ("not-found", "invalid"),
)
async def why(context: RequestContext, query: WhyQuery) -> web.Response:
    """Why a task does not run: the first thing that holds it, what to do, and the walk up to there; or where it runs.

    The owner is asked if it alone can know. Of several runs it is about the first that waits, unless `run_id` names
    another one.
    """
    name = known_task(context)
    ownership = await context.ownership()
    if name not in context.state.tasks:
        raise Problem("not-found", f"the task {name!r} was deleted meanwhile")
    if name not in ownership.state.tasks:
        raise Problem("behind", "the placement with this task is still being computed: try again")
    if query.run_id is not None and query.run_id not in context.state.runs_of.get(name, ()):
        raise invalid_field("run_id", f"{name} has no active run {query.run_id!r}", "the query")
    found = await explain(context, name, ownership, query.run_id)
    return context.answer(why_view(name, found, late_view(context.state.tasks.get(name))))
