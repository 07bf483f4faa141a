"""Tasks that are due after others: an occurrence is decided in the entry that ends its last parent.

An occurrence is a time, which a task shares with all that descend from it, and the number of a rerun (0: none). The end
of a task's occurrence is told to the tasks directly after it, in the same entry: where it was the last parent, the
occurrence is due at once, as a waiting run, or ends without a run. Such an end is told in turn, but not in this entry,
whose work would have no bound: it is kept in `State.ends`, and the leader passes such ends on in portions (`PassOn`).

A pending join is decided once. Its parents end an occurrence once each; a parent that cannot end it any more, because
it was paused, changed or deleted, counts as skipped once the leader proposes `SettleJoin`, and the join is kept.

The joins of a task that has a schedule, too, are made by its owner (`node.state.awaiting`), and each waits for parents'
occurrences of other times. What of it an end leaves over, the leader settles.
"""

from bisect import insort
from dataclasses import dataclass
from typing import Final

from immutables import Map

from node.state.attempts import stop_run
from node.state.backfill import with_end_of
from node.state.bounds import no_room
from node.state.carried import drop_carried, forget_carried, with_fields
from node.state.copying import replace
from node.state.descent import Children, Family, may_end, with_descendants
from node.state.draft import DONE, Draft, refused, stem
from node.state.each import begin_on_each, members_of
from node.state.entries import Entry, applies
from node.state.value import OccurrenceEnd, OccurrenceId, PendingJoin, Rerun, Result, Run, TaskRow
from tasks.definition.after import Consequence, consequence, end_of
from tasks.definition.policy import KEPT
from tasks.definition.run import RunState
from tasks.definition.spec import After, after_of, waits_at_times

JOINS_MAX: Final = 100
"""How many occurrences of one task may wait for its parents. With one more, the oldest ends."""

RERUN_MAX: Final = 1000
"""The most tasks that are started together by hand."""

RERUNS_MAX: Final = 100
"""How many reruns may be under way."""

TOLD_AT_ONCE: Final = 128
"""How many tasks are told of ends in one entry, before the rest is left to the next one."""

_NAMED_MAX: Final = 5


Joins = Map[str, tuple[PendingJoin, ...]]
PastEnds = Map[str, tuple[OccurrenceEnd, ...]]


@dataclass(frozen=True, slots=True)
class PassOn(Entry):
    """Tell the tasks directly after others of ends that are kept in `State.ends`, from the one numbered `first` on."""

    first: int


@applies(PassOn, code=29)
def pass_on(draft: Draft, entry: PassOn) -> Result:
    """Pass on kept ends, as many as one entry may. Result: `{"passed_on"}`."""
    if entry.first != draft.next_end - len(draft.ends) or not draft.ends:
        return refused("stale", "these ends have been passed on")
    number, left = entry.first, TOLD_AT_ONCE
    while left > 0 and (end := draft.ends.get(number)) is not None:
        draft.ends = draft.ends.delete(number)
        left -= 1 + _tell(draft, end, entry.at_us)
        number += 1
    return Result("ok", {"passed_on": number - entry.first})


@dataclass(frozen=True, slots=True)
class SettleJoin(Entry):
    """Decide on an occurrence whose missing parents cannot end it any more. They count as skipped."""

    task: str
    nominal_us: int
    generation: int = 0


@applies(SettleJoin, code=30)
def settle_join(draft: Draft, entry: SettleJoin) -> Result:
    """Decide on an occurrence without the parents that cannot end it any more. Refused if one still may."""
    row, occurrence = draft.tasks.get(entry.task), OccurrenceId(entry.nominal_us, entry.generation)
    join = find_join(draft.joins, entry.task, occurrence)
    if row is None or join is None or (join.decided and not _is_over(draft, join)):
        return refused("stale", f"no occurrence of {entry.task!r} waits from {entry.nominal_us}")
    if not join.times and any((end.nominal_us, end.generation) == occurrence for end in draft.ends.values()):
        return refused("not-due", "some ends of this occurrence have not been passed on yet")
    if join.decided:
        put_join(draft, join, None)
        return DONE
    missing = missing_parents(draft, row, join)
    if (still := open_parents(draft, draft.past_ends, row, join)) is not None:
        return refused("not-due", f"{entry.task} waits for {still[0]}, which may still end")
    put_join(draft, join, replace(join, decided=True) if missing and not join.times else None)
    decide_join(draft, row, with_ends(draft.past_ends, join, missing), entry.at_us)
    return DONE


def past_end(past_ends: PastEnds, join: PendingJoin, parent: str) -> OccurrenceEnd | None:
    """Return how a parent ended the occurrence that a task with a schedule waits for; None: it is not kept."""
    if not join.times:
        return None
    nominal_us = join.wanted(parent).nominal_us
    return next((end for end in past_ends.get(parent, ()) if end.nominal_us == nominal_us), None)


def open_parents(state: Family, past_ends: PastEnds, row: TaskRow, join: PendingJoin) -> list[str] | None:
    """Return the parents that may still end what a join waits for; None: there are none, so that it can be decided."""
    names = [one.task for one in missing_parents(state, row, join) if past_end(past_ends, join, one.task) is None]
    # A parent may be decided on only once the end of its own parent has been passed on.
    ends = state.ends.values() if join.times else ()
    kept = {(end.task, end.nominal_us, end.generation) for end in ends}
    return [name for name in names if may_end(state, name, join.wanted(name), kept)] or None


def with_ends(past_ends: PastEnds, join: PendingJoin, missing: list[After]) -> PendingJoin:
    """Return a join with the ends of all parents, of which those `missing` have ended it before, or never will."""
    ends = [
        past_end(past_ends, join, one.task) or OccurrenceEnd(one.task, *join.wanted(one.task), "skipped")
        for one in missing
    ]
    return replace(join, ends=(*join.ends, *ends))


def begin_rerun(draft: Draft, task: str) -> str | None:
    """Note that a task is started by hand together with all tasks after it. Returns the fault if these are too many.

    The number of the rerun is that of the entry. The oldest reruns are given up where too many are under way. Those of
    backfills are not: the backfills bound them.
    """
    tasks = with_descendants(draft.children, [task], RERUN_MAX)
    if tasks is None:
        return f"more than {RERUN_MAX} tasks come after {task}, and one rerun has that many at most: rerun some of them"
    undecided = tuple(name for name in tasks if name != task)
    draft.reruns = draft.reruns.set(draft.index, Rerun(draft.index, tuple(tasks), undecided, tuple(tasks)))
    by_hand = [generation for generation, rerun in draft.reruns.items() if not rerun.backfill]
    if len(by_hand) > RERUNS_MAX:
        draft.reruns = draft.reruns.delete(min(by_hand))
    return None


def tell_children(draft: Draft, at_us: int) -> None:
    """Tell the tasks after those whose occurrences have ended in this entry. What is too much, or follows, is kept."""
    if not draft.ended_occurrences:
        return
    ended, draft.ended_occurrences = draft.ended_occurrences, []
    left = TOLD_AT_ONCE
    for one in ended:
        if left > 0:
            left -= _tell(draft, one, at_us)
        else:
            _keep(draft, one)
    for one in draft.ended_occurrences:
        _keep(draft, one)


def _keep(draft: Draft, end: OccurrenceEnd) -> None:
    draft.ends = draft.ends.set(draft.next_end, end)
    draft.next_end += 1


def _tell(draft: Draft, end: OccurrenceEnd, at_us: int) -> int:
    """Tell the tasks directly after one of the end of its occurrence. Returns how much work that was."""
    children = draft.children.get(end.task, ())
    told = len(children)
    # Only parents that keep their ends have children with schedules.
    kept = not end.generation and end.task in draft.past_ends
    for child in children:
        row = draft.tasks.get(child)
        if row is None:
            continue
        if kept and waits_at_times(row.spec_packed):
            told += _take_at_times(draft, row, end, at_us, TOLD_AT_ONCE - told)
        else:
            _take(draft, row, end, at_us)
    if (rerun := draft.reruns.get(end.generation)) is not None:
        _put_rerun(draft, replace(_with_end(draft, rerun, end), unended=_without(rerun.unended, end.task)), at_us)
    return told


def _with_end(draft: Draft, rerun: Rerun, end: OccurrenceEnd) -> Rerun:
    """Return an occurrence of a backfill after the end of one of its tasks. A failure is worse than all else."""
    if not rerun.backfill or end.end == "succeeded" or rerun.end == "failed":
        return rerun
    if end.end == "failed":
        return replace(rerun, end="failed", failed_run=end.run_id)
    return replace(rerun, end="skipped") if end.task == draft.backfills[rerun.backfill].task else rerun


def _without(tasks: tuple[str, ...], task: str) -> tuple[str, ...]:
    return tuple(name for name in tasks if name != task)


def _put_rerun(draft: Draft, rerun: Rerun, at_us: int) -> None:
    """Change a rerun, or remove it if all of its tasks have ended."""
    if rerun.unended:
        draft.reruns = draft.reruns.set(rerun.generation, rerun)
    else:
        end_rerun(draft, rerun, at_us)


def end_rerun(draft: Draft, rerun: Rerun, at_us: int) -> None:
    """Remove a rerun whose tasks have ended, or will not end it any more; a backfill counts it."""
    draft.reruns = draft.reruns.delete(rerun.generation)
    if rerun.backfill:
        row = draft.backfills[rerun.backfill]
        row = with_end_of(row, rerun.generation, rerun.end, rerun.failed_run, at_us)
        draft.backfills = draft.backfills.set(rerun.backfill, row)


def forget_task(draft: Draft, task: str, at_us: int) -> None:
    """Drop what waits for the parents of a task that was deleted; reruns go on without it."""
    forget_carried(draft, task)
    if task in draft.joins:
        draft.joins = draft.joins.delete(task)
    if task in draft.past_ends:
        draft.past_ends = draft.past_ends.delete(task)
    # Sorted, because the order of a map differs between members.
    for rerun in [draft.reruns[generation] for generation in sorted(draft.reruns)]:
        if task in rerun.unended:
            ended = _with_end(draft, rerun, OccurrenceEnd(task, 0, rerun.generation, "skipped"))
            unended, undecided = _without(rerun.unended, task), _without(rerun.undecided, task)
            _put_rerun(draft, replace(ended, unended=unended, undecided=undecided), at_us)


def _take(draft: Draft, row: TaskRow, end: OccurrenceEnd, at_us: int) -> None:
    """Add a parent's end to the join of its occurrence, and decide on the occurrence if it was the last one."""
    task, occurrence = row.placing.name, OccurrenceId(end.nominal_us, end.generation)
    join = find_join(draft.joins, task, occurrence)
    if join is None:
        if not _is_its_own(draft, row, occurrence):
            drop_carried(draft, task, occurrence)
            return
        join = PendingJoin(task, *occurrence)
    after = _joined(join, end)
    if missing_parents(draft, row, after):
        put_join(draft, join, after)
        make_room(draft, task, at_us)
        return
    put_join(draft, join, None)
    if join.decided:
        drop_carried(draft, task, occurrence)
    else:
        decide_join(draft, row, after, at_us)


def _take_at_times(draft: Draft, row: TaskRow, end: OccurrenceEnd, at_us: int, most: int) -> int:
    """Add a parent's end to the joins of a task with a schedule that wait for it, `most` at most. Returns how many."""
    waiting = [join for join in draft.joins.get(row.placing.name, ()) if (end.task, end.nominal_us) in join.times]
    for join in waiting[: max(0, most)]:
        after = _joined(join, end)
        missing = missing_parents(draft, row, after)
        put_join(draft, join, after if missing else None)
        if not missing:
            decide_join(draft, draft.tasks[join.task], after, at_us)
    return min(len(waiting), max(0, most))


def _joined(join: PendingJoin, end: OccurrenceEnd) -> PendingJoin:
    return replace(join, ends=(*(one for one in join.ends if one.task != end.task), end))


def _is_its_own(draft: Draft, row: TaskRow, occurrence: OccurrenceId) -> bool:
    """Whether a task takes part in an occurrence of its parents: it was there before it, or is rerun with them.

    In a rerun, it is decided on once, whatever its parents are meanwhile.
    """
    if not occurrence.generation:
        return occurrence.nominal_us > row.after_us
    rerun = draft.reruns.get(occurrence.generation)
    return rerun is not None and row.placing.name in rerun.undecided


def missing_parents(state: Family, row: TaskRow, join: PendingJoin) -> list[After]:
    """Return the parents of a task whose ends a join lacks. Those that are not rerun with it are not waited for."""
    known = {one.task for one in join.ends}
    return [one for one in _awaited(state, row, join) if one.task not in known]


def _awaited(state: Family, row: TaskRow, join: PendingJoin) -> list[After]:
    after = after_of(row.spec_packed)
    if not join.generation:
        return list(after)
    rerun = state.reruns.get(join.generation)
    return [one for one in after if rerun is not None and one.task in rerun.tasks]


def _is_over(draft: Draft, join: PendingJoin) -> bool:
    """Whether a join belongs to a rerun that is not under way any more."""
    return join.generation != 0 and join.generation not in draft.reruns


def decide_join(draft: Draft, row: TaskRow, join: PendingJoin, at_us: int) -> None:
    """Decide on an occurrence of which all parents have ended."""
    occurrence = OccurrenceId(join.nominal_us, join.generation)
    task = row.placing.name
    _decide(draft, row, join, occurrence, at_us)
    if not join.times:
        drop_carried(draft, task, occurrence)


def _decide(draft: Draft, row: TaskRow, join: PendingJoin, occurrence: OccurrenceId, at_us: int) -> None:
    task = row.placing.name
    if (rerun := draft.reruns.get(join.generation)) is not None:
        _put_rerun(draft, replace(rerun, undecided=_without(rerun.undecided, task)), at_us)
    if rerun is not None and rerun.backfill and draft.backfills[rerun.backfill].cancelled:
        end_join(draft, task, occurrence, "upstream_skipped", "its backfill was cancelled", at_us)
        return
    if _is_over(draft, join):
        end_join(draft, task, occurrence, "upstream_skipped", "its rerun was given up", at_us)
        return
    if not join.generation:
        draft.put_task(replace(draft.tasks[task], through_us=max(row.through_us, join.nominal_us)))
    unwanted = row.paused or not row.timing.enabled or (join.nominal_us <= row.after_us and not join.times)
    if unwanted and not join.generation:
        draft.end_occurrence(task, occurrence, "skipped")  # as a paused task's schedule, it leaves no record
        return
    ends = {one.task: one for one in join.ends}
    awaited = _awaited(draft, row, join)
    found = consequence(awaited, {name: one.end for name, one in ends.items()})
    if found == "due":
        _begin(draft, row, join, occurrence, at_us)
    else:
        end_join(draft, task, occurrence, found, _why(found, awaited, ends), at_us)


_SAID: Final[dict[Consequence, str]] = {
    "upstream_failed": "failed",
    "upstream_skipped": "did not run",
    "not_needed": "did not fail",
}


def _why(found: Consequence, awaited: list[After], ends: dict[str, OccurrenceEnd]) -> str:
    """Say because of which parents an occurrence gets no run: those that alone have the same consequence."""
    causes = [one.task for one in awaited if consequence([one], {one.task: ends[one.task].end}) == found]
    return f"{some_names(causes)} {_SAID[found]}"


def some_names(tasks: list[str]) -> str:
    """Return the first names, and how many more there are."""
    return ", ".join(tasks[:_NAMED_MAX]) + (f" and {len(tasks) - _NAMED_MAX} more" if len(tasks) > _NAMED_MAX else "")


def _begin(draft: Draft, row: TaskRow, join: PendingJoin, occurrence: OccurrenceId, at_us: int) -> None:
    """Make a waiting run of an occurrence that is due, or end it as `overlap` and the limits say.

    It fails if its params need what its parents have not left.
    """
    task, overlap = row.placing.name, row.spec.overlap
    run = _run(draft, task, occurrence, "waiting", at_us)
    if task in draft.each:
        if run.backfill:
            end_join(draft, task, occurrence, "skipped", "backfills do not run a task on each member", at_us)
        elif not (members := members_of(draft, row)):
            end_join(draft, task, occurrence, "skipped", "no member has its labels and offers its kind", at_us)
        elif isinstance(begun := with_fields(draft, run, join), str):
            end_join(draft, task, occurrence, "failed", begun, at_us)
        else:
            begin_on_each(draft, row, begun, members, at_us)
        return
    if run.backfill:
        overlap = "allow"  # it waits until it may be claimed (`node.state.claims`), and stands in nobody's way
    others = draft.overlapping(task)
    if overlap == "skip" and others:
        end_join(draft, task, occurrence, "skipped", f"{others[0].run_id} was active", at_us)
    elif overlap == "queue" and sum(run.state == "waiting" for run in others) >= KEPT:
        end_join(draft, task, occurrence, "skipped", f"{KEPT} runs were waiting", at_us)
    elif (why := no_room(draft, row, [] if overlap == "replace" else draft.active(task))) is not None:
        end_join(draft, task, occurrence, "skipped", why, at_us)
    elif isinstance(begun := with_fields(draft, run, join), str):
        end_join(draft, task, occurrence, "failed", begun, at_us)
    else:
        for other in others if overlap == "replace" else ():
            stop_run(draft, other, "replaced", at_us)
        draft.put_run(begun)


def end_join(draft: Draft, task: str, occurrence: OccurrenceId, state: RunState, why: str, at_us: int) -> None:
    """End an occurrence without a run, in this state and for this reason."""
    run = _run(draft, task, occurrence, state, at_us)
    if state == "skipped":
        draft.pass_over(run, at_us, error=why)
        if not run.backfill:
            draft.put_task(replace(draft.tasks[task], skipped=draft.tasks[task].skipped + 1))
    else:
        draft.end_unrun(run, at_us, why)
    draft.end_occurrence(task, occurrence, end_of(state), run.run_id)


def _run(draft: Draft, task: str, occurrence: OccurrenceId, state: RunState, at_us: int) -> Run:
    rerun = draft.reruns.get(occurrence.generation)
    return Run(
        # As for a run that was started by hand, the state's index makes the id unique; one entry may decide on the same
        # time of several reruns.
        run_id=f"{stem(task, occurrence.nominal_us)}~{draft.index}"
        + (f".{occurrence.generation}" if occurrence.generation else ""),
        task=task,
        trigger="after",
        fire_at_us=occurrence.nominal_us,
        spec_packed=draft.tasks[task].spec_packed,
        state=state,
        created_at_us=at_us,
        generation=occurrence.generation,
        backfill=0 if rerun is None else rerun.backfill,
    )


def counting_from_now(row: TaskRow, at_us: int) -> TaskRow:
    """Return the row of a task for which only later occurrences of its parents count: none that was decided before.

    The clock that stamped the change may be behind.
    """
    return replace(row, after_us=max(at_us, row.after_us, row.through_us))


def end_pending(draft: Draft, task: str, why: str, at_us: int) -> None:
    """End what waits for the parents of a task that was paused, disabled or changed; reruns go on."""
    for join in draft.joins.get(task, ()):
        if not join.generation:
            _end_oldest(draft, join, why, at_us)


def keep_ends(draft: Draft, parents: set[str]) -> None:
    """Have tasks keep their latest ends from now on if one with a schedule comes after them; have the others drop them.

    What is known of the last end of a task that begins to keep them is kept, if no later occurrence was decided since.
    """
    for task in sorted(parents):
        row, wanted = draft.tasks.get(task), _child_at_times(draft.children, draft.tasks, task)
        if row is not None and wanted and task not in draft.past_ends:
            last = row.last
            whole = task not in draft.each or not draft.each[task].rounds
            known = last is not None and last.fire_at_us == row.through_us and whole
            ends = (OccurrenceEnd(task, last.fire_at_us, 0, end_of(last.state), last.run_id),) if last and known else ()
            draft.past_ends = draft.past_ends.set(task, ends)
        elif not wanted and task in draft.past_ends:
            draft.past_ends = draft.past_ends.delete(task)


def _child_at_times(children: Children, tasks: Map[str, TaskRow], task: str) -> bool:
    rows = (tasks.get(child) for child in children.get(task, ()))
    return any(row is not None and waits_at_times(row.spec_packed) for row in rows)


def _end_oldest(draft: Draft, join: PendingJoin, why: str, at_us: int) -> None:
    """End a join that waits. From now on its occurrence, and those before it, are not the task's own."""
    row = draft.tasks[join.task]
    draft.put_task(replace(row, after_us=max(row.after_us, join.nominal_us)))
    put_join(draft, join, None)
    if not join.times:
        drop_carried(draft, join.task, OccurrenceId(join.nominal_us))
    if not join.decided:
        end_join(draft, join.task, OccurrenceId(join.nominal_us), "upstream_skipped", why, at_us)


def make_room(draft: Draft, task: str, at_us: int) -> None:
    """End the oldest join of a task if too many wait."""
    joins = draft.joins.get(task, ())
    if len(joins) > JOINS_MAX and (oldest := next((one for one in joins if not one.generation), None)) is not None:
        _end_oldest(draft, oldest, f"{JOINS_MAX} later occurrences wait, too", at_us)


def find_join(joins: Joins, task: str, occurrence: OccurrenceId) -> PendingJoin | None:
    """Return the pending join of an occurrence; None: there is none."""
    return next((one for one in joins.get(task, ()) if (one.nominal_us, one.generation) == occurrence), None)


def put_join(draft: Draft, before: PendingJoin, after: PendingJoin | None) -> None:
    """Replace, add or remove (None) the pending join of an occurrence."""
    key = before.nominal_us, before.generation
    others = [one for one in draft.joins.get(before.task, ()) if (one.nominal_us, one.generation) != key]
    if after is not None:
        insort(others, after, key=lambda one: (one.nominal_us, one.generation))
    if others:
        draft.joins = draft.joins.set(before.task, tuple(others))
    elif before.task in draft.joins:
        draft.joins = draft.joins.delete(before.task)
    draft.touched.add(before.task)
