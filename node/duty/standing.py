"""Describes a task's status in statements: which runs work or wait, when its schedule is due, and why. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from hashing.preference import Reason
from node.duty.agenda import UNCLAIMED, next_occurrence_us
from node.duty.latest import unreadable_parent
from node.duty.sharing import offer_holds
from node.duty.turns import waits_for_pool
from node.state.blackout import Blackout, blackout_of
from node.state.blackouts import is_exempt
from node.state.calendar import days_of
from node.state.joins import missing_parents
from node.state.parts import takes_part
from node.state.run_times import due_us as due_of
from node.state.times import rfc3339
from node.state.value import PendingJoin, Run, State, TaskRow
from tasks.definition.after import ParentEnd
from tasks.definition.calendar_times import day_words
from tasks.definition.calendars import CalendarDays
from tasks.definition.run import HELD
from tasks.definition.schedule import left_out_days, unreadable
from tasks.definition.spec import After, At, after_of

RUNS_MAX: Final = 20
"""The most active runs of a task that are described. These are the oldest ones."""

_ENDED: Final[dict[ParentEnd, str]] = {"succeeded": "succeeded", "failed": "failed", "skipped": "did not run"}

NAMED_DAYS_MAX: Final = 5
"""How many days that fall out because of calendars a statement names."""

ERROR_CHARS_MAX: Final = 400
"""The most characters of an attempt's error in a statement. The run and its log have the rest."""


@dataclass(frozen=True, slots=True)
class TaskStanding:
    """One statement about a task: a code, a sentence, until when it holds, and the run that it is about."""

    code: str
    detail: str
    until_us: int | None = None
    run_id: str | None = None


def standing(state: State, task: str, owner: str | None, because: Iterable[Reason], now_us: int) -> list[TaskStanding]:
    """Describe `task`, which must be in `state`, at `now_us`. Statements on obstacles come first."""
    row = state.tasks[task]
    statements: list[TaskStanding] = []
    if owner is None:
        statements.append(TaskStanding("no_owner", f"no member may run it: {obstacles(because, row)}"))
    if row.paused:
        statements.append(
            TaskStanding("paused", f"paused: it has no due times until it is resumed (rota resume {task})")
        )
    elif not row.timing.enabled:
        statements.append(disabled())
    if task in state.each:
        statements.append(TaskStanding("each", on_each(state, row)))
    statements += _runs(state, runs_of(state, task), row, now_us)
    if not row.paused and row.timing.enabled and (told := schedule_standing(state, task, now_us)) is not None:
        statements.append(told)
    return statements


def on_each(state: State, row: TaskRow) -> str:
    """Say on which members a task with `each` runs."""
    members = [member for member in sorted(state.members) if takes_part(row, state.members[member])]
    group = f" with {', '.join(f'{name}={value}' for name, value in row.placing.group)}" if row.placing.group else ""
    return f"it runs on each member{group}: {', '.join(members) or 'there is none'}"


def disabled() -> TaskStanding:
    """Return the statement on a task that is not enabled."""
    return TaskStanding("disabled", "disabled: it has no due times until its definition has enabled: true")


def runs_of(state: State, task: str) -> list[Run]:
    """Return the active runs of a task, oldest first, its actions among them."""
    return [state.runs[run_id] for run_id in state.runs_of.get(task, ())]


def obstacles(because: Iterable[Reason], row: TaskRow) -> str:
    """Say in words why placement passed over members, by its verdicts."""
    group = ", ".join(f"{name}={value}" for name, value in row.placing.group)
    words = {
        "down": "is down",
        "draining": "is draining",
        "vacant": "is not a member",
        "group": f"lacks a label ({group})",
        "kind": f"does not offer the kind {row.placing.kind}",
        "full": "is full",
    }
    found = [f"{node} {words.get(verdict, verdict)}" for node, verdict in because if node is not None]
    return ", ".join(found) or "there are no members"


def _runs(state: State, active: list[Run], row: TaskRow, now_us: int) -> Iterator[TaskStanding]:
    for run in active[:RUNS_MAX]:
        yield run_standing(state, run, active, row, now_us)
    if len(active) > RUNS_MAX:
        yield TaskStanding("more", f"{len(active) - RUNS_MAX} more runs are active")


def run_standing(state: State, run: Run, active: list[Run], row: TaskRow, now_us: int) -> TaskStanding:
    """Return the status of `run`, one of the task's `active` runs.

    It is running, backing_off, behind, blackout, pool, rate, offered or due. Of a run that one member alone may claim
    also member_away: that member is not up.
    """
    active = competing(active, run)
    ahead = run_ahead(active, row)
    number = run.attempts[-1].attempt if run.attempts else 0
    if run.state in HELD:
        verb = "is about to begin" if run.state == "claimed" else "runs"
        ending = f", and is being cancelled ({run.cancelling})" if run.cancelling is not None else ""
        return TaskStanding(
            "running", f"attempt {number} of {run.run_id} {verb} on {run.node}{ending}", None, run.run_id
        )
    member = state.members.get(run.member) if run.member else None
    if member is not None and member.status != "up":
        why = f" ({member.aside or member.reason})" if member.aside or member.reason else ""
        detail = f"{run.run_id} waits for {run.member}, which is {member.status}{why}: no other member may run it"
        return TaskStanding("member_away", detail, None, run.run_id)
    if (due_us := due_of(run, now_us)) > now_us:
        return TaskStanding("backing_off", f"{run.run_id} {_pause(run, due_us)}", due_us, run.run_id)
    if ahead is not None and ahead is not run and not run.action:
        detail = f"{run.run_id} waits behind {ahead.run_id} (overlap: {row.spec.overlap})"
        return TaskStanding("behind", detail, None, run.run_id)
    blackout = blackout_of(state.blackouts, row.spec_packed, now_us)
    if blackout is not None and not is_exempt(run):
        return TaskStanding("blackout", f"{run.run_id} {_held_by(blackout)}", blackout.until_us, run.run_id)
    if (waits := waits_for_pool(state, run, now_us)) is not None:
        return TaskStanding(waits.code, f"{run.run_id} {waits.detail}", waits.until_us, run.run_id)
    if offer_holds(state, run, now_us):
        return TaskStanding(
            "offered", f"{run.run_id} is offered to {run.offered}, which has more room than its owner", None, run.run_id
        )
    return TaskStanding("due", f"{run.run_id} is due and not claimed yet", None, run.run_id)


def _pause(run: Run, due_us: int) -> str:
    """Describe how long a run waits, and why."""
    until = rfc3339(due_us)
    if run.state == "orphaned":
        return f"backs off until {until}, the grace period of its failover"
    error = first_sentence(run.attempts[-1].error if run.attempts else None)
    if run.aways:
        return f"waits until {until}, since a service that it needs does not answer: {error}"
    failed = f"backs off until {until}, after {run.failures} failed {'attempt' if run.failures == 1 else 'attempts'}"
    return f"{failed}: {error}" if error else failed


def first_sentence(error: str | None) -> str:
    """Return the first sentence of an attempt's error, on one line; "" if there is no error.

    >>> first_sentence("OSError: no route to db.internal. Is it up?")
    'OSError: no route to db.internal.'
    """
    first, dot, _ = " ".join((error or "").split()).partition(". ")
    return (first + dot.rstrip())[:ERROR_CHARS_MAX]


def competing(active: list[Run], run: Run) -> list[Run]:
    """Return those of a task's active runs that `overlap` compares with `run`: with `each`, those of its member."""
    return [other for other in active if other.member == run.member] if run.member else active


def run_ahead(active: list[Run], row: TaskRow) -> Run | None:
    """Return the run that the task's other runs wait for, as `node.duty.decide` decides; None: they do not wait."""
    if row.spec.overlap == "allow":
        return None
    active = [run for run in active if not run.action]
    held = [run for run in active if run.state in HELD]
    free = [run for run in active if run.state in UNCLAIMED]
    free.sort(key=lambda run: (run.backfill != 0, run.state != "orphaned"))  # the runs of backfills come last
    return next(iter(held or free), None)


def _waiting(state: State, row: TaskRow) -> list[PendingJoin]:
    return [join for join in state.joins.get(row.placing.name, ()) if not join.decided]


def _after(state: State, row: TaskRow, after: tuple[After, ...]) -> str:
    """Say what a task with `after` waits for."""
    waiting = _waiting(state, row)
    if not waiting:
        return f"it is due once {', '.join(f'{one.task} has {one.on}' for one in after)}"
    oldest = waiting[0]
    wanted = {time.task: oldest.wanted(time.task).nominal_us for time in missing_parents(state, row, oldest)}
    missing = ", ".join(
        name if time_us == oldest.nominal_us else f"{name} (of {rfc3339(time_us)})" for name, time_us in wanted.items()
    )
    until = f" until {rfc3339(oldest.until_us)}" if oldest.times else ""
    known = ", ".join(f"{one.task} {_ENDED[one.end]}" for one in oldest.ends)
    later = len(waiting) - 1
    more = f"; {later} later {'one waits' if later == 1 else 'ones wait'}, too" if later else ""
    ended = f", and {known}" if known else ""
    return f"its occurrence of {rfc3339(oldest.nominal_us)} waits for {missing}{until}{ended}{more}"


def _held_by(blackout: Blackout) -> str:
    return f"is held by the blackout {blackout.name} until {rfc3339(blackout.until_us)}"


def _unknown(days: CalendarDays) -> str:
    """Say why a task is not due by its calendars, though it may be later."""
    if days.missing:
        return f"the calendar {', '.join(days.missing)} is not there, so nothing is due"
    names = ", ".join(one.name for one in (*days.skip, *days.only) if one.until == days.until)
    return f"not due until {day_words(days.until)}; the days of {names} after that are not known yet"


def schedule_standing(state: State, task: str, now_us: int) -> TaskStanding | None:
    """Describe when the schedule of a task is next due: by_hand, after, parent_gone, unreadable, over, backing_off,
    not_due, calendar, blackout or due.

    Returns None if a run is active and the schedule has no further times.
    """
    row = state.tasks[task]
    schedule = row.timing.schedule
    after = after_of(row.spec_packed)
    if after and (schedule is None or (_waiting(state, row) and task not in state.runs_of)):
        if task in state.runs_of:
            return None
        gone = [one.task for one in after if one.task not in state.tasks]
        if gone and not _waiting(state, row):
            return TaskStanding("parent_gone", f"it comes after {', '.join(gone)}, which is not there: it is never due")
        return TaskStanding("after", _after(state, row, after))
    if schedule is None:
        detail = f"it has no schedule: it runs when it is started by hand (rota run {task})"
        return None if task in state.runs_of else TaskStanding("by_hand", detail)
    if (why := unreadable(schedule) or unreadable_parent(state, row)) is not None:
        return TaskStanding("unreadable", f"this member cannot evaluate its schedule: {why}")
    due_us = next_occurrence_us(state.calendars, row, row.through_us)
    days = days_of(state.calendars, row.timing)
    if due_us is None and days is not None and (days.missing or days.until):
        return None if task in state.runs_of else TaskStanding("calendar", _unknown(days))
    if due_us is None and task in state.runs_of:
        return None
    if due_us is None and days is not None and not isinstance(schedule, At):
        names = [*(f"only {one.name}" for one in days.only), *(f"skip {one.name}" for one in days.skip)]
        return TaskStanding("calendar", f"its calendars ({', '.join(names)}) leave no day to its schedule")
    if due_us is None:
        return TaskStanding("over", "its schedule has no further times")
    if due_us > now_us:
        if row.timing.continuous:
            until = rfc3339(due_us)
            return TaskStanding(
                "backing_off", f"its next run backs off until {until}, because the last one failed", due_us
            )
        then = f"; then it waits for {', '.join(one.task for one in after)}" if after else ""
        out = list(islice(left_out_days(schedule, days, max(now_us, row.through_us), due_us), NAMED_DAYS_MAX))
        told = f" ({'; '.join(map(str, out))})" if out else ""
        return TaskStanding("not_due", f"not due until {rfc3339(due_us)}{told}{then}", due_us)
    blackout = None if row.timing.continuous else blackout_of(state.blackouts, row.spec_packed, now_us)
    if blackout is not None:
        since = rfc3339(due_us or row.since_us)
        return TaskStanding("blackout", f"due since {since}; it {_held_by(blackout)}", blackout.until_us)
    return TaskStanding("due", f"due since {rfc3339(due_us or row.since_us)} and not claimed yet")
