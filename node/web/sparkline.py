"""Sparklines: how long the latest runs of a task took, as small bars in the task's row of the list."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from node.http.door.request_context import RequestContext
from node.http.node_port import HistoryPort
from node.runtime.durations import seconds
from node.state.run_times import took_us
from node.state.value import EndedRun

RUNS: Final = 12
"""The number of latest runs that are shown."""

HEIGHT: Final = 14
"""The height of the tallest bar, in units of the picture."""

KEPT: Final = 2000
"""The bars of at most this many tasks are kept. A task's bars are valid until another run of it ends."""


@dataclass(frozen=True, slots=True)
class Sparkline:
    """Bars, oldest first, each with its height and whether the run succeeded. `words` says the same in words."""

    bars: tuple[tuple[int, bool], ...]
    words: str


def sparkline_of(took: Sequence[tuple[float, bool]]) -> Sparkline | None:
    """Return the bars of runs, from (seconds, whether it succeeded) of each, oldest first; None for less than two runs.

    >>> sparkline_of([(0.5, True), (2.0, False)])
    Sparkline(bars=((4, True), (14, False)), words='the last 2 runs took 0.50 s to 2.0 s, 1 did not succeed')
    """
    if len(took) < 2:
        return None
    times_s = [time_s for time_s, _ in took]
    most_s = max(times_s) or 1
    bars = tuple((max(1, round(HEIGHT * time_s / most_s)), good) for time_s, good in took)
    bad = sum(not good for _, good in took)
    failed = f", {bad} did not succeed" if bad else ""
    return Sparkline(bars, f"the last {len(took)} runs took {seconds(min(times_s))} to {seconds(max(times_s))}{failed}")


class SparklineKeeper:
    """Keeps the bars of the tasks that were shown recently. Used on the loop; another thread reads the history."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[str, Sparkline | None]] = OrderedDict()
        """By task: the id of its last ended run, and the bars."""

    async def of(self, context: RequestContext, tasks: Sequence[str]) -> dict[str, Sparkline]:
        """Return the bars of these tasks; tasks without bars are left out."""
        rows = context.state.tasks
        last = {task: row.last.run_id for task in tasks if (row := rows.get(task)) is not None and row.last is not None}
        unknown = [task for task, run_id in last.items() if self._kept.get(task, ("", None))[0] != run_id]
        if unknown:
            read = await asyncio.to_thread(_read, context.node.history, unknown)
            for task, spark in zip(unknown, read, strict=True):
                self._kept[task] = last[task], spark
                self._kept.move_to_end(task)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        found = {task: self._kept[task][1] for task in last if task in self._kept}
        return {task: spark for task, spark in found.items() if spark is not None}


def _read(history: HistoryPort, tasks: Sequence[str]) -> list[Sparkline | None]:
    return [sparkline_of(_took(history.runs(task, None, None, None, RUNS))) for task in tasks]


def _took(newest_first: Sequence[EndedRun]) -> list[tuple[float, bool]]:
    found = []
    for ended in reversed(newest_first):
        time_us = took_us(ended.run, ended.finished_at_us)
        if time_us is not None and not ended.run.action:
            found.append((time_us / 1e6, ended.state == "succeeded"))
    return found
