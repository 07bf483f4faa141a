"""The entries that start, checkpoint, finish and cancel attempts, and the orphaning of a lost member's runs.

An entry with a token is refused ("fenced") unless the token is the run's present one.
"""

from dataclasses import dataclass
from typing import Any, Final

from node.state.bounds import TASK_RUNS_BYTES_MAX, run_bytes
from node.state.copying import replace
from node.state.draft import ATTEMPTS_KEPT, DONE, ERROR_CHARS_MAX, Draft, refused
from node.state.entries import Entry, applies
from node.state.value import Attempt, Result, Run
from tasks.definition.policy import AWAY_ANEW_S, after_orphaning, away_after_s, retry_after_s
from tasks.definition.run import HELD, AttemptEnd, RunState

CHECKPOINT_BYTES_MAX: Final = 65_536
_WHY_CHARS_MAX: Final = 200
_ENDS: Final[dict[str, RunState]] = {"succeeded": "succeeded", "cancelled": "cancelled", "timed_out": "timed_out"}
_GIVEN_BACK: Final[dict[str, str]] = {
    "not_started": "given back before it began",
    "handed_over": "handed over to the task's owner",
}


RULES_GOES_ON: Final = 5
"""From these rules on (`Lead.rules`), a checkpoint of a continuous task's run sets its count of lost attempts to 0."""


@dataclass(frozen=True, slots=True)
class Began(Entry):
    """The attempt's work has started: `claimed -> running`."""

    run_id: str
    token: int


@applies(Began, code=16)
def began(draft: Draft, entry: Began) -> Result:
    """Note that the attempt's work has started. Idempotent."""
    run = _held(draft, entry.run_id, entry.token)
    if run is None:
        return _fenced(entry.run_id)
    if run.state == "claimed":
        attempt = replace(run.attempts[-1], state="running", started_at_us=entry.at_us)
        draft.put_run(replace(run, state="running", attempts=(*run.attempts[:-1], attempt)))
    return DONE


@dataclass(frozen=True, slots=True)
class Checkpoint(Entry):
    """Save the checkpoint to resume from: msgpack, 64 KiB at most."""

    run_id: str
    token: int
    data: bytes


@applies(Checkpoint, code=17)
def checkpoint(draft: Draft, entry: Checkpoint) -> Result:
    """Save the checkpoint to resume from. It replaces the previous one.

    For a continuous task, the count of lost attempts is reset: its only run lasts for months, and in that time it loses
    attempts whenever a member fails.
    """
    run = _held(draft, entry.run_id, entry.token)
    if run is None:
        return _fenced(entry.run_id)
    if len(entry.data) > CHECKPOINT_BYTES_MAX:
        return refused("too-large", f"a checkpoint has {CHECKPOINT_BYTES_MAX} bytes at most, not {len(entry.data)}")
    goes_on = run.spec.continuous and draft.lead.rules >= RULES_GOES_ON
    after = replace(run, checkpoint=entry.data, orphanings=0 if goes_on else run.orphanings)
    others = [other for other in draft.active(run.task) if other.run_id != run.run_id]
    if draft.lead.rules and others and sum(map(run_bytes, [after, *others])) > TASK_RUNS_BYTES_MAX:
        return refused("full", f"no room for this checkpoint: the active runs of {run.task} hold too much together")
    draft.put_run(after)
    return DONE


@dataclass(frozen=True, slots=True)
class Finish(Entry):
    """The attempt has ended."""

    #: The id of the run.
    run_id: str
    #: The token of the attempt.
    token: int
    #: How the attempt ended. `not_started`: given back; `handed_over`: stopped so that the task's owner can continue.
    end: AttemptEnd
    #: The figures and artifact URLs that the kind returned; None if it returned none.
    result: dict[str, Any] | None = None
    #: Why the attempt failed; None if it did not fail.
    error: str | None = None
    #: Whether another attempt may succeed. False: it would fail the same way.
    retry: bool = True
    #: Whether the attempt's log is incomplete.
    log_truncated: bool = False


@applies(Finish, code=18)
def finish(draft: Draft, entry: Finish) -> Result:
    """End an attempt. The run ends too, or waits for its next attempt. Result: `{"state"}`, the run's new state."""
    run = _held(draft, entry.run_id, entry.token)
    if run is None:
        return _fenced(entry.run_id)
    if entry.end == "failed" or (entry.end == "away" and (run.action or run.spec.retry.away_s == 0)):
        return _failed(draft, run, entry)
    if entry.end == "away":
        return _found_away(draft, run, entry)
    if entry.end in _GIVEN_BACK:
        return _given_back(draft, run, entry)
    return _ended(draft, run, _ENDS[entry.end], entry)


@dataclass(frozen=True, slots=True)
class Cancel(Entry):
    """Cancel a run: at once if no member holds it, else through the member that holds it."""

    run_id: str
    why: str = "asked"


@applies(Cancel, code=19)
def cancel(draft: Draft, entry: Cancel) -> Result:
    """Cancel a run: at once if no member holds it, else through its holder. Result: `{"state"}`."""
    run = draft.runs.get(entry.run_id)
    if run is None:
        return refused("no-such-run", f"no run {entry.run_id!r} is active: it has ended, or never was")
    return Result("ok", {"state": stop_run(draft, run, entry.why[:_WHY_CHARS_MAX], entry.at_us)})


def stop_run(draft: Draft, run: Run, why: str, at_us: int) -> RunState:
    """End a run, or ask its holder to end it. If a reason is stored already, only the reason `deleted` replaces it."""
    if run.state not in HELD:
        draft.end(replace(run, cancelling=why), "cancelled", at_us, error=why)
        return "cancelled"
    if run.cancelling is None or why == "deleted":
        draft.put_run(replace(run, cancelling=why))
    return run.state


def lose_runs(draft: Draft, member: str, at_us: int) -> None:
    """Orphan the runs of a member that is down, was removed, or joins anew."""
    held = [run for run in draft.runs.values() if run.node == member and run.state in HELD]
    # Sorted, because the order of a map differs between members.
    for run in sorted(held, key=lambda run: run.token):
        _lose(draft, run, at_us)


def _lose(draft: Draft, run: Run, at_us: int) -> None:
    failover = run.spec.failover
    lost = replace(_closed(run, "orphaned", at_us, f"{run.node} was lost"), orphanings=run.orphanings + 1)
    if run.cancelling is not None:
        draft.end(lost, "cancelled", at_us, error=run.cancelling)
    elif after_orphaning(failover, lost.orphanings) == "abandoned":
        draft.end(lost, "abandoned", at_us, error=f"its attempts were lost {lost.orphanings} times")
    else:
        draft.put_run(
            replace(
                _released(lost, "orphaned", _later_us(at_us, failover.grace_s)),
                checkpoint=None if failover.resume == "restart" else run.checkpoint,
            )
        )


def _failed(draft: Draft, run: Run, entry: Finish) -> Result:
    failed = replace(run, failures=run.failures + 1, aways=0)
    if run.cancelling is not None:
        return _ended(draft, failed, "cancelled", entry)
    again = entry.retry and not run.action  # actions are not retried, because their client sees the failure
    delay_s = retry_after_s(run.spec.retry, failed.failures) if again else None
    if delay_s is None:
        return _ended(draft, failed, "failed", entry)
    closed = _closed(failed, "failed", entry.at_us, entry.error, entry.log_truncated)
    draft.put_run(_released(closed, "waiting", _later_us(entry.at_us, delay_s)))
    return Result("ok", {"state": "waiting"})


def _found_away(draft: Draft, run: Run, entry: Finish) -> Result:
    """Retry later, as an outside service is unreachable. No retry is used up; the run fails after the last pause."""
    if run.cancelling is not None:
        return _ended(draft, run, "cancelled", entry)
    began_us = run.attempts[-1].started_at_us
    worked_us = 0 if began_us is None else entry.at_us - began_us
    away = replace(run, aways=1 if worked_us >= AWAY_ANEW_S * 1_000_000 else run.aways + 1)
    pause_s = away_after_s(run.spec.retry, away.aways)
    if pause_s is None:
        return _ended(draft, away, "failed", entry)
    closed = _closed(away, "failed", entry.at_us, entry.error, entry.log_truncated)
    draft.put_run(_released(closed, "waiting", _later_us(entry.at_us, pause_s)))
    return Result("ok", {"state": "waiting"})


def _given_back(draft: Draft, run: Run, entry: Finish) -> Result:
    if run.cancelling is not None:
        return _ended(draft, run, "cancelled", entry)
    closed = _closed(run, "waiting", entry.at_us, entry.error or _GIVEN_BACK[entry.end], entry.log_truncated)
    draft.put_run(_released(closed, "waiting", 0))
    return Result("ok", {"state": "waiting"})


def _ended(draft: Draft, run: Run, state: RunState, entry: Finish) -> Result:
    closed = _closed(run, state, entry.at_us, entry.error, entry.log_truncated)
    draft.end(closed, state, entry.at_us, entry.error, entry.result)
    return Result("ok", {"state": state})


def _closed(run: Run, state: RunState, at_us: int, error: str | None, log_truncated: bool = False) -> Run:
    """Return a copy of the run in which its present attempt has ended."""
    attempt: Attempt = replace(
        run.attempts[-1],
        state=state,
        finished_at_us=at_us,
        error=error and error[:ERROR_CHARS_MAX],
        log_truncated=log_truncated,
    )
    return replace(run, attempts=(*run.attempts[:-1], attempt)[-ATTEMPTS_KEPT:])


def _released(run: Run, state: RunState, due_us: int) -> Run:
    """Return a copy of the run without a holder, which may be claimed from `due_us` on."""
    return replace(run, state=state, due_us=due_us, node=None, incarnation=0, token=0)


def _later_us(at_us: int, wait_s: float) -> int:
    """Return the time at which a wait ends; 0 if the wait is 0.

    It is 0 rather than `at_us`, because the clock that stamped the entry may be an hour ahead, and a failover must not
    wait for that hour to pass.
    """
    return at_us + round(wait_s * 1_000_000) if wait_s else 0


def _held(draft: Draft, run_id: str, token: int) -> Run | None:
    """Return the run if a member holds it under this token, else None."""
    run = draft.runs.get(run_id)
    return run if run is not None and run.state in HELD and run.token == token else None


def _fenced(run_id: str) -> Result:
    return refused("fenced", f"this token is not the present one of {run_id!r}: its work must stop")
