"""Entries that register, change, delete, pause and resume tasks."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgpack
from immutables import Map
from pydantic import ValidationError

from hashing.key import key64
from hashing.view import Task
from node.state import descent, joins
from node.state.attempts import stop_run
from node.state.backfills import cancel_backfills_of
from node.state.bounds import no_room_for_tasks, requests_bytes
from node.state.calendars import calendars_fault
from node.state.carried import drop_carried, forget_carried
from node.state.copying import replace
from node.state.draft import DONE, RULES_AFTER, RULES_AT_TIMES, RULES_TEMPLATES, Draft, refused
from node.state.each import keep_each, settle_each
from node.state.entries import Entry, applies
from node.state.pools import needs_fault
from node.state.shape import json_value
from node.state.value import Result, TaskRow
from tasks.definition.calendars import CalendarRule
from tasks.definition.spec import (
    DESCRIBING,
    Schedule,
    Spec,
    accepted,
    after_of,
    comes_after,
    has_later_fields,
    read_spec,
    runs_on_each,
    same_spec,
    waits_at_times,
)
from tasks.definition.template import template_of

_PLACED_BY: Final = tuple(name for name in Task._fields if name in Spec.model_fields and name != "name")
PLACING: Final = ("key", "sticky", "each", *_PLACED_BY)
"""The fields of a spec that placement depends on. A change of one bumps the epoch."""

_OF_RUNS: Final = ("kind", *(name for name in Spec.model_fields if name not in PLACING and name not in DESCRIBING))
"""The fields of a spec that a run depends on. A run keeps them as they were when it was made."""

_FAULT_CHARS_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class Put:
    """Register or change a task, only if it has the version `if_version`. None: in any case; 0: only if it is new."""

    spec_packed: bytes
    if_version: int | None = None


@dataclass(frozen=True, slots=True)
class PutTasks(Entry):
    """Register or change tasks, all or none. An unchanged spec keeps its version.

    Result: `{"tasks": [[name, version, change], ...]}`, change being `created`, `changed` or `unchanged`.
    """

    puts: tuple[Put, ...]


@applies(PutTasks, code=9)
def put_tasks(draft: Draft, entry: PutTasks) -> Result:
    """Register or change tasks, all or none. Result: see `PutTasks`."""
    lines: list[list[Any]] = []
    names: set[str] = set()
    begun_anew: list[str] = []
    related: list[str] = []
    on_each: list[str] = []
    before, more_bytes = draft.tasks, 0
    with draft.tasks.mutate() as tasks:
        for put in entry.puts:
            fields = _fields(put.spec_packed)
            if isinstance(fields, str):
                return refused("invalid", fields)
            row = tasks.get(given) if isinstance(given := fields.get("name"), str) else None
            after = _after(draft, row, put, fields, entry.at_us)
            if isinstance(after, str):
                return refused("invalid", after)
            present, begins_anew = after
            name = present.placing.name
            if name in names:
                return refused("invalid", f"{name} is in the list twice")
            names.add(name)
            if (refusal := _other_version(row, put.if_version, name)) is not None:
                return refusal
            if present is not row:
                later = has_later_fields(fields)  # most tasks have none, and a starting member applies many of them
                if later and (why := _later_fields_fault(draft, name, put.spec_packed, row)) is not None:
                    return refused("invalid", why)
                if name in draft.carried and template_of(put.spec_packed) is None:
                    forget_carried(draft, name)
                more_bytes += len(present.spec_packed) - (0 if row is None else len(row.spec_packed))
                tasks[name] = present
                draft.touched.add(name)
                if (
                    name in draft.children
                    or (later and comes_after(put.spec_packed))
                    or (row and comes_after(row.spec_packed))
                ):
                    related.append(name)
                if (later and runs_on_each(put.spec_packed)) != (row is not None and runs_on_each(row.spec_packed)):
                    on_each.append(name)
            if begins_anew:
                begun_anew.append(name)
            change = "created" if row is None else "unchanged" if present is row else "changed"
            lines.append([name, present.version, change])
        draft.tasks = tasks.finish()
    if more_bytes:
        draft.specs_bytes += more_bytes
    if (why := no_room_for_tasks(draft, len(draft.tasks) - len(before), more_bytes)) is not None:
        return refused("full", why)
    if related and (why := _settle_descent(draft, before, related, entry.at_us)) is not None:
        return refused("invalid", why)
    if on_each and (why := settle_each(draft, on_each, entry.at_us)) is not None:
        return refused("invalid", why)
    for task in begun_anew:
        for run in draft.active(task):
            if run.trigger == "schedule":
                stop_run(draft, run, "changed", entry.at_us)
    return Result("ok", {"tasks": lines})


def _later_fields_fault(draft: Draft, name: str, packed: bytes, row: TaskRow | None) -> str | None:
    """Describe why a task may not have what its definition says of pools, calendars or a template; None: it may."""
    return (
        needs_fault(draft, name, packed, row)
        or calendars_fault(draft, name, packed, row)
        or template_fault(draft, name, packed)
    )


def template_fault(draft: Draft, task: str, packed: bytes) -> str | None:
    """Describe why a task may not have a template; None: it may, or has none."""
    if draft.lead.rules >= RULES_TEMPLATES or template_of(packed) is None:
        return None
    return f"{task}: `template` needs a leader of this version"


def _settle_descent(draft: Draft, before: Map[str, TaskRow], changed: list[str], at_us: int) -> str | None:
    """Note what the tasks `changed` come after now, and end what waited by earlier definitions. Returns the fault."""
    moved = []
    parents: set[str] = set()
    for name in changed:
        was, row = before.get(name), draft.tasks[name]
        had, has = after_of(was.spec_packed) if was is not None else (), after_of(row.spec_packed)
        if has and draft.lead.rules < RULES_AFTER:
            return f"{name}: `after` needs a leader of this version"
        had_times, has_times = was is not None and waits_at_times(was.spec_packed), waits_at_times(row.spec_packed)
        if has_times and draft.lead.rules < RULES_AT_TIMES:
            return f"{name}: `after` with a schedule needs a leader of this version"
        if has and (why := _fields_fault(draft, name, row)) is not None:
            return why
        if had_times or has_times:
            parents.update(one.task for one in (*had, *has))
        if was is None:
            parents.add(name)  # it may be there again, with tasks that have come after it before
        if had != has:
            draft.children = descent.with_child(draft.children, name, was, row)
        anew = had != has or (was is not None and (was.timing.enabled, had_times) != (row.timing.enabled, has_times))
        if has and anew:
            draft.put_task(joins.counting_from_now(row, at_us))
        if had and anew:
            joins.end_pending(draft, name, "changed", at_us)
            drop_carried(draft, name)
        if has or (was is not None and _rhythm(was) != _rhythm(row)):
            moved.append(name)
    joins.keep_ends(draft, parents)
    return descent.fault(draft.tasks, draft.children, moved)


def _rhythm(row: TaskRow) -> tuple[Schedule | None, CalendarRule | None]:
    return row.timing.schedule, row.timing.calendar


def _fields_fault(draft: Draft, task: str, row: TaskRow) -> str | None:
    """Describe why params may not depend on a parent's result; None: they may, or do not."""
    needs = template_of(row.spec_packed)
    for parent, _ in needs.fields if needs is not None else ():
        if (before := draft.tasks.get(parent)) is not None and runs_on_each(before.spec_packed):
            return f"{task} takes fields of the result of {parent}, which runs on each member, and has a result on each"
    return None


@dataclass(frozen=True, slots=True)
class DeleteTask(Entry):
    """Delete a task, and cancel its runs: at once if no member holds them, else through the members that hold them.

    Refused if other tasks come after it, unless `with_children` says that these may stay without it.
    """

    task: str
    if_version: int | None = None
    with_children: bool = False


@applies(DeleteTask, code=10)
def unregister(draft: Draft, entry: DeleteTask) -> Result:
    """Delete a task, and cancel its runs, at once or through their holders."""
    row = draft.tasks.get(entry.task)
    if row is None:
        return no_such_task(entry.task)
    if (refusal := _other_version(row, entry.if_version, entry.task)) is not None:
        return refusal
    if (children := draft.children.get(entry.task)) and not entry.with_children:
        more = f" and {len(children) - 5} more" if len(children) > 5 else ""
        these = f"{', '.join(children[:5])}{more} {'comes' if len(children) == 1 else 'come'} after it"
        return refused("exists", f"{these}: change or delete these first, or leave them without it (with_children)")
    cancel_backfills_of(draft, entry.task, entry.at_us)
    draft.tasks = draft.tasks.delete(entry.task)
    draft.children = descent.with_child(draft.children, entry.task, row, None)
    joins.forget_task(draft, entry.task, entry.at_us)
    if waits_at_times(row.spec_packed):
        joins.keep_ends(draft, {one.task for one in after_of(row.spec_packed)})
    draft.specs_bytes -= len(row.spec_packed)
    draft.requests_bytes -= requests_bytes(row)
    draft.touched.add(entry.task)
    draft.placing_changed = True
    with draft.gathered(entry.task):
        for run in draft.active(entry.task):
            stop_run(draft, run, "deleted", entry.at_us)
    keep_each(draft, entry.task)
    return DONE


@dataclass(frozen=True, slots=True)
class Pause(Entry):
    """Pause a task (`on`): no occurrence falls due. Or resume it (not `on`): its schedule counts from now."""

    task: str
    on: bool


@applies(Pause, code=11)
def set_paused(draft: Draft, entry: Pause) -> Result:
    """Pause a task, or resume it: its schedule then counts from now."""
    row = draft.tasks.get(entry.task)
    if row is None:
        return no_such_task(entry.task)
    if row.paused == entry.on:
        return DONE
    row = replace(row, paused=entry.on)
    if not entry.on:
        row = counting_from(row, entry.at_us, continuous=row.spec.continuous)
        row = joins.counting_from_now(row, entry.at_us) if after_of(row.spec_packed) else row
    draft.put_task(row)
    if entry.on:
        joins.end_pending(draft, entry.task, "paused", entry.at_us)
    return DONE


def no_such_task(task: str) -> Result:
    """Make the refusal for an unknown task."""
    return refused("no-such-task", f"there is no task {task!r}")


def _other_version(row: TaskRow | None, if_version: int | None, task: str) -> Result | None:
    present = 0 if row is None else row.version
    if if_version is None or if_version == present:
        return None
    if row is None:
        return refused("version", f"{task} is not there, so it has no version {if_version}")
    if if_version == 0:
        return refused("version", f"{task} is there already, in version {present}")
    return refused("version", f"{task} is in version {present}, not {if_version}: read it again, then change it")


def _after(
    draft: Draft, row: TaskRow | None, put: Put, fields: dict[str, Any], at_us: int
) -> tuple[TaskRow, bool] | str:
    """Return the row with these `fields`, and whether the task's run must end for them to take effect; or the fault.

    If only the params differ from the row's, the other fields are not checked again. This is the most frequent change,
    and a starting member applies tens of thousands of them.
    """
    if row is not None and row.spec_packed == put.spec_packed:
        return row, False
    if row is not None:
        before = msgpack.unpackb(row.spec_packed)
        if same_spec(before, fields):
            return row, False
        if _only_params_change(before, fields):
            return _next(row, put), False
    spec = _spec(fields)
    if isinstance(spec, str):
        return spec
    return (_created(draft, put, spec, at_us), False) if row is None else _changed(draft, row, put, spec, at_us)


def _only_params_change(before: dict[str, Any], fields: dict[str, Any]) -> bool:
    """Whether only the params change, and the task is not continuous: else its run would have to end."""
    alike = isinstance(fields.get("params"), dict) and {**before, "params": None} == {**fields, "params": None}
    return alike and "continuous" not in (before.get("schedule") or ())


def _next(row: TaskRow, put: Put) -> TaskRow:
    return replace(row, spec_packed=put.spec_packed, version=row.version + 1)


def _created(draft: Draft, put: Put, spec: Spec, at_us: int) -> TaskRow:
    draft.placing_changed = True
    draft.orders += 1
    since_us, through_us = _counted_from(at_us, 0, continuous=spec.continuous)
    return TaskRow(
        spec_packed=put.spec_packed,
        placing=placing_of(spec, None),
        order=draft.orders,
        version=1,
        registered_at_us=at_us,
        since_us=since_us,
        through_us=through_us,
    )


def _changed(draft: Draft, row: TaskRow, put: Put, spec: Spec, at_us: int) -> tuple[TaskRow, bool]:
    """Return the changed row, and whether the task's run must end for the change to take effect.

    The run of a continuous task must end, because it does not end by itself.
    """
    before = read_spec(row.spec_packed)
    if _differ(before, spec, PLACING):
        draft.placing_changed = True
    changed = replace(_next(row, put), placing=placing_of(spec, row.placing.incumbent if spec.sticky else None))
    if _differ(before, spec, ("schedule", "enabled", "calendar")):
        changed = counting_from(changed, at_us, continuous=spec.continuous)
    return changed, before.continuous and _differ(before, spec, _OF_RUNS)


def _differ(one: Spec, other: Spec, names: tuple[str, ...]) -> bool:
    return any(getattr(one, name) != getattr(other, name) for name in names)


def counting_from(row: TaskRow, at_us: int, *, continuous: bool) -> TaskRow:
    """Return the row with its schedule counting from `at_us`, so that earlier undecided occurrences are dropped.

    `through_us` never goes back, however the proposers' clocks differ: a claimed occurrence must not be claimed
    again.
    """
    since_us, through_us = _counted_from(at_us, row.through_us, continuous=continuous)
    return replace(row, since_us=since_us, through_us=through_us, series=None)


def _counted_from(at_us: int, through_us: int, *, continuous: bool) -> tuple[int, int]:
    """Return `since_us` and `through_us` of a schedule that counts from `at_us`, and was decided up to `through_us`."""
    return (max(at_us, through_us + 1), through_us) if continuous else (at_us, max(at_us, through_us))


def placing_of(spec: Spec, incumbent: str | None) -> Task:
    """Return the part of a spec that placement needs."""
    fields = {name: getattr(spec, name) for name in _PLACED_BY}
    fields["group"] = tuple(sorted(spec.group.items()))
    if spec.each:
        fields["weight"] = 0  # each member has a run of its own, so the owner, which makes the runs, bears no more
    return Task(
        name=spec.name, key64=_hashed(spec.name if spec.key is None else spec.key), incumbent=incumbent, **fields
    )


@lru_cache(maxsize=1024)
def _hashed(key: str) -> int:
    return key64(key)


def readable_spec(packed: bytes) -> Spec | str:
    """Unpack a spec. Returns a text that describes the fault if `packed` is not a valid spec.

    Only checks with the same result on every member are made here. Kinds, params, cron lines and time zones are checked
    before a spec is proposed.
    """
    fields = _fields(packed)
    return fields if isinstance(fields, str) else _spec(fields)


def _fields(packed: bytes) -> dict[str, Any] | str:
    """Unpack the fields of a spec. Returns a text with the fault if they are no table, or the params are not JSON."""
    try:
        fields = msgpack.unpackb(packed, max_bin_len=0, max_ext_len=0)  # JSON has no binary and no extension types
        if not isinstance(fields, dict):
            return "this is no task: not a table of fields"
        params = fields.get("params")
        if json_value(params) != params:  # only the params: the types of the other fields exclude NaN and infinity
            return "a spec holds only numbers that JSON has"
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        return f"this is no task: {error}"[:_FAULT_CHARS_MAX]
    return fields


def _spec(fields: dict[str, Any]) -> Spec | str:
    """Make a spec from these fields. Returns a text that describes the fault if they are invalid."""
    try:
        return accepted(fields)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors(include_url=False)]
        return f"this is no task: {'; '.join(faults)}"[:_FAULT_CHARS_MAX]
