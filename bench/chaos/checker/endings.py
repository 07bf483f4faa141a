"""Every run ends as its task's do, and for the reason for which they do."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from bench.chaos.checker.excuses import Excuses
from bench.chaos.checker.occurrences import Clock
from bench.chaos.checker.verdict import LENGTH_S, STATES, Verdict
from bench.chaos.tasks import FAILING

_BY_REQUEST: Final = "asked"
"""Why a run is cancelled by `DELETE /v1/runs/{run_id}`."""

PASSED_OVER: Final = frozenset({"skipped", "missed"})
"""Whether these are right is judged by the schedule."""


def endings(
    runs: Iterable[Mapping[str, Any]],
    ends: Mapping[str, frozenset[str]],
    cancelled: Iterable[str],
    clock: Clock,
    excuses: Excuses,
) -> Verdict:
    """`ends`: how the runs of each task may end. `cancelled`: tasks of which runs are cancelled by request."""
    verdict = Verdict()
    asked = frozenset(cancelled)
    for run in runs:
        task, state = run["task"], run["state"]
        if run["finished_at"] is None or (state in PASSED_OVER and run["trigger"] == "schedule"):
            continue
        failed = [attempt for attempt in run["attempts"] if attempt["state"] == "failed"]
        for_nothing = [attempt for attempt in failed if not _told_to(task, attempt)]
        wrong = None
        if unexplained := [one for one in for_nothing if not _no_disk(one, clock, excuses)]:
            wrong = f"failed on {unexplained[0]['node']}: {unexplained[0]['error']}"
        elif state == "failed" and for_nothing:
            pass  # its node could not write a byte
        elif state not in ends.get(task, frozenset()):
            wrong = f"has {state}: {run['error']}"
        elif state == "cancelled" and run["cancelling"] != (_BY_REQUEST if task in asked else "replaced"):
            wrong = f"was cancelled, because: {run['cancelling']}"
        elif state == "abandoned" and not any(attempt["state"] == "orphaned" for attempt in run["attempts"]):
            wrong = "was abandoned, and no attempt of it was lost"
        verdict.judge(STATES, task, wrong and f"{run['run_id']} {wrong}", excuse=bool(for_nothing))
    return verdict


def _told_to(task: str, attempt: Mapping[str, Any]) -> bool:
    return task == FAILING and str(attempt["error"]).endswith(f"attempt {attempt['attempt']} was told to fail")


def _no_disk(attempt: Mapping[str, Any], clock: Clock, excuses: Excuses) -> bool:
    """Whether an attempt failed because its node's disk was full."""
    at_s = clock.told(attempt, "finished_at")
    was_full = any(from_s <= at_s <= to_s for from_s, to_s in excuses.disk.get(attempt["node"], ()))
    return was_full and any(word in str(attempt["error"]) for word in ("No space left on device", "no room on "))


def never(runs: Iterable[Mapping[str, Any]], needed: Mapping[str, frozenset[str]], length_s: float) -> list[str]:
    """The states in which runs of each task cannot but have ended in a trial of `length_s`, and none has."""
    if length_s < LENGTH_S:
        return []
    seen = {(run["task"], run["state"]) for run in runs}
    return [
        f"nothing was judged: no run of {task} has {state}"
        for task, states in needed.items()
        for state in sorted(states)
        if (task, state) not in seen
    ]
