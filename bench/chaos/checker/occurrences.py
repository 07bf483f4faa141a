"""Every due time of a schedule is there once, and was run, or passed over with reason.

In the manner of Jepsen's checker for Chronos: what was due is worked out here, by hand, from the schedule alone, and
matched to the runs that there are. Whether a run was begun in time is `attempts`'s. Times of the wall clock are made
those of CLOCK_BOOTTIME, in which the observer's and the work's are.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from bench.chaos.checker.excuses import Excuses, Spans, unexcused_s
from bench.chaos.checker.verdict import MISSED, SKIPPED, Verdict

PROMPT_S: Final = 1.5
"""An owner that can act has dealt with what is due after so much, however busy the machine is."""

SKEW_S: Final = 0.5
"""When a run ended is stamped by who proposes that, and it is active until that is committed: so much later, where
nothing is wrong but that the machine is busy.
"""

QUEUED_MAX: Final = 100
"""So many runs of a task wait at the most; what finds the queue full is skipped (docs/explanation/execution.md)."""


@dataclass(frozen=True)
class Clock:
    """The machine's wall clock and its CLOCK_BOOTTIME, read at one moment."""

    wall: datetime
    boot_s: float

    def boot_of(self, at: datetime) -> float:
        """A time of the wall clock on CLOCK_BOOTTIME."""
        return self.boot_s + (at - self.wall).total_seconds()

    def told(self, run: Mapping[str, Any], what: str) -> float:
        """A time that a member tells of a run."""
        return self.boot_of(datetime.fromisoformat(run[what]))


def occurrences(
    task: Mapping[str, Any], runs: Iterable[Mapping[str, Any]], until: datetime, clock: Clock, excuses: Excuses
) -> Verdict:
    """Every due time of a schedule is there once: run, skipped or missed. `until`: it was paused."""
    name, schedule = task["name"], task["schedule"]
    own = [run for run in runs if run["task"] == name]
    told = [run for run in own if run["trigger"] == "schedule"]
    verdict = Verdict()
    for state in ("skipped", "missed"):
        there = sum(run["count"] for run in told if run["state"] == state)
        if there != task[state]:
            verdict.found.append(f"{name}: {task[state]} {state} by its count, {there} in history")
    if "continuous" in schedule:
        return verdict
    since = datetime.fromisoformat(task["registered_at"])
    latest = max([since, until, *(datetime.fromisoformat(run["last_fire_at"]) for run in told)])
    due = list(_due(schedule, since, latest))
    mine = sorted((one for run in told for one in _each(verdict, run, due)), key=lambda run: str(run["fire_at"]))
    times = [datetime.fromisoformat(run["fire_at"]) for run in mine]
    verdict.found += [f"{name}: {time} is there {count} times" for time, count in Counter(times).items() if count > 1]
    verdict.found += [f"{name}: {time} was not due, and is there" for time in sorted(set(times) - set(due))]
    spans = excuses.anywhere
    for time in sorted(set(due) - set(times)):
        # The last ones may not have been dealt with when it was paused.
        if time < max([since, *times]) or unexcused_s(clock.boot_of(time), clock.boot_of(until), spans) > PROMPT_S:
            verdict.found.append(f"{name}: {time} was due, and there is no trace of it")
    following = dict(pairwise(due))
    for run, time in zip(mine, times, strict=True):
        next_s = clock.boot_of(following.get(time, time + timedelta(seconds=_interval_s(schedule))))
        _missed(verdict, run, clock.boot_of(time), next_s, spans)
        if run["state"] == "skipped":
            _skipped(verdict, run, task["overlap"], own, next_s, clock, excuses)
    return verdict


def _each(verdict: Verdict, run: Mapping[str, Any], due: Sequence[datetime]) -> list[Mapping[str, Any]]:
    """What was due of it: itself, or each occurrence that a record of several stands for, as if by itself.

    All of them are told to have been dealt with when the last was: what blocked that one had blocked the others.
    """
    if run["count"] == 1 and run["last_fire_at"] == run["fire_at"]:
        return [run]
    first, last = datetime.fromisoformat(run["fire_at"]), datetime.fromisoformat(run["last_fire_at"])
    within = due[bisect_left(due, first) : bisect_right(due, last)]
    if len(within) != run["count"] or [first, last] != [within[0], within[-1]]:
        verdict.found.append(f"{_said(run)} stands for {run['count']}, and {len(within)} were due up to {last}")
    if run["state"] not in ("skipped", "missed"):
        verdict.found.append(f"{_said(run)} stands for {run['count']}, and is {run['state']}")
    return [{**run, "fire_at": time.isoformat(), "last_fire_at": time.isoformat(), "count": 1} for time in within]


def _due(schedule: Mapping[str, Any], since: datetime, last: datetime) -> Iterable[datetime]:
    """By hand: `every_s` from the registration on, or each second that seven divides."""
    if "every_s" in schedule:
        step = timedelta(seconds=schedule["every_s"])
        return (since + number * step for number in range(1, int((last - since) / step) + 1))
    whole = since.replace(microsecond=0) + timedelta(seconds=1)
    seconds = (whole + timedelta(seconds=number) for number in range(int((last - whole).total_seconds()) + 1))
    return (second for second in seconds if second.second % 7 == 0)


def _interval_s(schedule: Mapping[str, Any]) -> float:
    return float(schedule.get("every_s", 7))


def _missed(verdict: Verdict, run: Mapping[str, Any], due_s: float, next_s: float, excuses: Spans) -> None:
    """An occurrence is missed where nobody could deal with it before the next one was due, and nowhere else."""
    had_s = unexcused_s(due_s, next_s, excuses)
    excuse = had_s < min(PROMPT_S, next_s - due_s)
    wrong = None
    if run["state"] == "missed" and not excuse:
        wrong = f"{_said(run)} was missed, and for {had_s:.1f} s its owner could have dealt with it"
    verdict.judge(MISSED, run["task"], wrong, excuse=excuse)


def _skipped(
    verdict: Verdict,
    run: Mapping[str, Any],
    overlap: str,
    own: Sequence[Mapping[str, Any]],
    next_s: float,
    clock: Clock,
    excuses: Excuses,
) -> None:
    """An occurrence is skipped beside an active run of its task, as history has it: what is due is dealt with in its
    order, so that one which was due before it had begun to wait or to run by then.
    """
    at_s, due_s = clock.told(run, "finished_at"), clock.told(run, "fire_at")
    others = [
        clock.told(other, "finished_at") if other["finished_at"] is not None else at_s
        for other in own
        if other["state"] not in ("skipped", "missed")
        and clock.told(other, "fire_at") < (due_s if other["trigger"] == "schedule" else at_s)
    ]
    # What ended when nobody could commit it was active until somebody could.
    late_s = SKEW_S + excuses.committed_s(at_s)
    beside = [end_s for end_s in others if end_s >= at_s or unexcused_s(end_s, at_s, excuses.cluster) <= late_s]
    wrong = None
    if overlap in ("queue", "allow"):
        if len(beside) < QUEUED_MAX:
            wrong = f"{_said(run)} was skipped, and overlap is {overlap}"
    elif not beside:
        ended = f"the last had ended {at_s - max(others):.1f} s before" if others else "none was there before it"
        wrong = f"{_said(run)} was skipped, and no other run was active: {ended}"
    elif overlap == "replace" and at_s < next_s - SKEW_S:
        wrong = f"{_said(run)} was skipped, and was the latest: it was to replace the one before"
    verdict.judge(SKIPPED, run["task"], wrong, excuse=max(beside, default=at_s) < at_s - SKEW_S)


def _said(run: Mapping[str, Any]) -> str:
    return f"{run['task']}: {run['fire_at']} ({run['run_id']})"
