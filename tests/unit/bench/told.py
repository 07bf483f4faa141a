"""What members tell of tasks and runs, made up: for the tests of the checker. Times are seconds after `BEGIN`."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from bench.chaos.checker.occurrences import Clock
from bench.chaos.records import Attempt, Records

BEGIN = datetime(2026, 11, 21, 6, 0, 0, 500_000, tzinfo=UTC)
BEGIN_S = 1000.0
"""The same on CLOCK_BOOTTIME."""

CLOCK = Clock(BEGIN, BEGIN_S)


def at(after_s: float) -> datetime:
    """A time of the wall clock."""
    return BEGIN + timedelta(seconds=after_s)


def task(runs: Iterable[Mapping[str, Any]] = (), **more: Any) -> dict[str, Any]:
    """The task "a", due every two seconds unless it is said otherwise, that counted what there is of `runs`."""
    passed: Counter[str] = Counter()
    for run in runs:
        passed[run["state"]] += run["count"]
    return {
        "name": "a",
        "overlap": "skip",
        "schedule": {"every_s": 2.0},
        "retry": {"attempts": 3, "backoff_s": 10, "factor": 2, "max_s": 900},
        "registered_at": BEGIN.isoformat(),
        "skipped": passed["skipped"],
        "missed": passed["missed"],
        **more,
    }


def run(due_s: float, state: str = "succeeded", finished_s: float | None = None, **more: Any) -> dict[str, Any]:
    """A run of it, by default finished a second after it was due; what was passed over was so when it was due."""
    lasted_s = 0.01 if state in ("skipped", "missed") else 1.0
    return {
        "run_id": f"a~{due_s:g}",
        "task": "a",
        "trigger": "schedule",
        "fire_at": at(due_s).isoformat(),
        "finished_at": at(due_s + lasted_s if finished_s is None else finished_s).isoformat(),
        "state": state,
        "error": None,
        "cancelling": None,
        "attempts": [],
        "count": 1,
        "last_fire_at": at(due_s).isoformat(),
        **more,
    }


def worked(*seconds: tuple[str, float, float]) -> dict[str, list[Attempt]]:
    """Attempts by run, each from when to when it was at work."""
    records = Records()
    for token, (one, from_s, to_s) in enumerate(seconds):
        records.take("a", 2 * token, f"{one} {token} node-1 - {BEGIN_S + from_s} begin 0")
        for beat in range(1, int((to_s - from_s) / 0.5)):
            records.take("a", 2 * token, f"{one} {token} node-1 - {BEGIN_S + from_s + beat * 0.5} beat {beat}")
        records.take("a", 2 * token + 1, f"{one} {token} node-1 - {BEGIN_S + to_s} end 1")
    return records.by_run
