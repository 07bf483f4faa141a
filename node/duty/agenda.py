"""When each task is next worth a look: a heap that costs nothing while nothing is due."""

import heapq
import sys
from typing import Final

from node.state.value import State, TaskRow
from tasks.policy import rest_s
from tasks.schedule import next_due_us

UNCLAIMED: Final = frozenset({"waiting", "orphaned"})
"""A run in one of these belongs to nobody, and is there to be claimed."""


class Agenda:
    """One time for each task, in microseconds; the earliest comes first."""

    def __init__(self) -> None:
        self._times: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def put(self, task: str, at_us: int | None) -> None:
        """Look at `task` at `at_us`, and not at the time that was set before; None: not until it is put again."""
        if at_us is None:
            self._times.pop(task, None)
        elif self._times.get(task) != at_us:
            self._times[task] = at_us
            heapq.heappush(self._heap, (at_us, task))
            if len(self._heap) > 64 and len(self._heap) > 4 * len(self._times):
                self._heap = [(at_us, task) for task, at_us in self._times.items()]
                heapq.heapify(self._heap)

    def hasten(self, task: str, at_us: int) -> None:
        """Look at `task` at `at_us`, unless an earlier time is set."""
        self.put(task, min(at_us, self._times.get(task, at_us)))

    def due(self, now_us: int, most: int = sys.maxsize) -> list[tuple[int, str]]:
        """The tasks whose time has come, `most` of them, each after that time; they are taken off."""
        tasks: list[tuple[int, str]] = []
        while len(tasks) < most and (at_us := self.next_us()) is not None and at_us <= now_us:
            tasks.append(heapq.heappop(self._heap))
            del self._times[tasks[-1][1]]
        return tasks

    def next_us(self) -> int | None:
        """The earliest time set, or None."""
        while self._heap and self._times.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None


def first_look_us(state: State, task: str) -> int | None:
    """When something of `task` is due: an occurrence, or a run that belongs to nobody. None: nothing ever is."""
    row = state.tasks.get(task)
    if row is None:
        return None
    # Whether a run that nobody holds has to wait yet depends on what time it is: the look says when to look again.
    times = [0 for run in (state.runs[one] for one in state.runs_of.get(task, ())) if run.state in UNCLAIMED]
    if (next_us := next_occurrence_us(row, row.through_us)) is not None:
        times.append(next_us)
    return min(times, default=None)


def next_occurrence_us(row: TaskRow, after_us: int) -> int | None:
    """When the next occurrence of a task is due that is later than `after_us`; 0: at once; None: none is."""
    spec = row.timing
    if row.paused or not spec.enabled:
        return None
    due_us = next_due_us(spec.schedule, row.since_us, after_us)
    if due_us is not None and spec.continuous:
        # `since_us` is but the occurrence's name: it is due at once (0), or, after a failure, some time later.
        wait_s = rest_s(spec.retry, row.last.state if row.last else None)
        return due_us + round(wait_s * 1_000_000) if wait_s else 0
    return due_us
