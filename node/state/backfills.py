"""Backfills: runs of a task for times of its schedule that are past, asked for as one (`node.state.backfill`).

`apply` never evaluates a schedule. So the leader names the time of the next occurrence (`AdvanceBackfill`), together
with the position that the backfill had: a second leader, or the same one again, is refused, and each occurrence is
begun once, in order. It is a rerun of that time, so that the tasks after it join it as they join any rerun
(`node.state.joins`). Its runs wait until they may be claimed: `node.state.claims` and `node.state.pools` put all other
runs before them, and nothing that judges a task looks at them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from node.state.attempts import stop_run
from node.state.backfill import PARALLEL_MAX, BackfillRow, ended_if_over
from node.state.bounds import no_room
from node.state.copying import replace
from node.state.descent import Children, Family, is_under_way
from node.state.draft import DONE, Draft, refused, stem
from node.state.entries import Entry, applies
from node.state.joins import RERUN_MAX, end_rerun
from node.state.value import OccurrenceId, Rerun, Result, Run, TaskRow
from tasks.definition.spec import At, after_of, waits_at_times

OCCURRENCES_MAX: Final = 100_000
"""The most occurrences of one backfill."""

OPEN_MAX: Final = 20
"""How many backfills may be open."""

ENDED_KEPT: Final = 20
"""How many ended backfills are kept: the latest ones."""

RULES_BACKFILLS: Final = 10
"""From these rules on (`Lead.rules`), there are backfills."""

_TEXT_CHARS_MAX: Final = 200

BackfillChange = Literal["paused", "resumed", "cancelled"]


@dataclass(frozen=True, slots=True)
class StartBackfill(Entry):
    """Run a task for the times of its schedule from `from_us` on and before `to_us`. Result: `{"backfill": number}`."""

    #: The task's name.
    task: str
    #: The first time that may be an occurrence, in microseconds since the epoch.
    from_us: int
    #: The first time after the occurrences, in microseconds since the epoch; not in the future.
    to_us: int
    #: How many occurrences there are, from 1 to 100,000.
    total: int
    #: How many of them may be under way at once, from 1 to 16.
    parallel: int = 1
    #: Whether the latest time comes first.
    newest_first: bool = False
    #: Whether the tasks after it run, too.
    downstream: bool = False
    #: Who asks for it; "": not known.
    asked_by: str = ""


@applies(StartBackfill, code=40)
def open_backfill(draft: Draft, entry: StartBackfill) -> Result:
    """Note a backfill, of which the leader then begins one occurrence after the other. Result: `{"backfill"}`."""
    if draft.lead.rules < RULES_BACKFILLS:
        return refused("invalid", "backfills need a leader of this version")
    row = draft.tasks.get(entry.task)
    if row is None:
        return refused("no-such-task", f"there is no task {entry.task!r}")
    if (why := backfill_fault(draft.tasks, row) or _range_fault(entry)) is not None:
        return refused("invalid", why)
    joining = with_joining(draft.children, draft.tasks, entry.task) if entry.downstream else [entry.task]
    if joining is None:
        return refused("too-large", f"more than {RERUN_MAX} tasks come after {entry.task}: backfill without them")
    if (why := _each_fault(draft, joining)) is not None:
        return refused("invalid", why)
    opened = [one for one in draft.backfills.values() if one.open]
    ended = sorted(one.number for one in draft.backfills.values() if not one.open)
    if len(opened) >= OPEN_MAX:
        return refused("full", f"{OPEN_MAX} backfills are open: wait for the end of one, or cancel one")
    same = [one.number for one in opened if one.task == entry.task and _overlap(one, entry)]
    if same:
        return refused("exists", f"backfill {min(same)} of {entry.task} has some of these times, and is open")
    for number in ended[: max(0, len(ended) - ENDED_KEPT)]:
        draft.backfills = draft.backfills.delete(number)
    backfill = BackfillRow(
        number=draft.index,
        task=entry.task,
        from_us=entry.from_us,
        to_us=entry.to_us,
        total=entry.total,
        spec_packed=row.spec_packed,
        phase_us=row.since_us,
        position_us=entry.to_us if entry.newest_first else entry.from_us - 1,
        asked_us=entry.at_us,
        parallel=entry.parallel,
        newest_first=entry.newest_first,
        downstream=entry.downstream,
        asked_by=entry.asked_by[:_TEXT_CHARS_MAX],
        paced_us=entry.at_us,
    )
    _put(draft, backfill)
    return Result("ok", {"backfill": draft.index})


def _overlap(one: BackfillRow, entry: StartBackfill) -> bool:
    return one.from_us < entry.to_us and entry.from_us < one.to_us


def backfill_fault(tasks: Mapping[str, TaskRow], row: TaskRow) -> str | None:
    """Say why a task has no past times to be run for, and what to do instead; None: it has some."""
    task, schedule = row.placing.name, row.timing.schedule
    if schedule is None:
        roots = [name for name in _roots(tasks, row) if tasks[name].timing.schedule is not None]
        if not roots:
            return f"{task} has no schedule, so there are no times to run it for: rota run {task} runs it now"
        return f"{task} has no schedule of its own: backfill {', '.join(roots)} with the tasks after it (--downstream)"
    if row.timing.continuous:
        return f"{task} is continuous: it has no times of its own, and goes on by itself from where it stands"
    if isinstance(schedule, At):
        return f"{task} is due once, at a time of its own: rota run {task} runs it again"
    return None


def _roots(tasks: Mapping[str, TaskRow], row: TaskRow) -> list[str]:
    """Return the names of the tasks that a task without a schedule descends from, sorted."""
    found: set[str] = set()
    seen, left = {row.placing.name}, [row]
    while left:
        one = left.pop()
        parents = [parent.task for parent in after_of(one.spec_packed) if parent.task in tasks]
        if not parents or waits_at_times(one.spec_packed):
            found.add(one.placing.name)
            continue
        left += [tasks[name] for name in parents if name not in seen]
        seen.update(parents)
    return sorted(found)


def _range_fault(entry: StartBackfill) -> str | None:
    if not 0 < entry.from_us < entry.to_us:
        return "a backfill begins after 1970, and ends later than it begins"
    if entry.to_us > entry.at_us:
        return "a backfill is for times that are past: let it end now, or earlier"
    if not 1 <= entry.total <= OCCURRENCES_MAX:
        return f"a backfill has 1 to {OCCURRENCES_MAX} occurrences, not {entry.total}: divide it"
    if not 1 <= entry.parallel <= PARALLEL_MAX:
        return f"from 1 to {PARALLEL_MAX} occurrences of a backfill are under way at once, not {entry.parallel}"
    return None


def with_joining(children: Children, tasks: Mapping[str, TaskRow], task: str) -> list[str] | None:
    """Return a task and all tasks that are due for its occurrences, sorted; None if they are more than `RERUN_MAX`.

    Those that have schedules of their own, and what comes after these, are due at other times, and left out.
    """
    found, left = {task}, [task]
    while left:
        for child in children.get(left.pop(), ()):
            if child not in found and not waits_at_times(tasks[child].spec_packed):
                found.add(child)
                left.append(child)
        if len(found) > RERUN_MAX:
            return None
    return sorted(found)


@dataclass(frozen=True, slots=True)
class AdvanceBackfill(Entry):
    """Begin the next occurrence of a backfill, or end those that nothing carries on. The leader proposes it.

    Refused if the backfill is not where the leader saw it.
    """

    #: The number of the backfill.
    number: int
    #: The position that the backfill had, in microseconds since the epoch.
    position_us: int
    #: The time of the next occurrence, in microseconds since the epoch; 0: none is begun.
    nominal_us: int = 0
    #: Whether there is no further occurrence. If it is not, and none is begun, occurrences that are over are ended.
    exhausted: bool = False


@applies(AdvanceBackfill, code=41)
def advance_backfill(draft: Draft, entry: AdvanceBackfill) -> Result:
    """Begin the next occurrence of a backfill, note that there is none, or end those that nothing carries on."""
    row = draft.backfills.get(entry.number)
    if row is None or not row.open or row.position_us != entry.position_us:
        return refused("stale", f"backfill {entry.number} has gone on, or is no more")
    if not entry.nominal_us and not entry.exhausted:
        return _end_what_is_over(draft, row, entry.at_us)
    if not row.begins:
        return refused("not-due", f"backfill {row.number} begins no further occurrence now")
    if entry.exhausted:
        _put(draft, ended_if_over(replace(row, exhausted=True), entry.at_us))
        return DONE
    if not row.names_next(entry.nominal_us):
        return refused("invalid", f"backfill {row.number} has no occurrence at {entry.nominal_us} now")
    task = draft.tasks[row.task]  # a task that is deleted takes its backfills with it
    tasks = with_joining(draft.children, draft.tasks, row.task) if row.downstream else [row.task]
    if (why := _hindrance(task, tasks) or _each_fault(draft, tasks or [])) is not None:
        _put(draft, replace(row, paused=True, why=why))
        return DONE
    if (why := no_room(draft, task, draft.active(row.task))) is not None:
        return refused("full", why)
    _begin(draft, row, entry, tuple(tasks or ()))
    return DONE


def _hindrance(task: TaskRow, tasks: list[str] | None) -> str | None:
    """Say why no occurrence of a backfill may begin any more; None: it may."""
    if task.timing.continuous:
        return f"{task.placing.name} has become continuous"
    return f"more than {RERUN_MAX} tasks come after {task.placing.name} now" if tasks is None else None


def _each_fault(draft: Draft, tasks: list[str]) -> str | None:
    """Say why these tasks cannot be backfilled together: one runs on each member; None: they can."""
    each = [name for name in tasks if name in draft.each]
    return f"{each[0]} runs on each member (`each`), which backfills do not do" if each else None


def _begin(draft: Draft, row: BackfillRow, entry: AdvanceBackfill, tasks: tuple[str, ...]) -> None:
    generation, nominal_us = draft.index, entry.nominal_us
    undecided = tuple(name for name in tasks if name != row.task)
    rerun = Rerun(generation, tasks, undecided, tasks, row.number)
    draft.reruns = draft.reruns.set(generation, rerun)
    _put(draft, replace(row, position_us=nominal_us, in_flight=(*row.in_flight, (nominal_us, generation))))
    draft.put_run(
        Run(
            # As for a run that was started by hand, the state's index makes the id unique.
            run_id=f"{stem(row.task, nominal_us)}~{generation}",
            task=row.task,
            trigger="manual",
            fire_at_us=nominal_us,
            spec_packed=draft.tasks[row.task].spec_packed,
            state="waiting",
            created_at_us=entry.at_us,
            generation=generation,
            backfill=row.number,
        )
    )


def _end_what_is_over(draft: Draft, row: BackfillRow, at_us: int) -> Result:
    found = what_is_over(draft, row)
    for rerun in found:
        end_rerun(draft, rerun, at_us)
    return DONE if found else refused("stale", f"all that is under way of backfill {row.number} goes on")


def what_is_over(state: Family, row: BackfillRow) -> list[Rerun]:
    """Return the occurrences of a backfill which nothing carries on, though not all of their tasks have ended.

    Those tasks come after others than before, say, and will never be told of an end.
    """
    told = {end.generation for end in state.ends.values()}
    found = []
    for nominal_us, generation in row.in_flight:
        rerun, occurrence = state.reruns.get(generation), OccurrenceId(nominal_us, generation)
        if rerun is None or generation in told:
            continue
        if not any(is_under_way(state, task, occurrence) for task in rerun.unended):
            found.append(rerun)
    return found


@dataclass(frozen=True, slots=True)
class ChangeBackfill(Entry):
    """Pause a backfill, resume it, or cancel it with all of its runs."""

    number: int
    change: BackfillChange
    why: str = ""


@applies(ChangeBackfill, code=42)
def change_backfill(draft: Draft, entry: ChangeBackfill) -> Result:
    """Pause or resume a backfill: what is under way goes on. Or cancel it: its runs are cancelled, too."""
    row = draft.backfills.get(entry.number)
    if row is None:
        return refused("no-such-backfill", f"there is no backfill {entry.number}")
    if not row.open or row.cancelled:
        return refused("not-due", f"backfill {row.number} is {row.status}")
    why = entry.why[:_TEXT_CHARS_MAX]
    if entry.change == "cancelled":
        stop_backfill(draft, row, why, entry.at_us)
    elif entry.change == "paused" and not row.paused:
        _put(draft, replace(row, paused=True, why=why))
    elif entry.change == "resumed" and row.paused:
        paced = replace(row, paced_us=entry.at_us, paced_from=row.ended)
        _put(draft, replace(paced, paused=False, why="", failed_in_row=0))
    return DONE


def stop_backfill(draft: Draft, row: BackfillRow, why: str, at_us: int) -> None:
    """Begin nothing more of a backfill, and cancel its runs: at once, or through the members that hold them."""
    _put(draft, ended_if_over(replace(row, cancelled=True, why=why), at_us))
    for nominal_us, generation in row.in_flight:
        rerun = draft.reruns[generation]
        for task in rerun.unended:
            for run in draft.active(task):
                if run.occurrence == (nominal_us, generation):
                    stop_run(draft, run, f"backfill {row.number} was cancelled", at_us)


def cancel_backfills_of(draft: Draft, task: str, at_us: int) -> None:
    """Cancel the open backfills of a task that is deleted."""
    for number in sorted(draft.backfills):
        row = draft.backfills[number]
        if row.task == task and row.open and not row.cancelled:
            stop_backfill(draft, row, f"{task} was deleted", at_us)


def _put(draft: Draft, row: BackfillRow) -> None:
    draft.backfills = draft.backfills.set(row.number, row)
