"""Tasks that come after others at times of their own: an occurrence waits for the latest one of each task before it.

`apply` never evaluates a schedule. So the task's owner says, once its own time has come, which occurrence of each
parent is the latest at that time or before it (`AwaitParents`). That entry decides on the occurrence if all of them
have ended, by their kept ends (`State.past_ends`); else the entry that ends the last of them does, as for all tasks
that come after others (`node.state.joins`). The wait has an end, which the leader proposes (`SettleLate`).
"""

from dataclasses import dataclass

from node.state.copying import replace
from node.state.draft import DONE, Draft, refused
from node.state.entries import Entry, applies
from node.state.joins import (
    decide_join,
    end_join,
    find_join,
    make_room,
    missing_parents,
    open_parents,
    past_end,
    put_join,
    some_names,
    with_ends,
)
from node.state.occurrences import due_fault
from node.state.registry import no_such_task
from node.state.value import OccurrenceEnd, OccurrenceId, PendingJoin, Result
from tasks.definition.spec import after_of


@dataclass(frozen=True, slots=True)
class AwaitParents(Entry):
    """An occurrence of a task with a schedule is due, and waits for these occurrences of the tasks before it."""

    #: The task's name.
    task: str
    #: The time of the occurrence, in microseconds since the epoch.
    nominal_us: int
    #: Each task before it, and the time of its latest occurrence at `nominal_us` or before; 0: it has had none.
    times: tuple[tuple[str, int], ...]


@applies(AwaitParents, code=31)
def await_parents(draft: Draft, entry: AwaitParents) -> Result:
    """Let an occurrence wait for its parents, or decide on it if all of them have ended."""
    row = draft.tasks.get(entry.task)
    if row is None:
        return no_such_task(entry.task)
    spec = row.spec
    if (refusal := due_fault(row, spec, (entry.nominal_us,), entry.at_us, begins=False)) is not None:
        return refusal
    if entry.nominal_us <= row.through_us:
        return refused("occurrence-taken", "this occurrence, or a later one, waits already, or has been decided")
    after = after_of(row.spec_packed)
    if sorted(name for name, _ in entry.times) != sorted(one.task for one in after) or not after:
        return refused("stale", f"{entry.task} comes after other tasks than these: its definition has changed")
    if any(not 0 <= time_us <= entry.nominal_us for _, time_us in entry.times):
        return refused("invalid", "an occurrence waits for what was due at its own time, or before it")
    row = replace(row, through_us=entry.nominal_us, series=None)
    draft.put_task(row)
    none = tuple(OccurrenceEnd(name, 0, 0, "skipped") for name, time_us in entry.times if not time_us)
    join = PendingJoin(
        task=entry.task,
        nominal_us=entry.nominal_us,
        ends=none,
        times=entry.times,
        until_us=entry.at_us + round(spec.wait_s * 1_000_000),
    )
    known = [one for one in missing_parents(draft, row, join) if past_end(draft.past_ends, join, one.task) is not None]
    join = with_ends(draft.past_ends, join, known)
    if open_parents(draft, draft.past_ends, row, join) is None:
        missing = missing_parents(draft, row, join)
        decide_join(draft, row, with_ends(draft.past_ends, join, missing), entry.at_us)
    else:
        put_join(draft, join, join)
        make_room(draft, entry.task, entry.at_us)
    return DONE


@dataclass(frozen=True, slots=True)
class SettleLate(Entry):
    """End an occurrence that has waited for its parents for as long as its task's `wait_s` allows."""

    task: str
    nominal_us: int


@applies(SettleLate, code=32)
def settle_late(draft: Draft, entry: SettleLate) -> Result:
    """End an occurrence whose parents are too late. Refused if its time is not over, or its parents have ended."""
    row, occurrence = draft.tasks.get(entry.task), OccurrenceId(entry.nominal_us)
    join = find_join(draft.joins, entry.task, occurrence)
    if row is None or join is None or not join.times:
        return refused("stale", f"no occurrence of {entry.task!r} waits from {entry.nominal_us}")
    if entry.at_us < join.until_us:
        return refused("not-due", f"{entry.task} waits for its parents until {join.until_us}")
    late = open_parents(draft, draft.past_ends, row, join)
    if late is None:
        return refused("not-due", f"the parents of {entry.task} have ended, which decides on it")
    put_join(draft, join, None)
    waited_s = (join.until_us - join.nominal_us) // 1_000_000
    why = f"{some_names(late)} had not ended {waited_s} s after it was due"
    end_join(draft, entry.task, occurrence, "upstream_late", why, entry.at_us)
    return DONE
