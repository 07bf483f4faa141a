"""The params of a task for an occurrence: previewed, checked when it is registered, and made for runs by hand."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, NamedTuple

from aiohttp import web
from pydantic import AfterValidator, Field
from typing_extensions import TypedDict

from node.duty.latest import schedule_roots
from node.duty.occurrence_params import occurrence_times
from node.http.api.shapes import RequestModel, Time
from node.http.api.tasks import known_task
from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.problems import Problem, invalid, invalid_field
from node.http.door.request_context import RequestContext
from node.state.calendar import days_of
from node.state.descent import with_descendants
from node.state.joins import RERUN_MAX
from node.state.times import micros, rfc3339, rfc3339_or_none
from node.state.value import State, TaskRow
from tasks.definition.cron import check_at
from tasks.definition.field_errors import FieldError, Path, dotted
from tasks.definition.schedule import next_due_us, reckoned_from_us
from tasks.definition.spec import Cron, Spec
from tasks.definition.template import (
    OccurrenceTimes,
    TemplateFault,
    needs_of_params,
    sample_params,
    shown_params,
    substituted,
    template_faults,
    template_of,
)
from tasks.definition.windows import window_start_us
from tasks.definition.written_time import WrittenTime


class SampleParams(NamedTuple):
    """The params of two sample occurrences, by which a definition with a template is checked."""

    one: Mapping[str, Any]
    other: Mapping[str, Any]


def sample_of(spec: Spec, now_us: int) -> SampleParams | None:
    """Return the params of a task's next occurrence, and of another one; None: they do not depend on occurrences."""
    if not spec.template:
        return None
    nominal_us = next_due_us(spec.schedule, None, now_us, now_us) or now_us
    zone = spec.schedule.timezone if isinstance(spec.schedule, Cron) else "UTC"
    times = OccurrenceTimes(nominal_us, window_start_us(spec.schedule, None, nominal_us), zone)
    return SampleParams(*sample_params(spec.params, times))


def params_by_hand(
    state: State, row: TaskRow, given: Mapping[str, Any] | None, nominal_us: int, *, downstream: bool = False
) -> dict[str, Any] | None:
    """Return the params of a run that is started by hand; None: those of its task.

    Raises `Problem` if a template, or that of a task after it which is started with it, needs what such a run lacks.
    """
    task = row.placing.name
    if downstream:
        _check_downstream(state, task)
    if template_of(row.spec_packed) is None:
        return None if given is None else dict(given)
    params = row.spec.params if given is None else given
    parents = tuple(one.task for one in row.spec.after)
    _refuse_faults(params, parents)
    needs = needs_of_params(params)
    if needs.window:
        raise invalid_field("params", f"{needs.window} needs a window, and a run by hand has none: give `params`")
    if needs.fields:
        parent, (field, *_) = needs.fields[0]
        said = f"{{{{ after.{parent}.{field} }}}} is of a run of {parent}: start that one with the tasks after it"
        raise invalid_field("params", f"{said} (downstream), or give `params`")
    return _made(params, occurrence_times(state, task, row.timing, nominal_us)._replace(window_start_us=None))


def params_of_action(state: State, row: TaskRow, given: Mapping[str, Any] | None, now_us: int) -> dict[str, Any] | None:
    """Return the params of an action of a task's kind, such as a preview: those of the task's next occurrence.

    None: those of the task. Raises `Problem` if they cannot be made.
    """
    if template_of(row.spec_packed) is None:
        return None if given is None else dict(given)
    params = row.spec.params if given is None else given
    _refuse_faults(params, ())
    return _made(params, _next_times(state, row, now_us) or OccurrenceTimes(now_us))


def _refuse_faults(params: Mapping[str, Any], parents: tuple[str, ...]) -> None:
    if faults := template_faults(params, parents, windows=True):
        raise invalid([FieldError(dotted(("params", *path)), said) for path, said in faults])


def _made(params: Mapping[str, Any], times: OccurrenceTimes) -> dict[str, Any]:
    try:
        return substituted(params, times, {})
    except TemplateFault as fault:
        raise template_problem(fault) from None


def template_problem(fault: TemplateFault, place: Path = ()) -> Problem:
    """Return the problem of params, of the spec at `place` in the body, that cannot be made for an occurrence."""
    field, _, said = str(fault).partition(": ")
    return invalid_field(".".join(filter(None, (dotted(place), field))), said)


def _check_downstream(state: State, task: str) -> None:
    tasks = with_descendants(state.children, [task], RERUN_MAX) or []
    for name in tasks:
        row = state.tasks.get(name)
        if row is None or name == task or (needs := template_of(row.spec_packed)) is None:
            continue
        if needs.window:
            said = f"{name} would run, too, and its params need {needs.window}: a run by hand has no window"
            raise invalid_field("downstream", said)
        if (lacking := next((parent for parent, _ in needs.fields if parent not in tasks), None)) is not None:
            said = f"{name} would run, too, and its params need the result of {lacking}, which would not"
            raise invalid_field("downstream", said)


def _next_times(state: State, row: TaskRow, from_us: int) -> OccurrenceTimes | None:
    """Return the times of the first occurrence of a task at `from_us` or later; None: there is none."""
    found = [due_us for root in _roots(state, row) if (due_us := _due_us(state, root, from_us)) is not None]
    return occurrence_times(state, row.placing.name, row.timing, min(found)) if found else None


def _roots(state: State, row: TaskRow) -> list[TaskRow]:
    """Return the tasks whose schedules make the occurrences of a task: itself, if it has one."""
    rows = [row] if row.spec.schedule is not None else [root for root, _ in schedule_roots(state, row.placing.name)]
    return [one for one in rows if one.timing.schedule is not None]


def _due_us(state: State, root: TaskRow, from_us: int) -> int | None:
    """Return the first time of a schedule at `from_us` or later, as if it had always been there."""
    rhythm = root.timing
    since_us = reckoned_from_us(rhythm.schedule, root.since_us)
    return next_due_us(rhythm.schedule, days_of(state.calendars, rhythm), since_us, from_us - 1)


def _in_the_calendar(at: datetime) -> datetime:
    check_at(at)
    if micros(at) < 0:
        raise ValueError("must not be earlier than 1970")
    return at


class ParamsAtQuery(RequestModel):
    """The occurrence whose params are shown."""

    at: Annotated[WrittenTime, AfterValidator(_in_the_calendar)] | None = Field(
        default=None, description="The first occurrence at this time or later; default: now"
    )


class ParamsAtView(TypedDict):
    """The params of an occurrence.

    `nominal` is the time of the occurrence; of a task that has neither a schedule nor tasks before it with one, the
    time that was asked for. `window_start` null: it has no window. What comes from results of tasks before it stays as
    it is written.
    """

    nominal: Time
    window_start: Time | None
    window_end: Time | None
    params: dict[str, Any]


endpoints = Endpoints("tasks")


@endpoints.add(
    "GET",
    "/v1/tasks/{name}/params",
    {200: ResponseSpec("The params of that occurrence", ParamsAtView)},
    ("not-found", "invalid"),
)
async def params_at(context: RequestContext, query: ParamsAtQuery) -> web.Response:
    """Show what a task's params would be for an occurrence, with each `{{ ... }}` of its template replaced."""
    name = known_task(context)
    row = context.state.tasks[name]
    at_us = context.server.now_us() if query.at is None else micros(query.at)
    times = _next_times(context.state, row, at_us)
    if times is None:
        if _roots(context.state, row):
            raise invalid_field("at", "nothing of this task is due at this time or later", "the query")
        times = OccurrenceTimes(at_us)
    try:
        params = shown_params(row.spec.params, times) if template_of(row.spec_packed) is not None else row.spec.params
    except TemplateFault as fault:
        field, _, said = str(fault).partition(": ")
        raise invalid_field(field, said, "the definition") from None
    start_us = times.window_start_us
    return context.answer(
        {
            "nominal": rfc3339(times.nominal_us),
            "window_start": rfc3339_or_none(start_us),
            "window_end": None if start_us is None else rfc3339(times.nominal_us),
            "params": params,
        }
    )
