"""The entries for occurrences of tasks with `each` (`node.state.each`): their runs are made, or missed."""

from dataclasses import dataclass

from node.state.copying import replace
from node.state.draft import DONE, Draft, refused
from node.state.each import begin_on_each, is_unbegun, members_of, miss_run
from node.state.entries import Entry, applies
from node.state.occurrences import due_fault, occurrence
from node.state.registry import no_such_task
from node.state.value import Member, Result, Run, Settings, TaskRow
from tasks.definition.policy import lateness_s


@dataclass(frozen=True, slots=True)
class FanOut(Entry):
    """Make the runs of an occurrence of a task with `each`: one for each member that takes part as this is applied."""

    #: The task's name.
    task: str
    #: The time of the occurrence, in microseconds since the epoch.
    fire_at_us: int


@applies(FanOut, code=38)
def fan_out(draft: Draft, entry: FanOut) -> Result:
    """Make a run of an occurrence for each member that takes part. Each waits for its member to claim it."""
    row = draft.tasks.get(entry.task)
    if row is None:
        return no_such_task(entry.task)
    if entry.task not in draft.each:
        return refused("stale", f"{entry.task} does not run on each member: its definition has changed")
    if (refusal := due_fault(row, row.spec, (entry.fire_at_us,), entry.at_us, begins=False)) is not None:
        return refusal
    if row.spec.after:
        return refused("not-due", f"{entry.task} comes after other tasks, so its occurrences wait for those first")
    if entry.fire_at_us <= row.through_us:
        return refused("occurrence-taken", "this occurrence, or a later one, has been decided")
    members = members_of(draft, row)
    if not members:
        return refused("not-up", f"no member has the labels of {entry.task} and offers its kind")
    run = occurrence(draft, row, entry.fire_at_us, entry.at_us)
    row = replace(row, through_us=run.fire_at_us, series=None)
    draft.put_task(row)
    begin_on_each(draft, row, run, members, entry.at_us)
    return DONE


@dataclass(frozen=True, slots=True)
class MissRun(Entry):
    """End a run of a task with `each` as missed: its member was not up in time, and `catch_up` is `skip`."""

    task: str
    run_id: str


@applies(MissRun, code=39)
def miss_late(draft: Draft, entry: MissRun) -> Result:
    """End a run that its member was not there for in time. Refused if its time is not over, or the member was."""
    row, run = draft.tasks.get(entry.task), draft.runs.get(entry.run_id)
    if row is None:
        return no_such_task(entry.task)
    if run is None or run.task != entry.task:
        return refused("no-such-run", f"no run {entry.run_id!r} of {entry.task} is active: it has ended, or never was")
    from_us = missed_from_us(draft.settings, row, run, draft.members.get(run.member))
    if from_us is None or entry.at_us < from_us:
        return refused("not-due", f"{entry.run_id} waits for its member")
    miss_run(draft, run, entry.at_us)
    return DONE


def missed_from_us(settings: Settings, row: TaskRow, run: Run, member: Member | None) -> int | None:
    """Return from when on a run of a member is missed, because the member was not up in time; None: it waits."""
    if not is_unbegun(run) or row.spec.catch_up != "skip":
        return None
    late_s = lateness_s(settings.window_s + settings.lease_s + settings.margin_s)
    until_us = run.created_at_us + round(late_s * 1_000_000)
    in_time = member is not None and member.status == "up" and member.since_us <= until_us
    return None if in_time else until_us
