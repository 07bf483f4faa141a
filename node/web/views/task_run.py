"""Runs a task by hand with params for this run only, by a form made from the model of the task's kind."""

from collections.abc import Mapping
from typing import Any

from aiohttp import web
from pydantic import Field

from node.http.api import run_starts, runs
from node.http.api.kinds import schema_of
from node.http.api.specs import members_offering
from node.http.api.tasks import known_task, task_to_change
from node.http.door.problems import Problem
from node.http.door.request_context import RequestContext
from node.state.value import EndedRun, TaskRow
from node.web.definition_form import version_sent
from node.web.page_endpoints import PageEndpoints, ViewQuery
from node.web.params_form import ParamField, errors_by_field, fields_of, params_of, texts_sent
from node.web.rendering import page, redirect
from tasks.definition.field_errors import FieldError
from tasks.definition.spec import same_spec


class RunFormQuery(ViewQuery):
    """`like`: the run whose params are shown in the form; None: the task's params."""

    like: str | None = Field(default=None, max_length=300)


endpoints = PageEndpoints("page")


@endpoints.page("/tasks/{name}/run-with")
async def run_form(context: RequestContext, query: RunFormQuery) -> web.Response:
    """Show the form with the params of a task, or of one of its runs."""
    name = known_task(context)
    row = context.state.tasks[name]
    fields = await _fields(context, row, query.like)
    return _form(context, name, row, query.like, fields, {})


@endpoints.form("/tasks/{name}/run-with")
async def run_with(context: RequestContext) -> web.Response:
    """Start a run with the params of the form, or show their errors."""
    name = await task_to_change(context)
    sent = await context.form()
    row, like = context.state.tasks[name], sent.get("like") or None
    fields = await _fields(context, row, like)
    if version_sent(sent) != row.version:
        return _form(context, name, row, like, fields, sent, status=409, meanwhile=True)
    params, errors = params_of(fields, sent)
    if not errors:
        try:
            own = None if same_spec(params, row.spec.params) else params
            member = await _member_of_run(context, name, like)
            run_id = (await run_starts.propose_run(context, name, own, member=member))["run_id"]
        except Problem as problem:
            if problem.kind != "invalid":
                why = problem.detail if problem.kind == "outcome-unknown" else f"nothing was started: {problem.detail}"
                return _form(context, name, row, like, fields, sent, status=problem.status, why=why)
            errors = list(problem.errors)
        else:
            return redirect(context, f"runs/{run_id}")
    return _form(context, name, row, like, fields, sent, status=422, errors=errors)


async def _fields(context: RequestContext, row: TaskRow, like: str | None) -> list[ParamField]:
    kind = row.placing.kind
    schema = await schema_of(context, kind, members_offering(context.state, kind))
    return fields_of(schema, await _params_of_run(context, row, like) if like is not None else row.spec.params)


async def _params_of_run(context: RequestContext, row: TaskRow, run_id: str) -> dict[str, Any]:
    """Return the params that were given for a run; the task's params if none were, or if it is another task's run."""
    found = await runs.find_run(context, run_id)
    run = found.run if isinstance(found, EndedRun) else found
    return row.spec.params if run.params is None or run.task != row.placing.name else run.params


async def _member_of_run(context: RequestContext, task: str, run_id: str | None) -> str:
    """Return the member that a run of a task with `each` was for, since one like it is for that alone; "": for all."""
    if run_id is None or task not in context.state.each:
        return ""
    found = await runs.find_run(context, run_id)
    return (found.run if isinstance(found, EndedRun) else found).member


def _form(
    context: RequestContext,
    task: str,
    row: TaskRow,
    like: str | None,
    fields: list[ParamField],
    sent: Mapping[str, str],
    *,
    status: int = 200,
    errors: list[FieldError] | None = None,
    why: str = "",
    meanwhile: bool = False,
) -> web.Response:
    of_fields, others = errors_by_field(fields, errors or [])
    return page(
        context,
        "run_with.html",
        status,
        task=task,
        kind=row.placing.kind,
        version=row.version,
        like=like,
        fields=fields,
        texts=texts_sent(fields, sent),
        wrong=of_fields,
        others=others,
        why=why,
        meanwhile=meanwhile,
    )
