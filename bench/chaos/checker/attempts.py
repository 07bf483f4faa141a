"""Work goes on: what is due is begun, what was lost is tried again, what is over is finished, all of it soon.

Waiting is counted in time that is not excused: see `excuses`.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from bench.chaos.checker.excuses import Excuses, Spans, unexcused_s
from bench.chaos.checker.occurrences import Clock
from bench.chaos.checker.verdict import AT_WORK, BEGUN, ENDED, TAKEN_OVER, Verdict
from bench.chaos.records import Attempt

LATE_S: Final = 5.0
"""What can be begun is at work within so much: a claim, and a start that took 2.3 s on cores that were busy eight times
over (README.md, Measured). `long-grace` asks for 1.5 s of it before it is taken over.
"""

EARLY_S: Final = 0.5
"""Nothing begins so long before it is due. The machine's clock is slewed, and was read once."""


def in_time(
    task: Mapping[str, Any],
    runs: Iterable[Mapping[str, Any]],
    worked: Mapping[str, Sequence[Attempt]],
    clock: Clock,
    excuses: Excuses,
) -> Verdict:
    """Whether each run of a task was begun when it was due, went on, and was finished. `worked`: attempts by run."""
    name = task["name"]
    verdict = Verdict()
    on = {node: excuses.on(node) for node in {one.node for tries in worked.values() for one in tries}}
    free_s = 0.0
    run_ones = [run for run in runs if run["task"] == name and run["state"] not in ("missed", "skipped")]
    for run in sorted(run_ones, key=lambda run: str(run["fire_at"])):
        due_s = clock.told(run, "fire_at")
        tries = sorted(worked.get(run["run_id"], ()), key=lambda attempt: attempt.begun_s)
        if tries:
            if tries[0].begun_s < due_s - EARLY_S:
                early_s = due_s - tries[0].begun_s
                verdict.found.append(f"{_said(run)} was begun {early_s:.1f} s before it was due")
            rests = _rests(task["retry"], run, clock)
            # Where runs do not work side by side, each waits for those before it.
            free_at_s = due_s if task["overlap"] == "allow" else max(due_s, free_s)
            _soon(verdict, BEGUN, run, "due", _rested(free_at_s, tries[0].begun_s, rests), on[tries[0].node])
            for before, after in pairwise(tries):
                what = f"its attempt on {before.node} was last at work"
                waited = _rested(before.last_s, after.begun_s, rests)
                _soon(verdict, TAKEN_OVER, run, what, waited, on[after.node])
            for attempt in tries:
                for (_, to_s), (from_s, _) in pairwise(attempt.works):
                    _soon(verdict, AT_WORK, run, f"it stood still on {attempt.node}", (to_s, from_s), excuses.cluster)
        if run["finished_at"] is not None:
            finished_s = clock.told(run, "finished_at")
            if tries:
                last_s = max(attempt.last_s for attempt in tries)
                _soon(verdict, ENDED, run, "its work was over", (last_s, finished_s), excuses.cluster)
            free_s = max(free_s, finished_s)
    return verdict


def _rests(retry: Mapping[str, Any], run: Mapping[str, Any], clock: Clock) -> Spans:
    """The waits between attempts that its task asks for. Whether an attempt may fail is judged by `endings`."""
    ends_s = [clock.told(attempt, "finished_at") for attempt in run["attempts"] if attempt["state"] == "failed"]
    waits_s = [min(retry["max_s"], retry["backoff_s"] * retry["factor"] ** number) for number in range(len(ends_s))]
    return [(end_s, end_s + wait_s) for end_s, wait_s in zip(ends_s, waits_s, strict=True)]


def _rested(from_s: float, to_s: float, rests: Spans) -> tuple[float, float]:
    """What was waited between these times, less a rest in between that the task asks for."""
    return max([from_s, *(end_s for begin_s, end_s in rests if from_s <= begin_s <= to_s)]), to_s


def _soon(
    verdict: Verdict, kind: str, run: Mapping[str, Any], since: str, waited: tuple[float, float], excuses: Spans
) -> None:
    from_s, to_s = waited
    late_s = unexcused_s(from_s, to_s, excuses)
    wrong = None
    if late_s > LATE_S:
        wrong = f"{_said(run)} was not {kind} until {late_s:.1f} s of time without excuse after {since}"
    verdict.judge(kind, run["task"], wrong, excuse=late_s < to_s - from_s)


def continuous(name: str, attempts: Iterable[Attempt], begin_s: float, end_s: float, excuses: Excuses) -> Verdict:
    """Whether somebody was at work all the while, from the registration at `begin_s` to the pause at `end_s`."""
    verdict = Verdict()
    mine = sorted((one for one in attempts if one.task == name), key=lambda attempt: attempt.begun_s)
    if not mine:
        verdict.found.append(f"{name} is continuous, and nobody was ever at work")
    free_s, after = begin_s, "its registration"
    # A hole within an attempt, whose work was frozen, is one as well.
    works = sorted((work, attempt.run, excuses.on(attempt.node)) for attempt in mine for work in attempt.works)
    for (from_s, to_s), run, spans in [*works, ((end_s, end_s), "the pause", excuses.cluster)]:
        hole_s = unexcused_s(free_s, from_s, spans)
        wrong = None
        if hole_s > LATE_S:
            wrong = f"{name}: nobody was at work for {hole_s:.1f} s of time without excuse, from {after} to {run}"
        verdict.judge(AT_WORK, name, wrong, excuse=hole_s < from_s - free_s)
        if to_s >= free_s:
            free_s, after = to_s, run
    return verdict


def _said(run: Mapping[str, Any]) -> str:
    return f"{run['task']}: {run['fire_at']} ({run['run_id']})"
