"""The time of the next decision on each task, in a heap that costs no time while no task is due."""

import heapq
import sys
from typing import Final

from node.state.calendar import Calendars, days_of
from node.state.value import State, TaskRow
from tasks.definition.policy import rest_s
from tasks.definition.schedule import next_due_us

UNCLAIMED: Final = frozenset({"waiting", "orphaned"})
"""The states of runs that no member holds, and that can be claimed."""


class Agenda:
    """One time for each task, in microseconds; the earliest comes first."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def put(self, task: str, at_us: int | None) -> None:
        """Set the time of `task` to `at_us`, in place of an earlier setting; None: remove it."""
        if at_us is None:
            self._times.pop(task, None)
        elif self._times.get(task) != at_us:
            self._times[task] = at_us
            heapq.heappush(self._heap, (at_us, task))
            if len(self._heap) > 64 and len(self._heap) > 4 * len(self._times):
                self._heap = [(at_us, task) for task, at_us in self._times.items()]
                heapq.heapify(self._heap)

    def hasten(self, task: str, at_us: int) -> None:
        """Set the time of `task` to `at_us`, unless it is earlier already."""
        self.put(task, min(at_us, self._times.get(task, at_us)))

    def due(self, now_us: int, most: int = sys.maxsize) -> list[tuple[int, str]]:
        """Remove and return the tasks whose time has come, `most` at most, as pairs of time and task."""
        tasks: list[tuple[int, str]] = []
        while len(tasks) < most and (at_us := self.next_us()) is not None and at_us <= now_us:
            tasks.append(heapq.heappop(self._heap))
            del self._times[tasks[-1][1]]
        return tasks

    def next_us(self) -> int | None:
        """Return the earliest time set, or None."""
        while self._heap and self._times.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None


def first_look_us(state: State, task: str) -> int | None:
    """Return when a decision on `task` is due, for an occurrence or a run that no member holds. None: never."""
    row = state.tasks.get(task)
    if row is None:
        return None
    # A run that no member holds is decided on at once. If it must still wait, the decision gives the next time.
    times = [0 for run in (state.runs[one] for one in state.runs_of.get(task, ())) if run.state in UNCLAIMED]
    if (next_us := next_occurrence_us(state.calendars, row, row.through_us)) is not None:
        times.append(next_us)
    return min(times, default=None)


def next_occurrence_us(calendars: Calendars, row: TaskRow, after_us: int) -> int | None:
    """Return the due time of the first occurrence later than `after_us`; 0: at once; None: there is none."""
    spec = row.timing
    if row.paused or not spec.enabled:
        return None
    due_us = next_due_us(spec.schedule, days_of(calendars, spec), row.since_us, after_us)
    if due_us is not None and spec.continuous:
        # `since_us` only names the occurrence, which is due at once (0), or some time after a failure.
        wait_s = rest_s(spec.retry, row.last.state if row.last else None)
        return due_us + round(wait_s * 1_000_000) if wait_s else 0
    return due_us
