"""How a task stands, in words: why something of it runs, waits, or is not due. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final

from hashing.preference import Reason
from node.duty.agenda import UNCLAIMED, next_occurrence_us
from node.http.responses import StandingView
from node.http.times import rfc3339, rfc3339_or_none
from node.state.value import Run, State, TaskRow
from node.state.waiting import due_us as due_of
from tasks.run import HELD
from tasks.schedule import unreadable

RUNS_MAX: Final = 20
"""Of a task's active runs so many are told of, the oldest."""


def standing(state: State, task: str, owner: str | None, because: Iterable[Reason], now_us: int) -> list[StandingView]:
    """What there is to be said of `task`, which is in `state`, at `now_us`; what keeps it from beginning is first."""
    row = state.tasks[task]
    said: list[StandingView] = []
    if owner is None:
        said.append(_said("no_owner", f"no member may run it: {_obstacles(because, row)}"))
    if row.paused:
        said.append(_said("paused", f"paused: nothing of it falls due until it is resumed (rota resume {task})"))
    elif not row.timing.enabled:
        said.append(_said("disabled", "not enabled: nothing of it falls due until its definition says enabled: true"))
    said += _runs([state.runs[run_id] for run_id in state.runs_of.get(task, ())], row, now_us)
    if not row.paused and row.timing.enabled:
        said += _schedule(state, row, task, now_us)
    return said


def _obstacles(because: Iterable[Reason], row: TaskRow) -> str:
    group = ", ".join(f"{name}={value}" for name, value in row.placing.group)
    words = {
        "down": "is down",
        "draining": "is draining",
        "vacant": "is no member",
        "group": f"lacks a label ({group})",
        "kind": f"does not offer the kind {row.placing.kind}",
        "full": "is full",
    }
    found = [f"{node} {words.get(verdict, verdict)}" for node, verdict in because if node is not None]
    return ", ".join(found) or "there are no members"


def _runs(active: list[Run], row: TaskRow, now_us: int) -> Iterator[StandingView]:
    ahead = _ahead(active, row)
    for run in active[:RUNS_MAX]:
        number = run.attempts[-1].attempt if run.attempts else 0
        if run.state in HELD:
            verb = "is about to begin" if run.state == "claimed" else "runs"
            ending = f", and is being cancelled ({run.cancelling})" if run.cancelling is not None else ""
            yield _said("running", f"attempt {number} of {run.run_id} {verb} on {run.node}{ending}", None, run)
        elif (due_us := due_of(run, now_us)) > now_us:
            why = (
                "when the grace of its failover is over"
                if run.state == "orphaned"
                else f"after {run.failures} failed {'attempt' if run.failures == 1 else 'attempts'}"
            )
            yield _said("backing_off", f"{run.run_id} backs off until {rfc3339(due_us)}, {why}", due_us, run)
        elif ahead is not None and ahead is not run:
            detail = f"{run.run_id} waits behind {ahead.run_id} (overlap: {row.spec.overlap})"
            yield _said("behind", detail, None, run)
        else:
            yield _said("due", f"{run.run_id} is due, and nobody has begun it", None, run)
    if len(active) > RUNS_MAX:
        yield _said("more", f"{len(active) - RUNS_MAX} more runs are active")


def _ahead(active: list[Run], row: TaskRow) -> Run | None:
    """The run that the others of the task wait for, as the owner decides (`node.duty.decide`); None: they do not."""
    if row.spec.overlap == "allow":
        return None
    held = [run for run in active if run.state in HELD]
    orphaned = [run for run in active if run.state == "orphaned"]
    free = [run for run in active if run.state in UNCLAIMED]
    return next(iter(held or orphaned or free), None)


def _schedule(state: State, row: TaskRow, task: str, now_us: int) -> Iterator[StandingView]:
    schedule = row.timing.schedule
    if schedule is None:
        if task not in state.runs_of:
            yield _said("by_hand", f"it has no schedule: it runs when it is started (rota run {task})")
        return
    if (why := unreadable(schedule)) is not None:
        yield _said("unreadable", f"its schedule cannot be worked out on this member: {why}")
        return
    due_us = next_occurrence_us(row, row.through_us)
    if due_us is None:
        if task not in state.runs_of:
            yield _said("over", "its schedule has no times to come")
    elif due_us > now_us:
        if row.timing.continuous:
            yield _said("backing_off", f"its next run backs off until {rfc3339(due_us)}, since the last failed", due_us)
        else:
            yield _said("not_due", f"not due until {rfc3339(due_us)}", due_us)
    else:
        yield _said("due", f"due since {rfc3339(due_us or row.since_us)}, and nobody has begun it")


def _said(code: str, detail: str, until_us: int | None = None, run: Run | None = None) -> StandingView:
    return {
        "code": code,
        "detail": detail,
        "until": rfc3339_or_none(until_us),
        "run_id": None if run is None else run.run_id,
    }
