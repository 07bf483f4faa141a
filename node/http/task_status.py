"""A task's status in words: what of it runs, waits or is not due, and why. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final

from hashing.preference import Reason
from node.duty.agenda import UNCLAIMED, next_occurrence_us
from node.http.responses.placement import StandingView
from node.http.times import rfc3339, rfc3339_or_none
from node.state.value import Run, State, TaskRow
from node.state.waiting import due_us as due_of
from tasks.run import HELD
from tasks.schedule import unreadable

RUNS_MAX: Final = 20
"""How many of a task's active runs are described: the oldest."""

ERROR_CHARS_MAX: Final = 400
"""Characters of an attempt's error in a statement; the run and its log have the rest."""


def standing(state: State, task: str, owner: str | None, because: Iterable[Reason], now_us: int) -> list[StandingView]:
    """Statements about `task` at `now_us`; those that keep it from running come first. It must be in `state`."""
    row = state.tasks[task]
    statements: list[StandingView] = []
    if owner is None:
        statements.append(_statement("no_owner", f"no member may run it: {_obstacles(because, row)}"))
    if row.paused:
        statements.append(_statement("paused", f"paused: it has no due times until it is resumed (rota resume {task})"))
    elif not row.timing.enabled:
        statements.append(
            _statement("disabled", "disabled: it has no due times until its definition has enabled: true")
        )
    statements += _runs([state.runs[run_id] for run_id in state.runs_of.get(task, ())], row, now_us)
    if not row.paused and row.timing.enabled:
        statements += _schedule(state, row, task, now_us)
    return statements


def _obstacles(because: Iterable[Reason], row: TaskRow) -> str:
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


def _runs(active: list[Run], row: TaskRow, now_us: int) -> Iterator[StandingView]:
    ahead = _run_ahead(active, row)
    for run in active[:RUNS_MAX]:
        number = run.attempts[-1].attempt if run.attempts else 0
        if run.state in HELD:
            verb = "is about to begin" if run.state == "claimed" else "runs"
            ending = f", and is being cancelled ({run.cancelling})" if run.cancelling is not None else ""
            yield _statement("running", f"attempt {number} of {run.run_id} {verb} on {run.node}{ending}", None, run)
        elif (due_us := due_of(run, now_us)) > now_us:
            yield _statement("backing_off", f"{run.run_id} {_pause(run, due_us)}", due_us, run)
        elif ahead is not None and ahead is not run and not run.action:
            detail = f"{run.run_id} waits behind {ahead.run_id} (overlap: {row.spec.overlap})"
            yield _statement("behind", detail, None, run)
        else:
            yield _statement("due", f"{run.run_id} is due and not claimed yet", None, run)
    if len(active) > RUNS_MAX:
        yield _statement("more", f"{len(active) - RUNS_MAX} more runs are active")


def _pause(run: Run, due_us: int) -> str:
    """Until when a run waits, and why."""
    until = rfc3339(due_us)
    if run.state == "orphaned":
        return f"backs off until {until}, the grace period of its failover"
    if run.aways:
        error = " ".join((run.attempts[-1].error or "").split())[:ERROR_CHARS_MAX]
        return f"waits until {until}, since what it needs does not answer: {error}"
    return f"backs off until {until}, after {run.failures} failed {'attempt' if run.failures == 1 else 'attempts'}"


def _run_ahead(active: list[Run], row: TaskRow) -> Run | None:
    """The run that the task's other runs wait for, as the owner decides (`node.duty.decide`); None: they do not."""
    if row.spec.overlap == "allow":
        return None
    active = [run for run in active if not run.action]
    held = [run for run in active if run.state in HELD]
    orphaned = [run for run in active if run.state == "orphaned"]
    free = [run for run in active if run.state in UNCLAIMED]
    return next(iter(held or orphaned or free), None)


def _schedule(state: State, row: TaskRow, task: str, now_us: int) -> Iterator[StandingView]:
    schedule = row.timing.schedule
    if schedule is None:
        if task not in state.runs_of:
            yield _statement("by_hand", f"it has no schedule: it runs when it is started by hand (rota run {task})")
        return
    if (why := unreadable(schedule)) is not None:
        yield _statement("unreadable", f"this member cannot evaluate its schedule: {why}")
        return
    due_us = next_occurrence_us(row, row.through_us)
    if due_us is None:
        if task not in state.runs_of:
            yield _statement("over", "its schedule has no further times")
    elif due_us > now_us:
        if row.timing.continuous:
            yield _statement(
                "backing_off", f"its next run backs off until {rfc3339(due_us)}, because the last one failed", due_us
            )
        else:
            yield _statement("not_due", f"not due until {rfc3339(due_us)}", due_us)
    else:
        yield _statement("due", f"due since {rfc3339(due_us or row.since_us)} and not claimed yet")


def _statement(code: str, detail: str, until_us: int | None = None, run: Run | None = None) -> StandingView:
    return {
        "code": code,
        "detail": detail,
        "until": rfc3339_or_none(until_us),
        "run_id": None if run is None else run.run_id,
    }
