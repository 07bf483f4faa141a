"""Entries about occurrences that no member holds: started by hand, queued, or passed over."""

from dataclasses import dataclass
from typing import Any, Final

from node.state import joins
from node.state.attempts import stop_run
from node.state.bounds import (
    ACTIVE_MAX,
    PARAMS_BYTES_MAX,
    REQUESTS_BYTES_MAX,
    REQUESTS_KEPT,
    no_room,
    params_bytes,
    requests_bytes,
)
from node.state.copying import replace
from node.state.draft import RULES_AFTER, RULES_TEMPLATES, Draft, free_moment, refused, stem
from node.state.each import start_on_each
from node.state.entries import Entry, applies
from node.state.registry import no_such_task
from node.state.value import OccurrenceId, PassedOver, Result, Run, Series, TaskRow
from tasks.definition import cron
from tasks.definition.policy import KEPT
from tasks.definition.run import RunState
from tasks.definition.spec import Spec, runs_on_each

PASSED_MAX: Final = 10_000
"""The most occurrences that one entry may pass over one by one."""

LAST_FIRE_US: Final = cron.LAST_FIRE_US
"""The latest due time. Tasks are checked for it when they are registered, and entries when they are applied."""

_KEY_CHARS_MAX: Final = 255
_ACTION_CHARS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class Start(Entry):
    """Start a run by hand. It waits for the task's owner to claim it. Refused if overlap forbids it.

    Result: `{"run_id": ...}`.
    """

    #: The task's name.
    task: str
    #: The params of this run; None: the task's own.
    params: dict[str, Any] | None = None
    #: The run's `fire_at`, in microseconds since the epoch; None: `at_us`, or the next microsecond that no other
    #: occurrence of the task has.
    fire_at_us: int | None = None
    #: The Idempotency-Key: a second Start with the same key returns the first one's run. None: no key was given.
    key: str | None = None
    #: The kind's action to run instead of the task's work; "": the work.
    action: str = ""
    #: The arguments of `action`; None: there are none.
    args: dict[str, Any] | None = None
    #: Whether the tasks after it are started with it, each once those before it have ended.
    downstream: bool = False
    #: Of a task with `each`, the only member on which it is started; "": on all.
    member: str = ""


@applies(Start, code=12)
def start(draft: Draft, entry: Start) -> Result:
    """Start a run by hand, of a paused task too. The run waits for the task's owner. Result: `{"run_id"}`.

    Of a task with `each`, it starts one for each member: see `node.state.each.start_on_each`.
    """
    row = draft.tasks.get(entry.task)
    if row is None:
        return no_such_task(entry.task)
    if (fault := _start_fault(entry)) is not None:
        return refused("invalid", fault)
    known = next((run_id for key, run_id in row.requests if key and key == entry.key), None)
    if known is not None:
        return Result("ok", {"run_id": known})
    spec = row.spec
    given_bytes = params_bytes(entry.params) + params_bytes(entry.args)
    if draft.lead.rules and given_bytes > PARAMS_BYTES_MAX:
        return refused("too-large", f"the params of a run hold {PARAMS_BYTES_MAX} bytes at most, not {given_bytes}")
    on_each = entry.task in draft.each
    if entry.member and not on_each:
        return refused("invalid", f"{entry.task} has no `each`, so it is started on its owner, not on {entry.member}")
    if not on_each and (refusal := _no_room(draft, row, spec, given_bytes, entry.action)) is not None:
        return refusal
    if spec.overlap == "replace" and not entry.action and not on_each:
        for other in draft.overlapping(entry.task):
            stop_run(draft, other, "replaced", entry.at_us)
    nominal_us = fire_at_us = entry.at_us if entry.fire_at_us is None else entry.fire_at_us
    if spec.schedule is not None and fire_at_us <= row.through_us:
        fire_at_us += 1  # a scheduled occurrence of that very time, if there was one, is decided
    fire_at_us = free_moment(draft, row, fire_at_us)
    # The state's index makes the id unique, even among runs of the same time that left the state long ago.
    run_id = f"{stem(entry.task, fire_at_us)}~{draft.index}"
    generation = 0
    if entry.downstream:
        if (why := joins.begin_rerun(draft, entry.task)) is not None:
            return refused("too-large", why)
        generation = draft.index
    run = Run(
        run_id=run_id,
        task=entry.task,
        trigger="manual",
        fire_at_us=fire_at_us,
        spec_packed=row.spec_packed,
        state="waiting",
        created_at_us=entry.at_us,
        params=entry.params,
        params_bytes=given_bytes,
        action=entry.action,
        args=entry.args,
        nominal_us=nominal_us if draft.lead.rules >= RULES_TEMPLATES and nominal_us != fire_at_us else 0,
        generation=generation,
    )
    result = Result("ok", {"run_id": run_id})
    if on_each:
        result = start_on_each(draft, row, run, entry.member, entry.at_us)
        if not result.ok:
            return result
        run_id = result.value["run_id"]
    else:
        draft.put_run(run)
    row = draft.tasks[entry.task]
    kept = 1 if draft.lead.rules and draft.requests_bytes >= REQUESTS_BYTES_MAX else REQUESTS_KEPT
    after = replace(row, requests=(*row.requests, (entry.key or "", run_id))[-kept:])
    draft.requests_bytes += requests_bytes(after) - requests_bytes(row)
    draft.put_task(after)
    return result


@dataclass(frozen=True, slots=True)
class Enqueue(Entry):
    """Queue occurrences that fell due while another run was active, under `overlap: queue`. At most 100 may wait."""

    task: str
    fire_at_us: tuple[int, ...]


@applies(Enqueue, code=13)
def enqueue(draft: Draft, entry: Enqueue) -> Result:
    """Queue occurrences; those beyond the queue's limit are skipped. Result: `{"queued"}`."""
    row = draft.tasks.get(entry.task)
    if row is None:
        return no_such_task(entry.task)
    if (refusal := due_fault(row, row.spec, entry.fire_at_us, entry.at_us)) is not None:
        return refusal
    waiting = sum(run.state == "waiting" for run in draft.overlapping(entry.task))
    times = _undecided(row, entry.fire_at_us)
    room = 0 if no_room(draft, row, draft.active(entry.task)) else KEPT - waiting
    queued = times[: max(0, room)]
    through_us = row.through_us
    for fire_at_us in queued:
        run = occurrence(draft, row, fire_at_us, entry.at_us, through_us)
        draft.put_run(run)
        through_us = run.fire_at_us
    if queued:
        row = replace(row, through_us=through_us, series=None)
    skipped: list[int] = []
    for fire_at_us in times[len(queued) :]:
        through_us = occurrence(draft, row, fire_at_us, entry.at_us, through_us).fire_at_us
        skipped.append(through_us)
        draft.end_occurrence(entry.task, OccurrenceId(fire_at_us), "skipped")
    if skipped and not draft.lead.rules:
        draft.put_task(row)
        _each_passed(draft, row, "skipped", skipped, entry.at_us)
    elif times:
        if skipped:
            row = _passed(draft, row, "skipped", (skipped[0], skipped[-1]), len(skipped), entry.at_us)
        draft.put_task(row)
    return Result("ok", {"queued": len(queued)})


@dataclass(frozen=True, slots=True)
class SkipOccurrences(Entry):
    """Pass over occurrences: `skipped` (overlap) or `missed` (catch-up). They are recorded and counted."""

    #: The task's name.
    task: str
    #: Whether they are skipped or missed.
    state: PassedOver
    #: The first and the last of `count` consecutive occurrences, in microseconds since the epoch. If `count` is 0, all
    #: of the occurrences: the tasks after this one are told of each. Entries of earlier versions have them, too.
    fire_at_us: tuple[int, ...]
    #: How many occurrences there are; 0: as many as `fire_at_us` has.
    count: int = 0


@applies(SkipOccurrences, code=14)
def skip_occurrences(draft: Draft, entry: SkipOccurrences) -> Result:
    """Pass over occurrences; history and the task's counters record it. Result: `{"passed_over"}`."""
    row = draft.tasks.get(entry.task)
    if row is None:
        return no_such_task(entry.task)
    if (refusal := due_fault(row, row.spec, entry.fire_at_us, entry.at_us, begins=False)) is not None:
        return refusal
    if entry.count:
        if (fault := _range_fault(entry)) is not None:
            return refused("invalid", fault)
        first_us, last_us = entry.fire_at_us
        if first_us <= row.through_us:
            return refused("occurrence-taken", "some of these occurrences have been claimed or passed over")
        count = entry.count
    else:
        if len(entry.fire_at_us) > PASSED_MAX:
            return refused("too-large", f"one entry passes over {PASSED_MAX} occurrences at most")
        times = _undecided(row, entry.fire_at_us)
        for fire_at_us in times:
            draft.end_occurrence(entry.task, OccurrenceId(fire_at_us), "skipped")
        if draft.lead.rules < RULES_AFTER or not times:
            return _each_passed(draft, row, entry.state, times, entry.at_us)
        first_us, last_us, count = times[0], times[-1], len(times)
    draft.put_task(_passed(draft, row, entry.state, (first_us, last_us), count, entry.at_us))
    return Result("ok", {"passed_over": count})


def _each_passed(draft: Draft, row: TaskRow, state: PassedOver, times: list[int], at_us: int) -> Result:
    """Pass over each of these occurrences with a record of its own, as versions without series did."""
    for fire_at_us in times:
        draft.pass_over(_run(row, fire_at_us, at_us, state), at_us)
    if times:
        draft.put_task(_counted(replace(row, through_us=times[-1]), state, len(times)))
    return Result("ok", {"passed_over": len(times)})


def _counted(row: TaskRow, state: PassedOver, count: int) -> TaskRow:
    if state == "skipped":
        return replace(row, skipped=row.skipped + count)
    return replace(row, missed=row.missed + count)


def _range_fault(entry: SkipOccurrences) -> str | None:
    if len(entry.fire_at_us) != 2 or entry.fire_at_us[0] > entry.fire_at_us[1]:
        return "occurrences that are counted are told by the first and the last of them"
    first_us, last_us = entry.fire_at_us
    if not 1 <= entry.count <= last_us - first_us + 1 or (entry.count == 1) != (first_us == last_us):
        return f"there are no {entry.count} occurrences from {first_us} to {last_us}"
    return None


def _passed(draft: Draft, row: TaskRow, state: PassedOver, times: tuple[int, int], count: int, at_us: int) -> TaskRow:
    """Pass over `count` occurrences, from the first to the last of `times`, as one record in history. Returns the row.

    If the previous occurrences were passed over for the same reason, and no run came in between, their series is
    extended, so that history has one record however long a run blocks its task.
    """
    series, name = row.series, row.placing.name
    active = tuple(run.run_id for run in draft.overlapping(name)) if state == "skipped" else ()
    if series is not None and series.state == state and series.blocked_by == (active or (series.blocked_by,))[0]:
        series = replace(series, last_fire_at_us=times[1], count=series.count + count)
    else:
        series = Series(
            state=state,
            created_at_us=at_us,
            fire_at_us=times[0],
            last_fire_at_us=times[1],
            count=count,
            blocked_by=(active or ("",))[0],
        )
    why = no_room(draft, row, draft.active(name)) if state == "skipped" else None
    draft.pass_over(_run(row, series.fire_at_us, series.created_at_us, state), at_us, series, why)
    return _counted(replace(row, through_us=times[1], series=series), state, count)


def occurrence(draft: Draft, row: TaskRow, nominal_us: int, at_us: int, through_us: int = -1) -> Run:
    """Make a waiting run of a scheduled occurrence. Its `fire_at_us` may be slightly later: see `free_moment`.

    It is later than `through_us`. Its params, and the tasks after this one, have its `nominal_us`.
    """
    fire_at_us = free_moment(draft, row, max(nominal_us, through_us + 1))
    run = _run(row, fire_at_us, at_us, "waiting")
    kept = draft.lead.rules >= RULES_TEMPLATES or row.placing.name in draft.children
    shifted = kept and fire_at_us != nominal_us
    return replace(run, nominal_us=nominal_us) if shifted else run


def _run(row: TaskRow, fire_at_us: int, at_us: int, state: RunState) -> Run:
    task = row.placing.name
    return Run(
        run_id=stem(task, fire_at_us),
        task=task,
        trigger="schedule",
        fire_at_us=fire_at_us,
        spec_packed=row.spec_packed,
        state=state,
        created_at_us=at_us,
    )


def due_fault(
    row: TaskRow, spec: Spec, fire_at_us: tuple[int, ...], at_us: int, *, begins: bool = True
) -> Result | None:
    """Return the refusal if these occurrences of the task cannot be due by the proposer's clock; None if they can.

    `begins`: they are to be runs at once, which those of a task that comes after others are not.

    The times themselves are not computed here, but by the owner only, since they depend on its time zone data.
    """
    if spec.schedule is None or row.paused or not spec.enabled:
        return refused("not-due", f"nothing of {row.placing.name} falls due: no schedule, paused or not enabled")
    # A continuous task's occurrence is due at once; its time only names it.
    if max(fire_at_us, default=0) > (LAST_FIRE_US if spec.continuous else min(at_us, LAST_FIRE_US)):
        return refused("not-due", "an occurrence cannot be dealt with before it is due")
    if begins and runs_on_each(row.spec_packed):
        return refused("not-due", f"{row.placing.name} runs on each member, so its occurrences are fanned out first")
    if spec.after and begins:
        return refused(
            "not-due", f"{row.placing.name} comes after other tasks, so its occurrences wait for those first"
        )
    return None


def _undecided(row: TaskRow, fire_at_us: tuple[int, ...]) -> list[int]:
    return sorted({one for one in fire_at_us if one > row.through_us})


def _start_fault(entry: Start) -> str | None:
    if entry.key is not None and not 0 < len(entry.key) <= _KEY_CHARS_MAX:
        return f"an Idempotency-Key has 1 to {_KEY_CHARS_MAX} characters"
    if entry.fire_at_us is not None and entry.fire_at_us > LAST_FIRE_US:
        return "fire_at is beyond the calendar"
    if len(entry.action) > _ACTION_CHARS_MAX:
        return f"an action's name has {_ACTION_CHARS_MAX} characters at most"
    return None


def _no_room(draft: Draft, row: TaskRow, spec: Spec, with_bytes: int, action: str) -> Result | None:
    """Return the refusal if overlap, or a limit, forbids another run by hand; None if it is allowed."""
    task = row.placing.name
    active, others = draft.active(task), [] if action else draft.overlapping(task)
    if spec.overlap == "skip" and others:
        return refused("overlap", f"{others[0].run_id} is active, and overlap is skip: wait for it, or cancel it")
    if spec.overlap == "queue" and sum(run.state == "waiting" for run in others) >= KEPT:
        return refused("overlap", f"{KEPT} runs of {task} wait already")
    # Runs that are being replaced do not count.
    beside = [] if spec.overlap == "replace" and not action else active
    if (why := no_room(draft, row, beside, with_bytes)) is not None:
        return refused("full", why)
    if len(active) >= ACTIVE_MAX:
        return refused("overlap", f"{task} has {len(active)} active runs already")
    return None
