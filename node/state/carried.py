"""Fields of parents' results, for tasks whose params name them (`{{ after.TASK.FIELD }}`).

The entry that ends a parent's run copies the fields that the tasks directly after it name, and no other; the entry in
which such a task is due puts them into its run, whose owner makes the params of them. If something is missing, or too
much, the run ends `failed` in that entry: it would find nothing else later.
"""

from typing import Any, Final

import msgpack

from node.state.bounds import RUNS_BYTES_MAX
from node.state.copying import replace
from node.state.draft import Draft
from node.state.value import CarriedFields, OccurrenceId, PendingJoin, Run, TaskRow
from tasks.definition.spec import waits_at_times
from tasks.definition.template import FIELDS_BYTES_MAX, template_of

CARRIED_MAX: Final = 100
"""For how many occurrences of each parent a task's fields are kept: as many as may wait."""

_ENTRY_BYTES: Final = 64


def carried_bytes(one: CarriedFields) -> int:
    """Return the size of kept fields."""
    return _ENTRY_BYTES + len(one.packed)


def carry_fields(draft: Draft) -> None:
    """Keep, of the results of the runs that this entry has ended, what the tasks directly after them need."""
    for ended in draft.ended:
        task = ended.run.task
        if ended.result is None or ended.run.member or (children := draft.children.get(task)) is None:
            continue  # the runs of a task with `each` have a result each, of which none is the task's
        occurrence = ended.run.occurrence
        for child in children if occurrence is not None and ended.run.cancelling != "deleted" else ():
            row = draft.tasks.get(child)
            if row is None or (needs := template_of(row.spec_packed)) is None:
                continue
            names = needs.fields_of(task)
            if names and occurrence is not None and _is_awaited(draft, row, occurrence):
                _keep(draft, child, task, occurrence, {one: ended.result[one] for one in names if one in ended.result})


def _is_awaited(draft: Draft, row: TaskRow, occurrence: OccurrenceId) -> bool:
    if occurrence.generation:
        rerun = draft.reruns.get(occurrence.generation)
        return rerun is not None and row.placing.name in rerun.undecided
    return occurrence.nominal_us > row.after_us or waits_at_times(row.spec_packed)


def _keep(draft: Draft, child: str, parent: str, occurrence: OccurrenceId, fields: dict[str, Any]) -> None:
    packed, why = bytes(msgpack.packb(fields)), ""
    if len(packed) > FIELDS_BYTES_MAX:
        packed, why = b"", f"they have {len(packed)} bytes, and {FIELDS_BYTES_MAX} at most are copied"
    elif draft.runs_bytes + _ENTRY_BYTES + len(packed) > RUNS_BYTES_MAX:
        packed, why = b"", "the active runs of all tasks left no room for them"
    new = CarriedFields(parent, *occurrence, packed, why)
    others = [one for one in draft.carried.get(child, ()) if not _is_of(one, parent, occurrence)]
    of_parent = [one for one in others if one.parent == parent]
    if len(of_parent) >= CARRIED_MAX:
        others.remove(min(of_parent, key=lambda one: (one.nominal_us, one.generation)))
    _put(draft, child, (*others, new))


def _is_of(one: CarriedFields, parent: str, occurrence: OccurrenceId) -> bool:
    return one.parent == parent and (one.nominal_us, one.generation) == occurrence


def _put(draft: Draft, child: str, kept: tuple[CarriedFields, ...]) -> None:
    before = draft.carried.get(child, ())
    draft.runs_bytes += sum(map(carried_bytes, kept)) - sum(map(carried_bytes, before))
    if kept:
        draft.carried = draft.carried.set(child, kept)
    elif before:
        draft.carried = draft.carried.delete(child)


def drop_carried(draft: Draft, task: str, occurrence: OccurrenceId | None = None) -> None:
    """Drop what is kept for an occurrence of a task, which is decided; None: for all but reruns."""
    if (kept := draft.carried.get(task)) is None:
        return
    if occurrence is not None:
        _put(draft, task, tuple(one for one in kept if (one.nominal_us, one.generation) != occurrence))
    else:
        _put(draft, task, tuple(one for one in kept if one.generation))


def forget_carried(draft: Draft, task: str) -> None:
    """Drop all that is kept for a task that was deleted."""
    if task in draft.carried:
        _put(draft, task, ())


def with_fields(draft: Draft, run: Run, join: PendingJoin) -> Run | str:
    """Return the run of a join that is due, with what its params need of its parents' results; or what is missing."""
    needs = template_of(run.spec_packed)
    if needs is None or not needs.fields:
        return run
    fields: dict[str, Any] = {}
    for parent, names in needs.fields:
        wanted = join.wanted(parent)
        kept = next((one for one in draft.carried.get(run.task, ()) if _is_of(one, parent, wanted)), None)
        if kept is not None and kept.why:
            return f"the fields of {parent} that its params need are not there: {kept.why}"
        found: dict[str, Any] = {} if kept is None else msgpack.unpackb(kept.packed)
        if (missing := next((name for name in names if name not in found), None)) is not None:
            return (
                f"its params need {{{{ after.{parent}.{missing} }}}}, and {parent} has left no such field for this run"
            )
        fields[parent] = {name: found[name] for name in names}
    size = len(msgpack.packb(fields))
    if size > FIELDS_BYTES_MAX:
        return f"its params need {size} bytes of its parents' results, and {FIELDS_BYTES_MAX} at most are copied"
    return replace(run, fields=fields, params_bytes=size)
