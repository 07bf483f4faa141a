"""Why a task does not run."""

from aiohttp import web
from pydantic import Field
from typing_extensions import TypedDict

from node.duty.conditions import Place
from node.duty.why_values import Why
from node.http.api.explaining import explain
from node.http.api.shapes import RequestModel, Time
from node.http.api.task_shapes import LateView
from node.http.api.tasks import known_task, late_view
from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.problems import Problem, invalid_field
from node.http.door.request_context import RequestContext
from node.state.times import rfc3339_or_none


class WhyStepView(TypedDict):
    """A step of the walk through all conditions: the condition, what was found, and whether the walk ended there."""

    place: Place
    found: str
    ends: bool


class WhyView(TypedDict):
    """What holds a task, or where it runs: in one `sentence`, and as data.

    `code` is running, or what holds it: no_quorum, disabled, paused, unreadable (its schedule cannot be evaluated),
    over (no further times), calendar (it leaves no further ones, or none are known), no_label, no_kind, members_down,
    members_draining, no_owner, by_hand, after, parent_gone (it comes after a task that was deleted), not_due, behind
    (another run, see `runs`), blackout, pool (other runs use what it needs of one), rate (the pool allows the next
    start later), offered (to a member with more room), backing_off, owner_away, member_away (the only one that may
    claim the run is not up), stopping, no_lease, aside, undecided, bound or max_runs (its owner has no room; `runs`
    occupy it), secret (missing on its owner) or due (and about to be claimed). `until` is when the obstacle ends, if
    that is known. `run_id` is the run that is held, `member` the member that holds or runs it. `detail` says what was
    found, `remedy` what to do. `late` lists the task's breached deadlines.
    """

    task: str
    code: str
    sentence: str
    detail: str
    remedy: str
    until: Time | None
    run_id: str | None
    member: str | None
    runs: list[str]
    late: list[LateView]
    steps: list[WhyStepView]


class WhyQuery(RequestModel):
    """Which of a task's runs the question is about."""

    run_id: str | None = Field(default=None, description="Ask about this active run; default: the first that waits")


endpoints = Endpoints("placement")


@endpoints.add(
    "GET",
    "/v1/tasks/{name}/why",
    {200: ResponseSpec("What holds it, or where it runs", WhyView)},
    ("not-found", "invalid"),
)
async def why(context: RequestContext, query: WhyQuery) -> web.Response:
    """Say why a task does not run: what holds it first, what to do, and the walk up to there; or where it runs.

    The owner is asked if only it can know. If the task has several runs, the answer is about the first that waits,
    unless `run_id` names another one.
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


def why_view(task: str, found: Why, late: list[LateView]) -> WhyView:
    """Return why a task does not run, and which of its deadlines are breached."""
    return {
        "task": task,
        "code": found.code,
        "sentence": found.sentence(task),
        "detail": found.detail,
        "remedy": found.remedy,
        "until": rfc3339_or_none(found.until_us),
        "run_id": found.run_id,
        "member": found.member,
        "runs": list(found.runs),
        "late": late,
        "steps": [{"place": step.place, "found": step.found, "ends": step.ends} for step in found.steps],
    }
