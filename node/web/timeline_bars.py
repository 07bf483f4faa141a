"""The bars of the timeline: past attempts, running attempts, and occurrences ahead. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from node.duty.forecast import PlannedRun
from node.runtime.durations import duration
from node.state.times import rfc3339
from node.state.value import Attempt, OccurrenceId, Run, State
from tasks.definition.run import HELD, RunState

BarLook = Literal["good", "bad", "lost", "ended", "running", "expected", "planned", "moved", "gone"]
"""`lost`: its member was lost. `ended`: cancelled, or given back. `expected`: the rest of a running attempt, if it
takes as long as the task's last run. In a what-if, `moved`: planned, and owned by another member at present; `gone`:
an occurrence that the present owner loses."""

NOBODY: Final = "no owner"
"""The lane of occurrences that no member may run. It is no member's name, since these have no spaces."""

_LOOKS: Final[dict[RunState, BarLook]] = {
    "succeeded": "good",
    "failed": "bad",
    "timed_out": "bad",
    "abandoned": "lost",
    "orphaned": "lost",
    "claimed": "running",
    "running": "running",
}

_SAID: Final[dict[BarLook, str]] = {
    "good": "succeeded",
    "bad": "failed",
    "lost": "lost with its member",
    "running": "running",
    "planned": "planned",
    "moved": "planned",
    "gone": "would not begin here",
}


@dataclass(frozen=True, slots=True)
class TimeBar:
    """A bar in one member's lane: an attempt, or an occurrence ahead."""

    #: The member, or `NOBODY`.
    member: str
    #: The beginning, in microseconds since the epoch.
    begins_us: int
    #: The end, in microseconds since the epoch.
    ends_us: int
    #: The kind of bar, which decides how it is drawn.
    look: BarLook
    #: The name of the task.
    task: str
    #: The description for the reader.
    said: str
    #: The run; "" for an occurrence ahead.
    run_id: str = ""
    #: The number of the attempt; 0 for an occurrence ahead.
    attempt: int = 0
    #: The occurrence that its run shares with the tasks before and after it; None: it has none, or is ahead.
    occurrence: OccurrenceId | None = None

    @property
    def key(self) -> str:
        """A unique key, by which the browser keeps the focus on the bar."""
        return f"{self.run_id}.{self.attempt}" if self.run_id else f"{self.task}.{self.begins_us}.{self.look}"

    @property
    def is_past(self) -> bool:
        """Whether it is an attempt that has begun, up to now."""
        return bool(self.run_id) and self.look != "expected"

    @property
    def stands_out(self) -> bool:
        """Whether the bar is drawn even if there are too many to draw, and others are only counted."""
        return self.look in ("bad", "lost", "running", "expected") or self.attempt > 1


def run_bars(run: Run, now_us: int, took_us: int | None = None) -> Iterator[TimeBar]:
    """Yield the bars of a run's attempts, active or ended. `took_us`: how long the task's last run took, if known."""
    for attempt in run.attempts:
        if attempt.state in HELD:
            yield _running_bar(run, attempt, now_us)
            ends_us = (attempt.started_at_us or attempt.claimed_at_us) + (took_us or 0)
            if ends_us > now_us:
                said = f"{run.task}: expected to end at {_second(ends_us)}, if it takes as long as the last run"
                yield TimeBar(
                    member=attempt.node,
                    begins_us=now_us,
                    ends_us=ends_us,
                    look="expected",
                    task=run.task,
                    said=said,
                    run_id=run.run_id,
                    attempt=attempt.attempt,
                    occurrence=run.occurrence,
                )
        elif attempt.finished_at_us is not None:
            yield _ended_bar(run, attempt, attempt.finished_at_us)


def nearest(task: str, parents: Mapping[str, Sequence[str]], known: Callable[[str], bool]) -> list[str]:
    """Return the known tasks before a task: its parents, and in place of one that is not known those before it.

    >>> nearest("d", {"d": ("b", "c"), "c": ("a",), "b": ("a",)}, "ab".__contains__)
    ['b', 'a']
    """
    found, seen, ahead = list[str](), {task}, list(parents.get(task, ()))
    while ahead:
        one = ahead.pop(0)
        if one not in seen:
            seen.add(one)
            if known(one):
                found.append(one)
            else:
                ahead += parents.get(one, ())
    return found


def say_parents(bars: Iterable[TimeBar], parents: Mapping[str, Sequence[str]]) -> list[TimeBar]:
    """Add to what is said of each bar after which tasks of the same occurrence it came, as far as these have bars.

    `parents` has the tasks before each task; what is before a task without a bar counts in its place.
    """
    bars = list(bars)
    known = {(bar.task, bar.occurrence) for bar in bars if bar.occurrence is not None}
    said = []
    for bar in bars:
        at = bar.occurrence
        before = nearest(bar.task, parents, lambda one, at=at: (one, at) in known)  # type: ignore[misc]
        said.append(replace(bar, said=f"{bar.said}; it came after {' and '.join(before)}") if before else bar)
    return said


def _running_bar(run: Run, attempt: Attempt, now_us: int) -> TimeBar:
    begins_us = attempt.started_at_us or attempt.claimed_at_us
    said = f"{_named(run, attempt)} on {attempt.node}, running since {_second(begins_us)}"
    return TimeBar(
        member=attempt.node,
        begins_us=begins_us,
        ends_us=max(begins_us, now_us),
        look="running",
        task=run.task,
        said=said,
        run_id=run.run_id,
        attempt=attempt.attempt,
        occurrence=run.occurrence,
    )


def _ended_bar(run: Run, attempt: Attempt, ends_us: int) -> TimeBar:
    begins_us = min(attempt.started_at_us or attempt.claimed_at_us, ends_us)
    look = _LOOKS.get(attempt.state, "ended")
    what = _SAID.get(look, attempt.state.replace("_", " "))
    took = duration((ends_us - begins_us) / 1e6)
    said = f"{_named(run, attempt)} on {attempt.node}, {_second(begins_us)}, {what} after {took}"
    return TimeBar(
        member=attempt.node,
        begins_us=begins_us,
        ends_us=ends_us,
        look=look,
        task=run.task,
        said=said,
        run_id=run.run_id,
        attempt=attempt.attempt,
        occurrence=run.occurrence,
    )


def _named(run: Run, attempt: Attempt) -> str:
    return run.task + (f", attempt {attempt.attempt}" if attempt.attempt > 1 or len(run.attempts) > 1 else "")


def _second(at_us: int) -> str:
    return rfc3339(at_us - at_us % 1_000_000)


def active_bars(state: State, now_us: int) -> Iterator[TimeBar]:
    """Yield the bars of the attempts of all active runs."""
    for run in state.runs.values():
        row = state.tasks.get(run.task)
        last = row.last if row is not None else None
        yield from run_bars(run, now_us, last.took_us if last is not None else None)


def planned_bars(runs: Iterable[PlannedRun], until_us: int) -> Iterator[TimeBar]:
    """Yield the bars of occurrences ahead, in the lanes of the members that would begin them."""
    for run in runs:
        member = run.owner or NOBODY
        look: BarLook = "moved" if run.moved else "planned"
        where = f"on {member}" if run.owner else "and nobody may run it"
        said = f"{run.task}, due at {_second(run.at_us)}, {where}"
        if run.moved:
            said += f", moved from {run.source or 'nobody'}"
        if run.held is not None:
            said += f", {run.held}"
        yield _ahead(run, member, look, said + _takes(run), until_us)


def gone_bars(runs: Iterable[PlannedRun], until_us: int) -> Iterator[TimeBar]:
    """Yield the bars of occurrences that their present owners would lose, in the lanes of these owners."""
    for run in runs:
        said = f"{run.task}, due at {_second(run.at_us)}, goes from {run.source or 'nobody'} to {run.owner or 'nobody'}"
        yield _ahead(run, run.source or NOBODY, "gone", said, until_us)


def _ahead(run: PlannedRun, member: str, look: BarLook, said: str, until_us: int) -> TimeBar:
    ends_us = until_us if run.continuous else min(until_us, run.at_us + (run.took_us or 0))
    return TimeBar(member=member, begins_us=run.at_us, ends_us=ends_us, look=look, task=run.task, said=said)


def _takes(run: PlannedRun) -> str:
    if run.continuous:
        return "; it runs all the time"
    if run.took_us is None:
        return "; no run has ended yet, so how long it takes is not known"
    return f"; its last run took {duration(run.took_us / 1e6)}"
