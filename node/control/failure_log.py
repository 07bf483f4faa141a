"""Logs each attempt that has failed, was lost, or has timed out, and whether its run is retried.

Only one node logs it: the member on which the attempt ran or, if the attempt was lost with that member, the leader. Of
the lines of one task, the first 50 within 30 s are written, and the others are counted. Attempts that succeed, are
cancelled or are given back are not logged.
"""

import logging
from collections.abc import Iterator
from typing import Final

from node.replication.state_machine import StateChange
from node.state.value import Attempt, EndedRun, Run

ERROR_CHARS_MAX: Final = 400
"""The most characters of an attempt's error in the line. The run and its log have the rest."""

_WORDS: Final = {"failed": "failed", "timed_out": "ran out of time", "orphaned": "was lost"}

_log = logging.getLogger("rota.runs")


def log_failures(changes: list[StateChange], me: str) -> None:
    """Log the failures in these changes that member `me` has to log."""
    for change in changes:
        for level, task, what in failures(change, me):
            # `node.runtime.log_repeats` counts lines of the same format. The format contains the task's name, so that
            # a task that fails all the time neither fills the disk nor hides the failures of another.
            _log.log(level, f"{task}: attempt %s", what)


def failures(change: StateChange, me: str) -> Iterator[tuple[int, str, str]]:
    """Yield the failures in a change that `me` has to log: level (ERROR if the run has ended), task, text. Pure."""
    before, after = change.before, change.after
    if change.touched is None or (after.runs is before.runs and not change.ended):
        return
    leads = after.lead.member == me
    for _, ended in change.ended:
        attempt = _closed(before.runs.get(ended.run.run_id), ended.run)
        if attempt is not None and ended.state != "cancelled" and _is_mine(attempt, me, leads):
            what = _what(ended.run, attempt, f"not tried again: {_why(ended)}")
            yield logging.ERROR, ended.run.task, what
    for task in sorted(change.touched):
        for run_id in after.runs_of.get(task, ()):
            run = after.runs[run_id]
            attempt = _closed(before.runs.get(run_id), run)
            if attempt is not None and _is_mine(attempt, me, leads):
                yield logging.WARNING, task, _what(run, attempt, _again(run, attempt))


def _closed(before: Run | None, run: Run) -> Attempt | None:
    """Return the latest attempt that has ended since `before`, or None."""
    if before is None or run is before:
        return None
    known = {one.attempt for one in before.attempts if one.finished_at_us is not None}
    ended = (one for one in reversed(run.attempts) if one.finished_at_us is not None and one.attempt not in known)
    return next(ended, None)


def _is_mine(attempt: Attempt, me: str, leads: bool) -> bool:
    if attempt.state == "orphaned":
        return leads
    return attempt.state in _WORDS and attempt.node == me


def _what(run: Run, attempt: Attempt, then: str) -> str:
    error = " ".join((attempt.error or "no reason given").split())[:ERROR_CHARS_MAX]
    return f"{attempt.attempt} on {attempt.node} {_WORDS[attempt.state]}: {error}; {then} (run {run.run_id})"


def _again(run: Run, attempt: Attempt) -> str:
    wait_s = (run.due_us - (attempt.finished_at_us or 0)) / 1e6
    when = f"in {wait_s:g} s" if run.due_us and wait_s > 0 else "at once"
    if attempt.state == "orphaned":
        return f"taken over {when}"
    return f"tried again {when}" + (", which does not count as one of its attempts" if run.aways else "")


def _why(ended: EndedRun) -> str:
    run, attempts = ended.run, ended.run.spec.retry.attempts
    match ended.state:
        case "failed" if run.action:
            return f"{run.action} is asked for by hand"
        case "failed" if run.aways:
            return f"it has waited for {run.spec.retry.away_s:g} s for a service that does not answer"
        case "failed" if run.failures < attempts:
            return "another attempt would fail the same way"
        case "failed":
            return f"{run.failures} of {attempts} {'attempt' if attempts == 1 else 'attempts'} failed"
        case "timed_out":
            return "a run that ran out of time never is"
    return ended.error or "it is abandoned"
