"""What must hold, whatever was killed, once all that was due has ended (pure).

Each occurrence of each task is there once, and ended as its parents' ends and its own fate say. What ran succeeded or
failed in one attempt, whose parents had all ended before it began. No attempt began twice, and none did anything after
a later one at its run had begun.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, Final, NamedTuple

from tests.chaos.successor_kills.shapes import AT_TIMES, PARENTS, ROOTS, TASKS
from tests.chaos.successor_kills.work import Line, fate

_RAN: Final = ("succeeded", "failed")
_END: Final = {"succeeded": "succeeded", "failed": "failed", "upstream_failed": "failed"}


class Occurrence(NamedTuple):
    """A time, which a task shares with all that descend from it, and the number of a rerun (None: of none)."""

    nominal: datetime
    rerun: int | None


Roots = Mapping[str, Collection[Occurrence]]


class Seen(NamedTuple):
    """All that was seen of one task: the runs as the API tells them, and the lines of its ledger."""

    runs: Sequence[Mapping[str, Any]]
    lines: Sequence[Line]

    def of(self) -> dict[Occurrence, list[Mapping[str, Any]]]:
        """The runs by their occurrences."""
        found: dict[Occurrence, list[Mapping[str, Any]]] = defaultdict(list)
        for run in self.runs:
            found[Occurrence(datetime.fromisoformat(run["fire_at"]), run["rerun"])].append(run)
        return found


def expected(task: str, occurrence: Occurrence, roots: Roots) -> str | None:
    """The state in which an occurrence of a task must end; None: it has no such occurrence.

    `roots` has the occurrences of each task with a schedule, or without parents.
    """
    parents, its_own = PARENTS[task], task in roots
    if its_own and occurrence not in roots[task]:
        return None
    states = {
        parent: None if before is None else expected(parent, before, roots)
        for parent, before in befores(task, occurrence, roots).items()
    }
    if not its_own and all(state is None for state in states.values()):
        return None
    # A parent without this occurrence counts as skipped.
    ends = [(parents[parent], _END.get(state or "", "skipped")) for parent, state in states.items()]
    if any(on == "succeeded" and end == "failed" for on, end in ends):
        return "upstream_failed"
    if any(on != "failed" and end == "skipped" for on, end in ends):
        return "upstream_skipped"
    if any(on == "failed" and end != "failed" for on, end in ends):
        return "not_needed"
    return _own(task, occurrence)


def befores(task: str, occurrence: Occurrence, roots: Roots) -> dict[str, Occurrence | None]:
    """The occurrence of each parent that an occurrence of a task comes after: for a task with a schedule the latest."""
    if task not in ROOTS:
        return dict.fromkeys(PARENTS[task], occurrence)
    return {
        parent: max((one for one in roots[parent] if one.nominal <= occurrence.nominal), default=None)
        for parent in PARENTS[task]
    }


def _own(task: str, occurrence: Occurrence) -> str:
    fails = TASKS[task].get("fails", False) and fate(task, occurrence.nominal) == "fails"
    return "failed" if fails else "succeeded"


def violations(seen: Mapping[str, Seen], until: datetime) -> list[str]:
    """What does not hold, in words. The occurrences of tasks with a schedule or started by hand are taken as they are.

    `until`: a moment before the first task was paused.
    """
    runs = {task: one.of() for task, one in seen.items()}
    roots = {task: frozenset(runs[task]) for task, parents in PARENTS.items() if task in ROOTS or not parents}
    every = sorted({one for found in roots.values() for one in found}, key=lambda one: (one.nominal, one.rerun or 0))
    found: list[str] = []
    for task in PARENTS:
        lines: dict[str, list[Line]] = defaultdict(list)
        for line in seen[task].lines:
            lines[line.run].append(line)
        known = {run["run_id"] for run in seen[task].runs}
        found += [f"{run} of {task} is in its ledger, and no member knows it" for run in lines if run not in known]
        for occurrence in every:
            if task in AT_TIMES and occurrence.nominal > until:
                continue
            should, there = expected(task, occurrence, roots), runs[task].get(occurrence, [])
            if [run["state"] for run in there] != ([] if should is None else [should]):
                states = ", ".join(f"{run['run_id']} {run['state']}" for run in there) or "nothing"
                found.append(f"{task} at {_said(occurrence)}: there is {states}; it should be {should}")
            for run in there:
                found += _of_run(run, lines[run["run_id"]])
                found += _of_parents(lines[run["run_id"]], befores(task, occurrence, roots), runs, seen)
        alone = runs[task].keys() - {*every}
        found += [f"{task} at {_said(one)}: its parents have no such occurrence" for one in alone]
        if TASKS[task].get("overlap") == "queue":
            blocks = [run for run, _ in groupby(seen[task].lines, key=lambda line: line.run)]
            found += [f"{run} of {task} went on beside another run" for run in {*blocks} if blocks.count(run) > 1]
    return found


def _said(occurrence: Occurrence) -> str:
    return occurrence.nominal.isoformat() + (f" of rerun {occurrence.rerun}" if occurrence.rerun else "")


def _of_run(run: Mapping[str, Any], lines: Sequence[Line]) -> Iterator[str]:
    """What is wrong with a run's attempts, and what they wrote down."""
    name, ends = run["run_id"], [attempt["state"] for attempt in run["attempts"]]
    if run["state"] in _RAN:
        if not ends or ends[-1] != run["state"] or ends.count("succeeded") != (run["state"] == "succeeded"):
            yield f"{name} is {run['state']}, its attempts: {', '.join(ends) or 'none'}"
        wanted = "end" if run["state"] == "succeeded" else "failed"
        if not lines or (lines[-1].what, lines[-1].token) != (wanted, run["token"]):
            yield f"{name} is {run['state']} by token {run['token']}, and its ledger ends with {lines[-1:]}"
    elif lines or ends:
        yield f"{name} is {run['state']}, and there were attempts: {ends}, {lines}"
    begun: list[int] = []
    for line in lines:
        if line.what == "begin":
            if begun and line.token <= max(begun):
                yield f"{name}: token {line.token} began after {begun}"
            begun.append(line.token)
        elif not begun or line.token != begun[-1]:
            yield f"{name}: token {line.token} went on ({line.what}) after {begun[-1:]} had begun"
    given = {attempt["token"] for attempt in run["attempts"]}
    if run["state"] in _RAN and not given.issuperset(begun):
        yield f"{name}: {sorted({*begun} - given)} began, and were never given"


def _of_parents(
    lines: Sequence[Line],
    before: Mapping[str, Occurrence | None],
    runs: Mapping[str, Mapping[Occurrence, Sequence[Mapping[str, Any]]]],
    seen: Mapping[str, Seen],
) -> Iterator[str]:
    """Whether a parent did something for the occurrence that the child comes after, once the child had begun."""
    for parent, occurrence in before.items() if lines else ():
        of_parent = {run["run_id"] for run in runs[parent].get(occurrence, ())} if occurrence else set()
        late = [line for line in seen[parent].lines if line.run in of_parent and line.at_s > lines[0].at_s]
        if late:
            yield f"{lines[0].run} began at {lines[0].at_s}, and {parent} went on: {late}"
