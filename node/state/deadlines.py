"""The deadlines of tasks: when they are breached, and when they no longer are (docs/explanation/execution.md).

The leader proposes `Breached` when a deadline has passed (`node.duty.deadlines`). The end of a breach is not proposed:
it follows from the entry that causes it.

An occurrence is undecided until it is claimed, queued, skipped or missed. `apply` cannot compute due times that depend
on time zones, so it trusts the proposer's due times. It sees in the state whether an occurrence is undecided.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from node.state.copying import replace
from node.state.draft import DONE, Draft, refused
from node.state.entries import Entry, applies
from node.state.registry import no_such_task
from node.state.value import Breach, EndedRun, PendingJoin, Result, Run, State, TaskRow
from tasks.definition.deadlines import DeadlineName, Deadlines, deadlines_of
from tasks.definition.policy import rest_s
from tasks.definition.run import RunState
from tasks.definition.schedule import may_be_due

RULES_JUDGED: Final = 2
"""From these rules on (`Lead.rules`), deadlines are judged."""

RULES_NAMESAKE: Final = 3
"""From these rules on, runs of a deleted task do not count for a task that was registered later under the same name."""

RULES_ANEW: Final = 4
"""From these rules on, an occurrence is no longer late once its schedule has been changed or resumed."""

RULES_BEHIND: Final = 10
"""From these rules on, a breach goes on although an entry from a clock that is behind brings an earlier failure."""

_FAILED: Final[frozenset[RunState]] = frozenset(
    {"failed", "timed_out", "abandoned", "upstream_failed", "upstream_late"}
)


@dataclass(frozen=True, slots=True)
class Breached(Entry):
    """A deadline of a task has passed. Refused if the state says otherwise.

    The leader names `due_us` and `undecided`. `apply` never evaluates a schedule, since time zones depend on the
    machine.
    """

    #: The task's name.
    task: str
    #: The deadline that has passed.
    deadline: DeadlineName
    #: The due time that the deadline counts from, as in `Breach`.
    due_us: int
    #: Whether an undecided occurrence is due at `due_us`.
    undecided: bool = False


@applies(Breached, code=23)
def breached(draft: Draft, entry: Breached) -> Result:
    """Note that a deadline has passed, by the clock of the proposer. Refused if the state says otherwise."""
    row = draft.tasks.get(entry.task)
    if row is None:
        return no_such_task(entry.task)
    limits = deadlines_of(row.spec_packed)
    limit_us = limits.limit_us(entry.deadline) if limits is not None and row.judged_us else None
    if limit_us is None:
        return refused("not-due", f"{entry.deadline} of {entry.task} is not judged")
    if any(one.deadline == entry.deadline for one in row.breaches):
        return refused("exists", f"{entry.deadline} of {entry.task} is breached already")
    since_us = from_us(row, entry.due_us) + limit_us
    joins = draft.joins.get(entry.task, ())
    known = entry.due_us in open_us(row, draft.overlapping(entry.task), entry.deadline, joins)
    breach = Breach(entry.deadline, entry.due_us, since_us, entry.undecided and not known)
    if entry.at_us < since_us or not (known or _undecided(draft, row, breach)):
        return refused("not-due", f"{entry.deadline} of {entry.task} has been met, or its time has not come")
    draft.breach(row, breach, entry.at_us)
    return DONE


def follow(draft: Draft, before: State, at_us: int) -> None:
    """Update the deadlines of the tasks that an accepted entry has touched."""
    if draft.lead.rules < RULES_JUDGED:
        return
    if before.lead.rules < RULES_JUDGED:  # once in the life of a cluster
        draft.touched.update(task for task, row in draft.tasks.items() if deadlines_of(row.spec_packed) is not None)
    # Sorted, because the order of a set differs between members.
    for task in sorted(draft.touched):
        row, was = draft.tasks.get(task), before.tasks.get(task)
        if row is None:
            for breach in () if was is None else was.breaches:
                draft.recover(task, breach, "dropped", at_us)
            continue
        limits = deadlines_of(row.spec_packed)
        if limits is not None or row.judged_us:
            judged = limits if limits is not None and not row.paused and row.timing.enabled else None
            _follow(draft, row, judged, was, at_us)


def _follow(draft: Draft, row: TaskRow, limits: Deadlines | None, was: TaskRow | None, at_us: int) -> None:
    """Update one task. `limits`: its deadlines, None if they are not judged. `was`: its row before the entry."""
    name = row.placing.name
    after = _judged(row, at_us) if limits is not None else replace(row, judged_us=0, unmet_us=None)
    if after.judged_us:
        after = replace(after, unmet_us=_unmet_us(draft, after))
    if after != row:
        draft.put_task(after)
    if not row.breaches:
        return
    earlier = deadlines_of(was.spec_packed) if was is not None else None
    # Compare the rows, not `at_us`: a delayed entry, or one from a clock that is behind, has an early time stamp.
    anew = draft.lead.rules >= RULES_ANEW and was is not None and was.since_us != row.since_us
    for breach in row.breaches:
        limit_us = limits and limits.limit_us(breach.deadline)
        if not limit_us or earlier is None or limit_us != earlier.limit_us(breach.deadline):
            draft.recover(name, breach, "dropped", at_us)
        elif anew or not _undecided(draft, after, breach):
            dues_us = list(open_us(after, draft.overlapping(name), breach.deadline, draft.joins.get(name, ())))
            # An entry from a clock that is behind makes nothing less late than the breach is.
            by_us = max(at_us, breach.since_us) if draft.lead.rules >= RULES_BEHIND else at_us
            late_us = [due_us for due_us in dues_us if from_us(after, due_us) + limit_us <= by_us]
            if breach.due_us in dues_us:
                continue
            if late_us:
                _goes_on(draft, name, breach, min(late_us))
            else:
                draft.recover(name, breach, "met" if _met(draft, name, breach) else "dropped", at_us)


def _met(draft: Draft, task: str, breach: Breach) -> bool:
    """Whether the breach ends because a late run began or succeeded. False: the run was passed over or cancelled."""
    if breach.deadline == "start_within":
        return any(due_of(run, "start_within") == breach.due_us and _begun(run) for run in draft.overlapping(task))
    return any(one.run.task == task and one.state == "succeeded" and not one.run.backfill for one in draft.ended)


def _begun(run: Run) -> bool:
    return any(attempt.started_at_us is not None for attempt in run.attempts)


def _goes_on(draft: Draft, task: str, breach: Breach, due_us: int) -> None:
    """Keep the deadline breached on account of another late occurrence, which was due at `due_us`."""
    row = draft.tasks[task]
    breaches = tuple(replace(one, due_us=due_us, undecided=False) if one is breach else one for one in row.breaches)
    draft.put_task(replace(row, breaches=breaches))


def _judged(row: TaskRow, at_us: int) -> TaskRow:
    return row if row.judged_us else replace(row, judged_us=max(1, at_us), unmet_us=None)


def _unmet_us(draft: Draft, row: TaskRow) -> int | None:
    """Return the new `TaskRow.unmet_us`, after the runs that the entry ended."""
    task, unmet_us = row.placing.name, row.unmet_us
    if (each := draft.each.get(task)) is not None and each.parts:
        # None in the row: its deadlines are judged anew, so that what failed before does not count.
        known = [None if unmet_us is None else part.unmet_us for part in each.parts]
        of: dict[str, list[EndedRun]] = {}
        for one in _judged_ends(draft, task):
            for member in [one.run.member] if one.run.member else [part.member for part in each.parts]:
                of.setdefault(member, []).append(one)
        parts = [
            replace(part, unmet_us=_unmet_after(was_us, of.get(part.member, ())))
            for part, was_us in zip(each.parts, known, strict=True)
        ]
        if tuple(parts) != each.parts:
            draft.each = draft.each.set(task, replace(each, parts=tuple(parts)))
        return min((part.unmet_us for part in parts if part.unmet_us is not None), default=None)
    return _unmet_after(unmet_us, _judged_ends(draft, task))


def _judged_ends(draft: Draft, task: str) -> Iterator[EndedRun]:
    """Yield the runs of a task that the entry ended, and by whose ends its deadlines are judged."""
    for one in draft.ended:
        if one.run.task != task or one.run.action or one.run.backfill or one.series is not None:
            continue
        if one.run.cancelling != "deleted" or draft.lead.rules < RULES_NAMESAKE:
            yield one


def _unmet_after(unmet_us: int | None, ended: Iterable[EndedRun]) -> int | None:
    for one in ended:
        due_us = due_of(one.run, "finish_within")
        if one.state in _FAILED:
            unmet_us = due_us if unmet_us is None else min(unmet_us, due_us)
        elif one.state == "succeeded" and unmet_us is not None and due_us >= unmet_us:
            unmet_us = None
    return unmet_us


def late_members(draft: Draft, task: str, breach: Breach) -> list[str]:
    """Return the members on account of which a deadline of a task with `each` is breached, sorted; of others, none."""
    each = draft.each.get(task)
    if each is None:
        return []
    found = {
        run.member
        for run in draft.overlapping(task)
        if due_of(run, breach.deadline) == breach.due_us and (breach.deadline != "start_within" or not _begun(run))
    }
    if breach.deadline == "finish_within":
        found |= {part.member for part in each.parts if part.unmet_us == breach.due_us}
    if breach.deadline == "success_every":
        found = {part.member for part in each.parts if (part.succeeded_at_us or part.since_us) <= breach.due_us}
    return sorted(found - {""})


def due_of(run: Run, deadline: DeadlineName) -> int:
    """Return the time from which a deadline of a run counts: its due time, or its creation if it was started by hand.

    A task that is due after others is to begin from when they have ended on, and to succeed from the time on from which
    they were due.
    """
    late = run.trigger == "manual" or (run.trigger == "after" and (deadline == "start_within" or run.generation))
    return run.created_at_us if late else run.fire_at_us


def from_us(row: TaskRow, due_us: int) -> int:
    """Return the time from which a deadline counts for an occurrence or a run that was due at `due_us`.

    It is never earlier than the task's resumption, nor, for a continuous task, than the end of the pause after a
    failure.
    """
    counted_us = max(due_us, row.judged_us)
    if due_us == row.since_us and row.last is not None and row.timing.continuous:
        counted_us += round(rest_s(row.timing.retry, row.last.state) * 1_000_000)
    return counted_us


def open_us(
    row: TaskRow, runs: Iterable[Run], deadline: DeadlineName, joins: Iterable[PendingJoin] = ()
) -> Iterator[int]:
    """Yield the due times of the runs that have not met the deadline yet.

    `runs` are the task's active runs without actions, and `joins` what waits for its parents; of a task with a schedule
    these were due, too. Undecided occurrences are left out, because the state does not hold them.
    """
    match deadline:
        case "start_within":
            yield from (due_of(run, deadline) for run in runs if not _begun(run))
        case "finish_within":
            yield from (due_of(run, deadline) for run in runs)
            yield from (join.nominal_us for join in joins if join.times)
            if row.unmet_us is not None:
                yield row.unmet_us
        case "success_every":
            yield max(row.judged_us, row.succeeded_at_us or 0)


def _undecided(draft: Draft, row: TaskRow, breach: Breach) -> bool:
    """Whether a breach is about an occurrence that is still undecided."""
    if not breach.undecided or breach.deadline == "success_every" or row.timing.schedule is None:
        return False
    if breach.due_us <= row.through_us:
        return False
    if draft.lead.rules < RULES_ANEW:
        return breach.due_us == row.since_us or not row.timing.continuous
    return may_be_due(row.timing, row.since_us, breach.due_us)
