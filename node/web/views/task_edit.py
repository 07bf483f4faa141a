"""Registers and changes tasks by a form: checks the definition, which is YAML, shows the changes, then saves it."""

import asyncio
from dataclasses import replace
from typing import Any

from aiohttp import web
from pydantic import Field

from node.http.api.registration import register, warnings_of
from node.http.api.specs import CheckedSpec, checked_spec
from node.http.api.tasks import known_task, task_to_change
from node.http.door.problems import Problem, invalid_field
from node.http.door.request_context import RequestContext
from node.state.value import State, TaskRow
from node.web.definition_form import (
    NEW,
    DefinitionForm,
    LinedError,
    digest_of,
    form_sent,
    lined,
    read_definition,
    shown_changes,
)
from node.web.page_endpoints import PageEndpoints, ViewQuery, definition_page, unsaved_page
from node.web.rendering import redirect
from node.web.restore_form import restore_text
from node.web.views.task import copy_text, definition_text
from tasks.definition.field_errors import FieldError
from tasks.definition.spec import Spec, read_spec
from tasks.definition.yaml_text import YamlUnreadable


class NewPageQuery(ViewQuery):
    """What is proposed in the form; if all are None: an example."""

    #: The task whose definition is copied.
    like: str | None = Field(default=None, max_length=200)
    #: The task of whose backups one is restored.
    restore: str | None = Field(default=None, max_length=200)
    #: The name of the backup; None: the newest.
    backup: str | None = Field(default=None, max_length=64)
    #: The member that made the backup.
    node: str | None = Field(default=None, max_length=128)


endpoints = PageEndpoints("page")


@endpoints.page("/tasks/{name}/edit")
async def edit_page(context: RequestContext) -> web.Response:
    """Show the form with a task's definition."""
    name = known_task(context)
    row = context.state.tasks[name]
    text = await asyncio.to_thread(definition_text, row.spec_packed)
    return definition_page(context, name, DefinitionForm(text, row.version))


@endpoints.page("/new")
async def new_page(context: RequestContext, query: NewPageQuery) -> web.Response:
    """Show the form for a new task; with `like` or `restore`, it proposes a definition."""
    text = NEW
    if query.restore is not None:
        text = await asyncio.to_thread(_restoring, context.state, _named(context, query.restore).spec, query)
    elif query.like is not None:
        text = await asyncio.to_thread(copy_text, _named(context, query.like).spec, context.state.tasks)
    return definition_page(context, None, DefinitionForm(text, 0))


def _named(context: RequestContext, task: str) -> TaskRow:
    row = context.state.tasks.get(task)
    if row is None:
        raise Problem("not-found", f"there is no task {task!r}: it may have been deleted meanwhile")
    return row


def _restoring(state: State, spec: Spec, query: NewPageQuery) -> str:
    logs = [(name, row.spec.params) for name, row in state.tasks.items() if row.spec.kind == "wal"]
    return restore_text(spec.name, spec.params, query.backup, query.node, logs, state.tasks)


@endpoints.form("/tasks/{name}/edit")
async def edit(context: RequestContext) -> web.Response:
    """Check a changed definition and show the changes; save it if these changes have been shown before."""
    return await _obey(context, context.path("name"))


@endpoints.form("/new")
async def new(context: RequestContext) -> web.Response:
    """Check a new task's definition and show its fields; register the task if they have been shown before."""
    return await _obey(context, None)


async def _obey(context: RequestContext, task: str | None) -> web.Response:
    form = await context.form()
    shown = form_sent(form)
    text = shown.text
    try:
        if task is not None:
            await _catch_up(context)
        shown = await _checked(context, task, text, shown.version)
    except Problem as problem:
        return unsaved_page(context, task, shown, problem)
    if shown.errors:
        return definition_page(context, task, shown, 422)
    # Show the changes first if the text differs from the checked one, or if somebody has changed the task meanwhile.
    if form.get("step") != "save" or form.get("checked") != shown.checked or shown.meanwhile is not None:
        return definition_page(context, task, shown)
    checked = await _spec(context, task, await asyncio.to_thread(read_definition, text))
    try:
        await register(context, checked, shown.version)
    except Problem as problem:
        if problem.kind != "version-conflict":
            return unsaved_page(context, task, shown, problem)
        shown = await _checked(context, task, text, shown.version)
        return definition_page(context, task, shown, 412)
    return redirect(context, f"tasks/{checked.name}")


async def _catch_up(context: RequestContext) -> None:
    """Wait until this node knows the task in the path. If it has been deleted meanwhile, saving creates it again."""
    try:
        await task_to_change(context)
    except Problem as problem:
        if problem.kind != "not-found":
            raise


async def _checked(context: RequestContext, task: str | None, text: str, began: int) -> DefinitionForm:
    """Check `text`, which the user began to edit at version `began`, and return the form with the result."""
    form = DefinitionForm(text, began)
    try:
        given = await asyncio.to_thread(read_definition, text)
    except YamlUnreadable as unreadable:
        return replace(form, errors=(LinedError("", f"The text {unreadable}", None),))
    try:
        checked = await _spec(context, task, given)
    except Problem as problem:
        if problem.kind != "invalid":
            raise
        return replace(form, errors=await asyncio.to_thread(lined, text, problem.errors))
    row = context.state.tasks.get(checked.name)
    if task is None and row is not None:
        taken = f"{checked.name} is registered already: choose another name, or edit that task"
        return replace(form, errors=await asyncio.to_thread(lined, text, [FieldError("name", taken)]))
    version = 0 if row is None else row.version
    return replace(
        form,
        version=version,
        changes=shown_changes(None if row is None else row.spec, read_spec(checked.put.spec_packed)),
        warnings=tuple(warnings_of(context, checked)),
        checked=digest_of(text),
        meanwhile=began if version != began else None,
    )


async def _spec(context: RequestContext, task: str | None, given: dict[str, Any]) -> CheckedSpec:
    """Return the spec, checked as in a PUT. Raises `Problem`."""
    if task is not None and given.get("name", task) != task:
        raise invalid_field("name", f"must stay {task}: a task is not renamed; register another one, and delete this")
    name = task if task is not None else given.get("name")
    return await checked_spec(context, name if isinstance(name, str) else "", dict(given))
