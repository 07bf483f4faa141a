"""Tasks: register, look at, pause, delete."""

import asyncio
import re
import sys
from collections.abc import Sequence
from typing import Final

from aiohttp import web

from node.http.advice import may_run, warnings
from node.http.endpoint import Endpoints, Says
from node.http.pages import cursor_of, cut, name_after
from node.http.problems import Problem, invalid_field
from node.http.request_context import Call, accepted, unanswered
from node.http.requests import NamedSpec, PutQuery, SpecList, TasksQuery
from node.http.responses import ChangedTaskView, FieldChangeView, PutPage, PutView, TaskPage, TaskView
from node.http.specs import Checked, many_specs, one_spec
from node.http.views import registered_view, task_view
from node.raft.errors import EntryTooLarge
from node.state.apply import apply
from node.state.codec import BadEntry, pack_batch
from node.state.entries import DeleteTask, Pause, Proposal, ProposalId, Put, PutTasks
from node.state.value import Result, State, TaskRow
from tasks.kinds import KindError
from tasks.spec import NAME_PATTERN, read
from tasks.spec_diff import changes

endpoints = Endpoints("tasks")

_NAME: Final = re.compile(NAME_PATTERN)
_VERSION: Final = re.compile(r'"?(\d{1,18})"?')
_WRITES: Final = ("no-quorum", "outcome-unknown")
_AT_ONCE: Final = 50
_LOOKED_AT: Final = 2000


@endpoints.add(
    "PUT",
    "/v1/tasks/{name}",
    {
        200: Says("It was there, and is as you say now", ChangedTaskView),
        201: Says("It is registered", ChangedTaskView),
    },
    ("bad-request", "too-large", "invalid", "version-conflict", "member-away", *_WRITES),
    body=NamedSpec,
    headers={
        "If-Match": 'Only if its version is this one: "3"; * for any',
        "If-None-Match": "*: only if it is not there",
    },
)
async def put_task(call: Call) -> web.Response:
    """Register or change a task.

    `name` may be left out of the body. A spec that is as it was keeps its version, and the epoch.
    """
    name = call.path("name")
    if not _NAME.fullmatch(name):
        raise invalid_field("name", _bad_name(name), "the path")
    if call.header("If-Match") == "*":
        await _seek(call, name)
    expected = expected_version(call, name)
    checked = await one_spec(call, name)
    result = await call.propose(PutTasks(call.service.now_us(), (Put(checked.put.spec_packed, expected),)))
    [[_, version, change]] = result.value["tasks"]
    row = call.state.tasks.get(name)
    if row is None or row.version != version:
        raise Problem("conflict", "it was registered, and changed or deleted by somebody else since", version=version)
    # Without its owner: that needs a placement, and this should take no longer than the commit.
    created = change == "created"
    headers = {"ETag": f'"{version}"'} | ({"Location": f"/v1/tasks/{name}"} if created else {})
    view: ChangedTaskView = {**registered_view(row, call.service.now_us()), "warnings": _warnings(call, checked)}
    return call.answer(view, 201 if created else 200, headers)


@endpoints.add(
    "POST",
    "/v1/tasks",
    {200: Says("All of them are registered, or could be", PutPage)},
    ("bad-request", "too-large", "invalid", "conflict", "member-away", *_WRITES),
    body=SpecList,
)
async def post_tasks(call: Call, query: PutQuery) -> web.Response:
    """Register or change a list of tasks: all of them, or none if one is not right. 1 MiB at most."""
    specs = await many_specs(call)
    entry = PutTasks(call.service.now_us(), tuple(spec.put for spec in specs))
    before = call.state
    result = await _tried(call, entry) if query.dry_run else await call.propose(entry)
    items: list[PutView] = []
    for spec, (name, version, change) in zip(specs, result.value["tasks"], strict=True):
        told = _field_changes(before, name, spec.put.spec_packed) if query.dry_run else []
        items.append(
            {"name": name, "version": version, "change": change, "changes": told, "warnings": _warnings(call, spec)}
        )
        if len(items) % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return call.answer({"items": items, "next": None})


def _warnings(call: Call, spec: Checked) -> list[str]:
    members = call.state.members
    waits = warnings(spec.kind, spec.group, spec.pin, members.values()) if spec.group or spec.pin is not None else []
    return [*waits, *_refused_here(call, spec)]


def _refused_here(call: Call, spec: Checked) -> Sequence[str]:
    """What this node would refuse if the task came to run on it: the settings of others are not known here."""
    kinds = call.node.kinds
    if (
        not may_run(spec.kind, spec.group, call.state.members.get(call.node.facts.node))
        or spec.kind not in kinds.names()
    ):
        return []
    try:
        return kinds.refused(spec.kind, spec.params, spec.name)
    except KindError:
        return []  # it does not load here, and its params were checked on another member


def _field_changes(before: State, name: str, packed: bytes) -> list[FieldChangeView]:
    """What differs from the definition that is registered; nothing where there is none."""
    row = before.tasks.get(name)
    if row is None:
        return []
    was, is_now = row.spec.model_dump(mode="json"), read(packed).model_dump(mode="json")
    return [{"field": field, "before": old, "after": new} for field, old, new in changes(was, is_now)]


async def _tried(call: Call, entry: PutTasks) -> Result:
    """What would become of an entry: applied to the state as it is here, which is then thrown away.

    Raises `Problem` as `Call.propose` does where nothing could be proposed.
    """
    proposal = Proposal(ProposalId(call.node.facts.node, sys.maxsize, sys.maxsize), entry)
    try:
        packed = await asyncio.to_thread(pack_batch, [proposal])
        if len(packed) > call.service.limits.entry_bytes:
            raise EntryTooLarge
    except (BadEntry, EntryTooLarge) as error:
        raise unanswered(error) from None
    return accepted((await asyncio.to_thread(apply, call.state, proposal)).result)


@endpoints.add("GET", "/v1/tasks", {200: Says("Tasks, by name", TaskPage)}, ("invalid",))
async def tasks(call: Call, query: TasksQuery) -> web.Response:
    """The tasks."""
    ownership = await call.ownership()
    state = call.state
    names = await call.service.names.after(state, name_after(query.after))
    found: list[tuple[str, TaskRow, str | None]] = []
    for number, name in enumerate(names, 1):
        if number % _LOOKED_AT == 0:
            await asyncio.sleep(0)  # others' requests come in between
        row = state.tasks.get(name)
        if row is None or (query.kind is not None and row.placing.kind != query.kind):
            continue
        owner = ownership.owner(name)
        if query.owner is None or owner == query.owner:
            found.append((name, row, owner))
            if len(found) > query.limit:
                break
    page, more = cut(found, query.limit)
    items: list[TaskView] = []
    for _, row, owner in page:
        items.append(task_view(row, owner, call.service.now_us()))
        if len(items) % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return call.answer({"items": items, "next": cursor_of(page[-1][0]) if more else None})


@endpoints.add("GET", "/v1/tasks/{name}", {200: Says("The task", TaskView)}, ("not-found",))
async def task(call: Call) -> web.Response:
    """One task, its definition complete. Its version is the ETag, too."""
    return await _told(call, known_task(call))


@endpoints.add(
    "DELETE",
    "/v1/tasks/{name}",
    {204: Says("It is gone, its runs cancelled")},
    ("not-found", "version-conflict", *_WRITES),
    headers={"If-Match": 'Only if its version is this one: "3"; * for any'},
)
async def delete_task(call: Call) -> web.Response:
    """Delete a task, and cancel its runs."""
    name = await task_to_change(call)
    await call.propose(DeleteTask(call.service.now_us(), name, expected_version(call, name)))
    return web.Response(status=204)


@endpoints.add(
    "POST", "/v1/tasks/{name}/pause", {200: Says("Nothing of it falls due", TaskView)}, ("not-found", *_WRITES)
)
async def pause(call: Call) -> web.Response:
    """Let nothing of a task fall due. What runs goes on; runs by hand are possible."""
    return await _paused(call, on=True)


@endpoints.add(
    "POST", "/v1/tasks/{name}/resume", {200: Says("Its schedule counts from now", TaskView)}, ("not-found", *_WRITES)
)
async def resume(call: Call) -> web.Response:
    """Let a paused task fall due again. Its schedule counts from now."""
    return await _paused(call, on=False)


async def _paused(call: Call, *, on: bool) -> web.Response:
    name = await task_to_change(call)
    await call.propose(Pause(call.service.now_us(), name, on))
    return await _told(call, name)


async def _told(call: Call, name: str) -> web.Response:
    ownership = await call.ownership()
    row = call.state.tasks.get(name)
    if row is None:
        raise Problem("not-found", f"the task {name!r} has been deleted meanwhile")
    owner = ownership.owner(name)
    return call.answer(task_view(row, owner, call.service.now_us()), headers={"ETag": f'"{row.version}"'})


def known_task(call: Call) -> str:
    """The task that the path names. Raises `Problem` not-found."""
    name = call.path("name")
    if name not in call.state.tasks:
        detail = (
            f"there is no task {name!r}" if _NAME.fullmatch(name) else f"no task can have this name: {_bad_name(name)}"
        )
        raise Problem("not-found", detail)
    return name


async def task_to_change(call: Call) -> str:
    """As `known_task`, for a write: a task that is not known here may be known to the others. Raises `Problem`."""
    await _seek(call, call.path("name"))
    return known_task(call)


async def _seek(call: Call, name: str) -> None:
    if name not in call.state.tasks and _NAME.fullmatch(name):
        await call.catch_up()


def expected_version(call: Call, name: str) -> int | None:
    """What If-Match or If-None-Match asks for: a version, 0 for "not there", None for anything. Raises `Problem`."""
    if_match, if_none = call.header("If-Match"), call.header("If-None-Match")
    if if_none is not None:
        if if_none != "*" or if_match is not None:
            raise Problem("bad-request", "If-None-Match is understood as * (only if it is not there), without If-Match")
        return 0
    if if_match is None:
        return None
    if if_match == "*":
        if name not in call.state.tasks:
            raise Problem("version-conflict", f"there is no task {name!r}, and If-Match asks for one")
        return None
    found = _VERSION.fullmatch(if_match)
    if found is None:
        raise Problem("bad-request", f'If-Match is {if_match}, and should be one version, such as "3"')
    if int(found[1]) == 0:
        raise Problem("version-conflict", "no task has version 0")
    return int(found[1])


def _bad_name(name: str) -> str:
    return (
        f"{name[:140]!r} must begin with a letter or digit and hold only letters, digits, '.', '_' and '-' "
        "(no slash), 128 at most"
    )
