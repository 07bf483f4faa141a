"""Tasks that are due after others: an occurrence is decided in the entry that ends its last parent.

An occurrence is a time, which a task shares with all that descend from it, and the number of a rerun (0: none). The end
of a task's occurrence is told to the tasks directly after it, in the same entry: where it was the last parent, the
occurrence is due at once, as a waiting run, or ends without a run. Such an end is told in turn, but not in this entry,
whose work would have no bound: it is kept in `State.ends`, and the leader passes such ends on in portions (`PassOn`).

A pending join is decided once. Its parents end an occurrence once each; a parent that cannot end it any more, because
it was paused, changed or deleted, counts as skipped once the leader proposes `SettleJoin`, and the join is kept.
"""

from bisect import insort
from dataclasses import dataclass
from typing import Final

from node.state.attempts import stop_run
from node.state.bounds import no_room
from node.state.copying import replace
from node.state.descent import Family, may_end, with_descendants
from node.state.draft import DONE, Draft, refused, stem
from node.state.entries import Entry, applies
from node.state.value import OccurrenceEnd, OccurrenceId, PendingJoin, Rerun, Result, Run, TaskRow
from tasks.definition.after import Consequence, consequence, end_of
from tasks.definition.policy import KEPT
from tasks.definition.run import RunState
from tasks.definition.spec import After, after_of

JOINS_MAX: Final = 100
"""How many occurrences of one task may wait for its parents. With one more, the oldest ends."""

RERUN_MAX: Final = 1000
"""The most tasks that are started together by hand."""

RERUNS_MAX: Final = 100
"""How many reruns may be under way."""

TOLD_AT_ONCE: Final = 128
"""How many tasks are told of ends in one entry, before the rest is left to the next one."""

_NAMED_MAX: Final = 5


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
    join = _find(draft, entry.task, occurrence)
    if row is None or join is None or (join.decided and not _is_over(draft, join)):
        return refused("stale", f"no occurrence of {entry.task!r} waits from {entry.nominal_us}")
    if any((end.nominal_us, end.generation) == occurrence for end in draft.ends.values()):
        return refused("not-due", "some ends of this occurrence have not been passed on yet")
    if join.decided:
        _put(draft, join, None)
        return DONE
    missing = missing_parents(draft, row, join)
    for one in missing:
        if may_end(draft, one.task, occurrence):
            return refused("not-due", f"{entry.task} waits for {one.task}, which may still end")
    ends = [OccurrenceEnd(one.task, *occurrence, "skipped") for one in missing]
    _put(draft, join, replace(join, decided=True) if missing else None)
    _decide(draft, row, replace(join, ends=(*join.ends, *ends)), entry.at_us)
    return DONE


def begin_rerun(draft: Draft, task: str) -> str | None:
    """Note that a task is started by hand together with all tasks after it. Returns the fault if these are too many.

    The number of the rerun is that of the entry. The oldest reruns are given up where too many are under way.
    """
    tasks = with_descendants(draft.children, [task], RERUN_MAX)
    if tasks is None:
        return f"more than {RERUN_MAX} tasks come after {task}, and one rerun has that many at most: rerun some of them"
    undecided = tuple(name for name in tasks if name != task)
    draft.reruns = draft.reruns.set(draft.index, Rerun(draft.index, tuple(tasks), undecided, tuple(tasks)))
    if len(draft.reruns) > RERUNS_MAX:
        draft.reruns = draft.reruns.delete(min(draft.reruns))
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
    """Tell the tasks directly after one of the end of its occurrence. Returns their number."""
    children = draft.children.get(end.task, ())
    for child in children:
        row = draft.tasks.get(child)
        if row is not None:
            _take(draft, row, end, at_us)
    if (rerun := draft.reruns.get(end.generation)) is not None:
        _put_rerun(draft, replace(rerun, unended=_without(rerun.unended, end.task)))
    return len(children)


def _without(tasks: tuple[str, ...], task: str) -> tuple[str, ...]:
    return tuple(name for name in tasks if name != task)


def _put_rerun(draft: Draft, rerun: Rerun) -> None:
    """Change a rerun, or remove it if all of its tasks have ended."""
    if rerun.unended:
        draft.reruns = draft.reruns.set(rerun.generation, rerun)
    else:
        draft.reruns = draft.reruns.delete(rerun.generation)


def forget_task(draft: Draft, task: str) -> None:
    """Drop what waits for the parents of a task that was deleted; reruns go on without it."""
    if task in draft.joins:
        draft.joins = draft.joins.delete(task)
    # Sorted, because the order of a map differs between members.
    for rerun in [draft.reruns[generation] for generation in sorted(draft.reruns)]:
        if task in rerun.unended:
            unended, undecided = _without(rerun.unended, task), _without(rerun.undecided, task)
            _put_rerun(draft, replace(rerun, unended=unended, undecided=undecided))


def _take(draft: Draft, row: TaskRow, end: OccurrenceEnd, at_us: int) -> None:
    """Add a parent's end to the join of its occurrence, and decide on the occurrence if it was the last one."""
    task, occurrence = row.placing.name, OccurrenceId(end.nominal_us, end.generation)
    join = _find(draft, task, occurrence)
    if join is None:
        if not _is_its_own(draft, row, occurrence):
            return
        join = PendingJoin(task, *occurrence)
    ends = (*(one for one in join.ends if one.task != end.task), end)
    after = replace(join, ends=ends)
    if missing_parents(draft, row, after):
        _put(draft, join, after)
        _make_room(draft, task, at_us)
        return
    _put(draft, join, None)
    if not join.decided:
        _decide(draft, row, after, at_us)


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


def _decide(draft: Draft, row: TaskRow, join: PendingJoin, at_us: int) -> None:
    """Decide on an occurrence of which all parents have ended."""
    occurrence = OccurrenceId(join.nominal_us, join.generation)
    task = row.placing.name
    if (rerun := draft.reruns.get(join.generation)) is not None:
        _put_rerun(draft, replace(rerun, undecided=_without(rerun.undecided, task)))
    if _is_over(draft, join):
        _end_unrun(draft, task, occurrence, "upstream_skipped", "its rerun was given up", at_us)
        return
    if not join.generation:
        draft.put_task(replace(draft.tasks[task], through_us=max(row.through_us, join.nominal_us)))
    unwanted = row.paused or not row.timing.enabled or join.nominal_us <= row.after_us
    if unwanted and not join.generation:
        draft.end_occurrence(task, occurrence, "skipped")  # as a paused task's schedule, it leaves no record
        return
    ends = {one.task: one for one in join.ends}
    awaited = _awaited(draft, row, join)
    found = consequence(awaited, {name: one.end for name, one in ends.items()})
    if found == "due":
        _begin(draft, row, occurrence, at_us)
    else:
        _end_unrun(draft, task, occurrence, found, _why(found, awaited, ends), at_us)


_SAID: Final[dict[Consequence, str]] = {
    "upstream_failed": "failed",
    "upstream_skipped": "did not run",
    "not_needed": "did not fail",
}


def _why(found: Consequence, awaited: list[After], ends: dict[str, OccurrenceEnd]) -> str:
    """Say because of which parents an occurrence gets no run: those that alone have the same consequence."""
    causes = [one.task for one in awaited if consequence([one], {one.task: ends[one.task].end}) == found]
    return f"{_names(causes)} {_SAID[found]}"


def _names(tasks: list[str]) -> str:
    return ", ".join(tasks[:_NAMED_MAX]) + (f" and {len(tasks) - _NAMED_MAX} more" if len(tasks) > _NAMED_MAX else "")


def _begin(draft: Draft, row: TaskRow, occurrence: OccurrenceId, at_us: int) -> None:
    """Make a waiting run of an occurrence that is due, or end it as `overlap` and the limits say."""
    task, overlap = row.placing.name, row.spec.overlap
    others = draft.overlapping(task)
    if overlap == "skip" and others:
        _end_unrun(draft, task, occurrence, "skipped", f"{others[0].run_id} was active", at_us)
    elif overlap == "queue" and sum(run.state == "waiting" for run in others) >= KEPT:
        _end_unrun(draft, task, occurrence, "skipped", f"{KEPT} runs were waiting", at_us)
    elif (why := no_room(draft, row, [] if overlap == "replace" else draft.active(task))) is not None:
        _end_unrun(draft, task, occurrence, "skipped", why, at_us)
    else:
        for other in others if overlap == "replace" else ():
            stop_run(draft, other, "replaced", at_us)
        draft.put_run(_run(draft, task, occurrence, "waiting", at_us))


def _end_unrun(draft: Draft, task: str, occurrence: OccurrenceId, state: RunState, why: str, at_us: int) -> None:
    run = _run(draft, task, occurrence, state, at_us)
    if state == "skipped":
        draft.pass_over(run, at_us, error=why)
        draft.put_task(replace(draft.tasks[task], skipped=draft.tasks[task].skipped + 1))
    else:
        draft.end_unrun(run, at_us, why)
    draft.end_occurrence(task, occurrence, end_of(state), run.run_id)


def _run(draft: Draft, task: str, occurrence: OccurrenceId, state: RunState, at_us: int) -> Run:
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


def _end_oldest(draft: Draft, join: PendingJoin, why: str, at_us: int) -> None:
    """End a join that waits. From now on its occurrence, and those before it, are not the task's own."""
    row = draft.tasks[join.task]
    draft.put_task(replace(row, after_us=max(row.after_us, join.nominal_us)))
    _put(draft, join, None)
    if not join.decided:
        _end_unrun(draft, join.task, OccurrenceId(join.nominal_us), "upstream_skipped", why, at_us)


def _make_room(draft: Draft, task: str, at_us: int) -> None:
    joins = draft.joins.get(task, ())
    if len(joins) > JOINS_MAX and (oldest := next((one for one in joins if not one.generation), None)) is not None:
        _end_oldest(draft, oldest, f"{JOINS_MAX} later occurrences wait, too", at_us)


def _find(draft: Draft, task: str, occurrence: OccurrenceId) -> PendingJoin | None:
    joins = draft.joins.get(task, ())
    return next((one for one in joins if (one.nominal_us, one.generation) == occurrence), None)


def _put(draft: Draft, before: PendingJoin, after: PendingJoin | None) -> None:
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
