"""Register and change tasks."""

import asyncio
import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

from aiohttp import web
from pydantic import ConfigDict, Field

from node.duty.advice import may_run, passed_time, warnings
from node.http.api.calendars import make_holidays, missing_holidays
from node.http.api.dry_runs import tried
from node.http.api.shapes import RequestModel
from node.http.api.specs import CheckedSpec, checked_spec, many_specs
from node.http.api.task_shapes import ChangedTaskView, FieldChangeView, PutPage, PutView
from node.http.api.tasks import catch_up_if_unknown, expected_version, name_fault, registered_view
from node.http.door.authentication import refuse_reader
from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.problems import Problem, invalid_field
from node.http.door.request_context import RequestContext
from node.state.calendars import SetCalendar
from node.state.entries import Entry
from node.state.registry import Put, PutTasks
from node.state.settings import ChangeSettings
from node.state.value import State, TaskRow
from tasks.definition.spec import EXAMPLE, NAME_PATTERN, Spec, read_spec
from tasks.definition.spec_diff import changes
from tasks.installed_kinds import KindError

_CALENDARS_PATTERN: Final = r"^[^,]+(,[^,]+)*$"
_POOLS_PATTERN: Final = r"^[^=,]+=[0-9]{1,7}(,[^=,]+=[0-9]{1,7})*$"


class PutQuery(RequestModel):
    """Options of registering tasks."""

    dry_run: bool = Field(
        default=False, description="Validate them and return what would change, without changing anything"
    )
    pools: Annotated[str, Field(max_length=4000, pattern=_POOLS_PATTERN)] | None = Field(
        default=None,
        description="Only in a dry run: pools that would be made or changed first, as `dumps=2,table:orders=1`",
    )
    calendars: Annotated[str, Field(max_length=4000, pattern=_CALENDARS_PATTERN)] | None = Field(
        default=None, description="Only in a dry run: calendars that would be made first, as `closing,month-ends`"
    )


def _name_may_be_left_out(schema: dict[str, Any]) -> None:
    schema["examples"] = [EXAMPLE]
    schema["required"] = [name for name in schema["required"] if name != "name"]


class NamedSpec(Spec):
    """A task's definition. Its name is in the path, and may be left out."""

    model_config = ConfigDict(json_schema_extra=_name_may_be_left_out)


SpecList = list[Spec]

endpoints = Endpoints("tasks")

_NAME: Final = re.compile(NAME_PATTERN)
_WRITES: Final = ("no-quorum", "outcome-unknown")
_VIEWS_BATCH: Final = 50


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
        raise invalid_field("name", name_fault(name), "the path")
    if context.header("If-Match") == "*":
        await catch_up_if_unknown(context, name)
    expected = expected_version(context, name)
    checked = await checked_spec(context, name, await context.json())
    row, change = await register(context, checked, expected)
    # The response leaves out the owner, because it would have to wait for a new placement.
    created = change == "created"
    headers = {"ETag": f'"{row.version}"'} | ({"Location": f"/v1/tasks/{name}"} if created else {})
    view: ChangedTaskView = {
        **registered_view(context.state, row, context.server.now_us()),
        "warnings": warnings_of(context, checked),
    }
    return context.answer(view, 201 if created else 200, headers)


async def register(context: RequestContext, checked: CheckedSpec, expected: int | None) -> tuple[TaskRow, str]:
    """Register or change a task. Returns its row, and `created`, `changed` or `unchanged`.

    `expected` is the version that the task must have; 0: it must be unregistered; None: any. Raises `Problem`.
    """
    await make_holidays(context, (checked.put.spec_packed,))
    result = await context.propose(PutTasks(context.server.now_us(), (Put(checked.put.spec_packed, expected),)))
    [[_, version, change]] = result.value["tasks"]
    row = context.state.tasks.get(checked.name)
    if row is None or row.version != version:
        detail = "the task was registered, and has been changed or deleted by another request since"
        raise Problem("conflict", detail, version=version)
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
        if query.pools is not None:
            raise invalid_field("pools", "is for a dry run: PATCH /v1/settings makes pools", "the query")
        if query.calendars is not None:
            raise invalid_field("calendars", "is for a dry run: PUT /v1/calendars/NAME makes calendars", "the query")
    specs = await many_specs(context)
    entry = PutTasks(context.server.now_us(), tuple(spec.put for spec in specs))
    before = context.state
    holidays = await missing_holidays(context, (spec.put.spec_packed for spec in specs))
    if query.dry_run:
        result = await tried(context, entry, [*holidays, *_made_first(query, entry.at_us)])
    else:
        for one in holidays:
            await context.propose(one)
        result = await context.propose(entry)
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
    """Return the warnings about a definition that is valid but doubtful, a sentence each."""
    members = context.state.members
    waits = warnings(spec.kind, spec.group, spec.pin, members.values()) if spec.group or spec.pin is not None else []
    row = context.state.tasks.get(spec.name)
    has_run = row is not None and (row.last is not None or spec.name in context.state.runs_of)
    never = (
        []
        if has_run
        else passed_time(context.state.calendars, spec.name, spec.put.spec_packed, context.server.now_us())
    )
    return [*waits, *never, *_refused_here(context, spec)]


def _refused_here(context: RequestContext, spec: CheckedSpec) -> Sequence[str]:
    """Return what this node's settings forbid the task to do, a sentence each. Other nodes' settings are not known."""
    kinds = context.node.kinds
    if (
        not may_run(spec.kind, spec.group, context.state.members.get(context.node.settings.node))
        or spec.kind not in kinds.names()
    ):
        return []
    try:
        return kinds.refused(spec.kind, spec.params, spec.name, spec.run_as)
    except KindError:
        return []  # the kind does not load here; another member has checked the params


def field_changes(before: State, name: str, packed: bytes) -> list[FieldChangeView]:
    """Return the fields that differ from the registered definition; [] if the task is not registered."""
    row = before.tasks.get(name)
    if row is None:
        return []
    was, is_now = row.spec.model_dump(mode="json"), read_spec(packed).model_dump(mode="json")
    return [{"field": field, "before": old, "after": new} for field, old, new in changes(was, is_now)]


def _made_first(query: PutQuery, at_us: int) -> Iterator[Entry]:
    """Yield the entries that make the pools and calendars that a dry run counts with."""
    if query.pools is not None:
        capacities = {name: int(number) for name, _, number in (one.partition("=") for one in query.pools.split(","))}
        yield ChangeSettings(at_us, {"pools": capacities})
    if query.calendars is not None:
        yield from (SetCalendar(at_us, name, ()) for name in query.calendars.split(","))
