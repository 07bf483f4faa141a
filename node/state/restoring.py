"""The entry that restores the saved tasks of another cluster (`node.state.saved`)."""

from dataclasses import dataclass
from typing import Any, Final

from node.state import joins, settings
from node.state.bounds import requests_bytes
from node.state.calendars import calendars_fault
from node.state.copying import replace
from node.state.descent import with_child
from node.state.draft import Draft, refused
from node.state.each import settle_each
from node.state.entries import Entry, applies
from node.state.pools import needs_fault
from node.state.registry import counting_from, placing_of, readable_spec, template_fault
from node.state.saved import OF_THE_ROW, Kept
from node.state.settings import ChangeSettings
from node.state.value import Result, TaskRow
from tasks.definition.spec import Spec, waits_at_times

COUNT_MAX: Final = 2**62


@dataclass(frozen=True, slots=True)
class RestoreTasks(Entry):
    """Restore a part of the saved tasks of another cluster, all or none."""

    #: How many tasks were restored from the same file before. Refused if the cluster has another number of tasks.
    beside: int
    #: The last token of the saved cluster: tokens that are given from now on are greater.
    token: int
    #: The last registration number of the saved cluster: numbers that are given from now on are greater.
    orders: int
    #: The saved settings, by their names in `Settings`; may be empty.
    settings: dict[str, Any]
    #: The saved tasks of this part.
    tasks: tuple[Kept, ...]


@applies(RestoreTasks, code=21)
def restore_tasks(draft: Draft, entry: RestoreTasks) -> Result:
    """Restore settings, and tasks with their registration number, version and schedule. Result: `{"tasks"}`.

    Placement depends on the registration number, so no other task may have it.
    """
    if len(draft.tasks) != entry.beside:
        return refused(
            "exists", f"there are {len(draft.tasks)} tasks here, not {entry.beside}: some are not of that file"
        )
    if not max(entry.token, entry.orders) < COUNT_MAX:
        return refused("invalid", "these are no counts of a cluster's")
    # First the settings, because the tasks use its pools.
    changed = settings.change(draft, ChangeSettings(entry.at_us, entry.settings))
    if not changed.ok:
        return changed
    taken = {row.order for row in draft.tasks.values()}
    parents: set[str] = set()
    on_each: list[str] = []
    with draft.tasks.mutate() as tasks:
        for kept in entry.tasks:
            spec = readable_spec(kept.spec_packed)
            if isinstance(spec, str):
                return refused("invalid", spec)
            if spec.name in tasks:
                return refused("exists", f"there is a task {spec.name!r} already")
            if (why := needs_fault(draft, spec.name, kept.spec_packed, saved=True)) is not None:
                return refused("invalid", why)
            if (why := calendars_fault(draft, spec.name, kept.spec_packed)) is not None:
                return refused("invalid", why)
            if (why := template_fault(draft, spec.name, kept.spec_packed)) is not None:
                return refused("invalid", why)
            if kept.order in taken or not 0 < kept.order <= entry.orders or kept.version < 1:
                return refused("invalid", f"{spec.name}: its registration number is another task's, or none")
            taken.add(kept.order)
            tasks[spec.name] = row = _row(kept, spec, entry.at_us)
            draft.specs_bytes += len(row.spec_packed)
            draft.requests_bytes += requests_bytes(row)
            draft.touched.add(spec.name)
            if spec.each:
                on_each.append(spec.name)
            if spec.after:
                draft.children = with_child(draft.children, spec.name, None, row)
            if waits_at_times(row.spec_packed):
                parents.update(one.task for one in spec.after)
        draft.tasks = tasks.finish()
    joins.keep_ends(draft, parents)
    if (why := settle_each(draft, on_each, entry.at_us)) is not None:
        return refused("invalid", why)
    draft.orders = max(draft.orders, entry.orders)
    draft.token = max(draft.token, entry.token)
    draft.placing_changed = True
    return Result("ok", {"tasks": len(entry.tasks)})


def _row(kept: Kept, spec: Spec, at_us: int) -> TaskRow:
    row = TaskRow(
        placing=placing_of(spec, kept.incumbent if spec.sticky else None),
        **{name: getattr(kept, name) for name in OF_THE_ROW},
    )
    if spec.after:
        return replace(row, after_us=at_us)  # the occurrences of the other cluster do not end here
    if spec.continuous and row.through_us >= row.since_us:
        # The task's run was under way in the other cluster and will not end here: the next run is due now.
        return counting_from(row, at_us, continuous=True)
    return row
