"""What the work itself shows: nobody works beside his successor, nothing saved is lost, and history agrees.

Of one task the order of the lines of its record is that of the effects: a line of an older token after the first of
a newer one is work that was taken over and went on.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

from bench.chaos.records import Attempt, Records


def overlaps(records: Records, alone: Iterable[str], anew: Iterable[str]) -> list[str]:
    """What must not be. `alone`: tasks of which one run works at a time; `anew`: those that begin from nothing."""
    found = []
    restarting = frozenset(anew)
    for run, attempts in records.by_run.items():
        for before, after in pairwise(attempts):
            if after.token < before.token:
                found.append(f"{run}: token {after.token} began to work after token {before.token}")
            if before.last > after.first:
                found.append(
                    f"{run}: token {before.token} worked (line {before.last + 1}) after token {after.token} had begun "
                    f"(line {after.first + 1}){_beside(before, after)}"
                )
        found += _checkpoints(run, attempts, restarting)
    by_task: dict[str, list[Attempt]] = {}
    for attempt in records.attempts.values():
        by_task.setdefault(attempt.task, []).append(attempt)
    for task in alone:
        for before, after in pairwise(by_task.get(task, ())):
            if before.last > after.first and before.run != after.run:
                found.append(
                    f"{task}: {before.run} worked (line {before.last + 1}) beside {after.run} (line {after.first + 1})"
                    f"{_beside(before, after)}"
                )
            if after.token < before.token:
                found.append(f"{task}: token {after.token} began to work after token {before.token}")
    return found


def _checkpoints(run: str, attempts: list[Attempt], restarting: frozenset[str]) -> Iterable[str]:
    saved = saving = 0
    for attempt in attempts:
        if attempt.task in restarting:
            # Only an attempt that was lost begins from nothing: one that was handed over goes on.
            saved = 0
        if not saved <= attempt.begin <= saving:
            yield (
                f"{run}: token {attempt.token} began at {attempt.begin}; saved before it was {saved}, "
                f"perhaps up to {saving}"
            )
        saved, saving = max(saved, attempt.saved), max(saving, attempt.saving)


def _beside(before: Attempt, after: Attempt) -> str:
    return f": on {before.node} until {before.last_s:.3f}, on {after.node} from {after.begun_s:.3f}"


def against(records: Records, runs: Mapping[str, Mapping[str, Any]], claimed: Mapping[str, set[int]]) -> list[str]:
    """What the records and history must agree on. `runs` by id, and the tokens that were `claimed` for each."""
    worked = records.by_run
    found = [
        f"{attempt.run}: token {attempt.token} worked, and history knows no such claim"
        for attempt in records.attempts.values()
        if attempt.token not in claimed.get(attempt.run, set())
    ]
    for run, attempts in worked.items():
        told = runs.get(run)
        if told is not None and told["state"] == "succeeded" and told["cancelling"] is None:
            last = max(attempts, key=lambda attempt: attempt.token)
            if last.token == told["token"] and not last.ended:
                found.append(f"{run} succeeded, and its last attempt (token {last.token}) never came to its end")
    found += [
        f"{run} succeeded, and nobody was seen to work at it"
        for run, told in runs.items()
        if told["state"] == "succeeded" and told["cancelling"] is None and run not in worked
    ]
    return found
