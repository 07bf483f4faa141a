"""Tasks: register, read, pause and delete them."""

import asyncio
import re
import sys
from collections.abc import Sequence
from typing import Final

from aiohttp import web

from node.duty.advice import may_run, passed_time, warnings
from node.http.endpoint import Endpoints, ResponseSpec
from node.http.explaining import unexpectedly_held
from node.http.identification import refuse_reader
from node.http.pages import cursor_of, cut, name_after
from node.http.problems import NAME_RULE, Problem, invalid_field
from node.http.request_context import RequestContext, problem_of_proposal, require_accepted
from node.http.requests import NamedSpec, PutQuery, SpecList, TasksQuery
from node.http.responses.tasks import (
    ChangedTaskView,
    FieldChangeView,
    ListedTaskView,
    PutPage,
    PutView,
    TaskPage,
    TaskView,
)
from node.http.specs import CheckedSpec, many_specs, one_spec
from node.http.views import held_view, registered_view, task_view
from node.raft.errors import EntryTooLarge
from node.state.apply import apply
from node.state.codec import BadEntry, pack_batch
from node.state.entries import Proposal, ProposalId
from node.state.registry import DeleteTask, Pause, Put, PutTasks
from node.state.value import Result, State, TaskRow
from tasks.definition.spec import NAME_PATTERN, read, set_of
from tasks.definition.spec_diff import changes
from tasks.installed_kinds import KindError

endpoints = Endpoints("tasks")

_NAME: Final = re.compile(NAME_PATTERN)
_VERSION: Final = re.compile(r'"?(\d{1,18})"?')
_WRITES: Final = ("no-quorum", "outcome-unknown")
_VIEWS_BATCH: Final = 50
_ROWS_BATCH: Final = 2000


@endpoints.add(
    "PUT",
    "/v1/tasks/{name}",
    {
        200: ResponseSpec("It was registered before, and now has this definition", ChangedTaskView),
        201: ResponseSpec("It is registered", ChangedTaskView),
    },
    ("bad-request", "too-large", "invalid", "version-conflict", "member-away", *_WRITES),
    body=NamedSpec,
    headers={
        "If-Match": 'Only if it has this version, such as "3"; *: any',
        "If-None-Match": "*: only if it is not registered",
    },
)
async def put_task(context: RequestContext) -> web.Response:
    """Register or change a task.

    `name` may be left out of the body. An unchanged definition keeps its version and the epoch.
    """
    name = context.path("name")
    if not _NAME.fullmatch(name):
        raise invalid_field("name", _bad_name(name), "the path")
    if context.header("If-Match") == "*":
        await _catch_up_if_unknown(context, name)
    expected = expected_version(context, name)
    checked = await one_spec(context, name)
    row, change = await register(context, checked, expected)
    # Without the owner: that would have to wait for a new placement.
    created = change == "created"
    headers = {"ETag": f'"{row.version}"'} | ({"Location": f"/v1/tasks/{name}"} if created else {})
    view: ChangedTaskView = {**registered_view(row, context.server.now_us()), "warnings": warnings_of(context, checked)}
    return context.answer(view, 201 if created else 200, headers)


async def register(context: RequestContext, checked: CheckedSpec, expected: int | None) -> tuple[TaskRow, str]:
    """Register or change a task; its row, and `created`, `changed` or `unchanged`.

    `expected` is the version that it must have; 0: unregistered; None: any. Raises `Problem`.
    """
    result = await context.propose(PutTasks(context.server.now_us(), (Put(checked.put.spec_packed, expected),)))
    [[_, version, change]] = result.value["tasks"]
    row = context.state.tasks.get(checked.name)
    if row is None or row.version != version:
        raise Problem("conflict", "it was registered, and changed or deleted by another request since", version=version)
    return row, change


@endpoints.add(
    "POST",
    "/v1/tasks",
    {200: ResponseSpec("All are registered; in a dry run: all could be", PutPage)},
    ("bad-request", "too-large", "invalid", "conflict", "member-away", *_WRITES),
    body=SpecList,
    has_dry_run=True,
)
async def post_tasks(context: RequestContext, query: PutQuery) -> web.Response:
    """Register or change a list of tasks: all of them, or none if one is invalid. At most 1 MiB.

    A token that may read only is enough for a dry run.
    """
    if not query.dry_run:
        refuse_reader(context)
    specs = await many_specs(context)
    entry = PutTasks(context.server.now_us(), tuple(spec.put for spec in specs))
    before = context.state
    result = await _dry_run(context, entry) if query.dry_run else await context.propose(entry)
    items: list[PutView] = []
    for spec, (name, version, change) in zip(specs, result.value["tasks"], strict=True):
        changed = field_changes(before, name, spec.put.spec_packed) if query.dry_run else []
        items.append(
            {
                "name": name,
                "version": version,
                "change": change,
                "changes": changed,
                "warnings": warnings_of(context, spec),
            }
        )
        if len(items) % _VIEWS_BATCH == 0:
            await asyncio.sleep(0)
    return context.answer({"items": items, "next": None})


def warnings_of(context: RequestContext, spec: CheckedSpec) -> list[str]:
    """What is doubtful in a definition that is valid, a sentence each."""
    members = context.state.members
    waits = warnings(spec.kind, spec.group, spec.pin, members.values()) if spec.group or spec.pin is not None else []
    row = context.state.tasks.get(spec.name)
    has_run = row is not None and (row.last is not None or spec.name in context.state.runs_of)
    never = [] if has_run else passed_time(spec.name, spec.put.spec_packed, context.server.now_us())
    return [*waits, *never, *_refused_here(context, spec)]


def _refused_here(context: RequestContext, spec: CheckedSpec) -> Sequence[str]:
    """What this node's settings do not allow the task. Other nodes' settings are not known here."""
    kinds = context.node.kinds
    if (
        not may_run(spec.kind, spec.group, context.state.members.get(context.node.facts.node))
        or spec.kind not in kinds.names()
    ):
        return []
    try:
        return kinds.refused(spec.kind, spec.params, spec.name, spec.run_as)
    except KindError:
        return []  # it does not load here; another member has checked the params


def field_changes(before: State, name: str, packed: bytes) -> list[FieldChangeView]:
    """The fields that differ from the registered definition; none if there is none."""
    row = before.tasks.get(name)
    if row is None:
        return []
    was, is_now = row.spec.model_dump(mode="json"), read(packed).model_dump(mode="json")
    return [{"field": field, "before": old, "after": new} for field, old, new in changes(was, is_now)]


async def _dry_run(context: RequestContext, entry: PutTasks) -> Result:
    """The result that an entry would have: it is applied to the present state, and the new state is dropped.

    Raises `Problem` as `RequestContext.propose` does for an entry that cannot be proposed.
    """
    proposal = Proposal(ProposalId(context.node.facts.node, sys.maxsize, sys.maxsize), entry)
    try:
        packed = await asyncio.to_thread(pack_batch, [proposal])
        if len(packed) > context.server.limits.entry_bytes:
            raise EntryTooLarge
    except (BadEntry, EntryTooLarge) as error:
        raise problem_of_proposal(error) from None
    return require_accepted((await asyncio.to_thread(apply, context.state, proposal)).result)


@endpoints.add("GET", "/v1/tasks", {200: ResponseSpec("Tasks, by name", TaskPage)}, ("invalid",))
async def tasks(context: RequestContext, query: TasksQuery) -> web.Response:
    """The tasks."""
    ownership = await context.ownership()
    state = context.state
    names = await context.server.task_names.after(state, name_after(query.after))
    found: list[tuple[str, TaskRow, str | None]] = []
    for number, name in enumerate(names, 1):
        if number % _ROWS_BATCH == 0:
            await asyncio.sleep(0)  # let other requests run
        row = state.tasks.get(name)
        if row is None or (query.kind is not None and row.placing.kind != query.kind):
            continue
        if query.set is not None and set_of(row.spec_packed) != query.set:
            continue
        if query.late is not None and query.late != bool(row.breaches):
            continue
        owner = ownership.owner(name)
        if query.owner is None or owner == query.owner:
            found.append((name, row, owner))
            if len(found) > query.limit:
                break
    page, more = cut(found, query.limit)
    held = await unexpectedly_held(context, [name for name, _, _ in page if name in context.state.tasks], ownership)
    items: list[ListedTaskView] = []
    for name, row, owner in page:
        items.append({**task_view(row, owner, context.server.now_us()), "held": held_view(held.get(name))})
        if len(items) % _VIEWS_BATCH == 0:
            await asyncio.sleep(0)
    return context.answer({"items": items, "next": cursor_of(page[-1][0]) if more else None})


@endpoints.add("GET", "/v1/tasks/{name}", {200: ResponseSpec("The task", TaskView)}, ("not-found",))
async def task(context: RequestContext) -> web.Response:
    """One task with its complete definition. The ETag is its version."""
    return await _task_response(context, known_task(context))


@endpoints.add(
    "DELETE",
    "/v1/tasks/{name}",
    {204: ResponseSpec("It is deleted, and its runs are cancelled")},
    ("not-found", "version-conflict", *_WRITES),
    headers={"If-Match": 'Only if it has this version, such as "3"; *: any'},
)
async def delete_task(context: RequestContext) -> web.Response:
    """Delete a task, and cancel its runs."""
    name = await task_to_change(context)
    await delete(context, name, expected_version(context, name))
    return web.Response(status=204)


async def delete(context: RequestContext, name: str, expected: int | None) -> None:
    """Delete a task and cancel its runs. `expected` is the version that it must have; None: any. Raises `Problem`."""
    await context.propose(DeleteTask(context.server.now_us(), name, expected))


@endpoints.add(
    "POST",
    "/v1/tasks/{name}/pause",
    {200: ResponseSpec("It has no due times until it is resumed", TaskView)},
    ("not-found", *_WRITES),
)
async def pause(context: RequestContext) -> web.Response:
    """Pause a task: it has no due times. Its active runs continue, and it can be run by hand."""
    return await _set_paused(context, on=True)


@endpoints.add(
    "POST",
    "/v1/tasks/{name}/resume",
    {200: ResponseSpec("Its schedule starts from now", TaskView)},
    ("not-found", *_WRITES),
)
async def resume(context: RequestContext) -> web.Response:
    """Resume a paused task. Its schedule starts from now."""
    return await _set_paused(context, on=False)


async def _set_paused(context: RequestContext, *, on: bool) -> web.Response:
    name = await task_to_change(context)
    await context.propose(Pause(context.server.now_us(), name, on))
    return await _task_response(context, name)


async def _task_response(context: RequestContext, name: str) -> web.Response:
    ownership = await context.ownership()
    row = context.state.tasks.get(name)
    if row is None:
        raise Problem("not-found", f"the task {name!r} was deleted meanwhile")
    owner = ownership.owner(name)
    return context.answer(task_view(row, owner, context.server.now_us()), headers={"ETag": f'"{row.version}"'})


def known_task(context: RequestContext) -> str:
    """The name in the path, if it is a registered task. Raises `Problem` not-found."""
    name = context.path("name")
    if name not in context.state.tasks:
        detail = (
            f"there is no task {name!r}"
            if _NAME.fullmatch(name)
            else f"this is not a valid task name: {_bad_name(name)}"
        )
        raise Problem("not-found", detail)
    return name


async def task_to_change(context: RequestContext) -> str:
    """As `known_task`, for a write: if the task is unknown here, catch up with the log first. Raises `Problem`."""
    await _catch_up_if_unknown(context, context.path("name"))
    return known_task(context)


async def _catch_up_if_unknown(context: RequestContext, name: str) -> None:
    if name not in context.state.tasks and _NAME.fullmatch(name):
        await context.catch_up()


def expected_version(context: RequestContext, name: str) -> int | None:
    """The version that If-Match or If-None-Match requires; 0: unregistered; None: any. Raises `Problem`."""
    if_match, if_none = context.header("If-Match"), context.header("If-None-Match")
    if if_none is not None:
        if if_none != "*" or if_match is not None:
            raise Problem(
                "bad-request",
                "the only supported value of If-None-Match is * (only if it is not registered), without If-Match",
            )
        return 0
    if if_match is None:
        return None
    if if_match == "*":
        if name not in context.state.tasks:
            raise Problem("version-conflict", f"there is no task {name!r}, and If-Match requires one")
        return None
    found = _VERSION.fullmatch(if_match)
    if found is None:
        raise Problem("bad-request", f'If-Match is {if_match}; it must be one version, such as "3"')
    if int(found[1]) == 0:
        raise Problem("version-conflict", "no task has version 0")
    return int(found[1])


def _bad_name(name: str) -> str:
    return f"{name[:140]!r} {NAME_RULE}"
