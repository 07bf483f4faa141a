"""What the work's journal shows: who worked when, and from where to where."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path


@dataclass
class Attempt:
    """An attempt as its lines show it: positions are line numbers, `begin` is where it began."""

    run: str
    token: int
    first: int
    last: int
    begin: int = 0
    saving: int = 0
    """The highest step that it may have saved."""
    saved: int = 0
    """The highest step that it was told is saved."""
    ended: bool = False


@dataclass
class Journal:
    """All attempts at all runs, in the order of their first lines."""

    lines: int = 0
    attempts: dict[tuple[str, int], Attempt] = field(default_factory=dict)

    @property
    def by_run(self) -> dict[str, list[Attempt]]:
        """The attempts of each run, in the order of their first lines."""
        runs: dict[str, list[Attempt]] = {}
        for attempt in self.attempts.values():
            runs.setdefault(attempt.run, []).append(attempt)
        return runs


def read(path: Path) -> Journal:
    """The journal as it is now."""
    journal = Journal()
    for position, line in enumerate(path.read_text().splitlines() if path.exists() else ()):
        run, token, _, _, what, step = line.split(" ")
        attempt = journal.attempts.setdefault((run, int(token)), Attempt(run, int(token), position, position))
        attempt.last = position
        journal.lines += 1
        match what:
            case "start":
                attempt.begin = attempt.saving = attempt.saved = int(step)
            case "saving":
                attempt.saving = int(step)
            case "saved":
                attempt.saved = int(step)
            case "end":
                attempt.ended = True
    return journal


def faults(journal: Journal, alone: Iterable[str], anew: Iterable[str]) -> list[str]:
    """What must not be. `alone`: tasks of which one run works at a time; `anew`: those that begin from nothing.

    The order of lines is that of effects: a line of an older token after the first of a newer one is work that
    was taken over and went on.
    """
    found = []
    restarting = frozenset(anew)
    for run, attempts in journal.by_run.items():
        for before, after in pairwise(attempts):
            if after.token < before.token:
                found.append(f"{run}: token {after.token} began to work after token {before.token}")
            if before.last > after.first:
                found.append(
                    f"{run}: token {before.token} worked (line {before.last + 1}) after token {after.token} had begun "
                    f"(line {after.first + 1})"
                )
        found += _checkpoints(run, attempts, restarting)
    by_task: dict[str, list[Attempt]] = {}
    for attempt in journal.attempts.values():
        by_task.setdefault(task_of(attempt.run), []).append(attempt)
    for task in alone:
        for before, after in pairwise(by_task.get(task, ())):
            if before.last > after.first and before.run != after.run:
                found.append(
                    f"{task}: {before.run} worked (line {before.last + 1}) beside {after.run} (line {after.first + 1})"
                )
            if after.token < before.token:
                found.append(f"{task}: token {after.token} began to work after token {before.token}")
    return found


def _checkpoints(run: str, attempts: list[Attempt], restarting: frozenset[str]) -> Iterable[str]:
    saved = saving = 0
    for attempt in attempts:
        if task_of(run) in restarting:
            # Only an attempt that was lost begins from nothing: one that was handed over goes on.
            saved = 0
        if not saved <= attempt.begin <= saving:
            yield (
                f"{run}: token {attempt.token} began at {attempt.begin}; saved before it was {saved}, "
                f"perhaps up to {saving}"
            )
        saved, saving = max(saved, attempt.saved), max(saving, attempt.saving)


def task_of(run: str) -> str:
    """The task of a run, as this soak's names allow to say it."""
    return run.partition("~")[0]


def against(journal: Journal, runs: Mapping[str, Mapping[str, object]], claimed: Mapping[str, set[int]]) -> list[str]:
    """What the journal and history must agree on. `runs` by id, and the tokens that were `claimed` for each."""
    found = [
        f"{attempt.run}: token {attempt.token} worked, and history knows no such claim"
        for attempt in journal.attempts.values()
        if attempt.token not in claimed.get(attempt.run, set())
    ]
    for run, attempts in journal.by_run.items():
        told = runs.get(run)
        if told is not None and told["state"] == "succeeded" and told["cancelling"] is None:
            last = max(attempts, key=lambda attempt: attempt.token)
            if last.token == told["token"] and not last.ended:
                found.append(f"{run} succeeded, and its last attempt (token {last.token}) never came to its end")
    return found
