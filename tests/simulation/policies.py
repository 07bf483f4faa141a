"""What becomes of due occurrences, held against what their tasks' policies say (DESIGN.md, section 8).

Whoever proposes has seen a state that may be a moment old: what changed within `LATELY_S` may be as it was before.
"""

from itertools import islice, takewhile

from node.state.apply import Applied
from node.state.entries import Claim, DeleteTask, Enqueue, Entry, PassOver, Pause, PutTasks, Unreadable
from node.state.value import Ended, State, TaskRow
from tasks.policy import KEPT, LATENESS_S
from tasks.schedule import occurrences
from tests.simulation.world import World

LATELY_S = 20.0


class Policies:
    """Watches every accepted entry."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._active_s: dict[str, float] = {}
        self._changed_s: dict[str, float] = {}

    def watch(self, before: State, entry: Entry | Unreadable, applied: Applied) -> None:
        """An accepted entry."""
        now_s, after = self._world.now_s, applied.state
        for task in applied.touched:
            if task in before.runs_of or task in after.runs_of:
                self._active_s[task] = now_s
            if isinstance(entry, PutTasks | Pause | DeleteTask):
                self._changed_s[task] = now_s
        if isinstance(entry, Claim | Enqueue | PassOver):
            row = before.tasks[entry.task]
            self._in_order(row, entry)
            if isinstance(entry, PassOver):
                self._passed_over(before, row, entry)
        for one in applied.ended:
            self._ended(one)

    def _lately(self, times_s: dict[str, float], task: str) -> bool:
        return self._world.now_s - times_s.get(task, float("-inf")) < LATELY_S

    def _in_order(self, row: TaskRow, entry: Claim | Enqueue | PassOver) -> None:
        """Occurrences are dealt with in order, and none is left out."""
        if isinstance(entry, Claim):
            times: tuple[int, ...] = () if entry.run_id is not None else (entry.fire_at_us,)
        else:
            times = tuple(one for one in entry.fire_at_us if one > row.through_us)
        if not times or self._lately(self._changed_s, entry.task):
            return
        expected = tuple(islice(occurrences(row.spec.schedule, row.since_us, row.through_us), len(times)))
        if times != expected:
            self._world.wrong(f"an occurrence of {entry.task} is left out: {entry}, where {expected} were due")

    def _passed_over(self, before: State, row: TaskRow, entry: PassOver) -> None:
        spec, last_us = row.spec, entry.fire_at_us[-1]
        if entry.state == "skipped":
            active = entry.task in before.runs_of or self._lately(self._active_s, entry.task)
            if not active or (spec.overlap == "allow" and spec.catch_up != "all"):
                self._world.wrong(f"{entry.task} ({spec.overlap}) skips with nothing active: {entry}")
            return
        following = takewhile(lambda one: one <= entry.at_us, occurrences(spec.schedule, row.since_us, last_us))
        due = sum(1 for _ in islice(following, KEPT))
        late = spec.catch_up == "skip" and last_us < entry.at_us - LATENESS_S * 1_000_000
        each = spec.catch_up == "all" and spec.overlap != "replace"
        fits = due >= KEPT if each else due > 0 or late
        if not fits and not self._lately(self._changed_s, entry.task):
            self._world.wrong(f"{entry.task} ({spec.catch_up}) misses what it need not miss: {entry}")

    def _ended(self, ended: Ended) -> None:
        run, spec = ended.run, ended.run.spec
        if ended.state == "abandoned" and spec.failover.resume != "abandon" and run.orphanings < spec.failover.max:
            self._world.wrong(f"{run.run_id} is abandoned after {run.orphanings} of {spec.failover.max} losses")
        if ended.state == "cancelled" and run.cancelling is None and run.attempts[-1].state != "cancelled":
            self._world.wrong(f"{run.run_id} is cancelled, and nobody asked for it")
        if ended.state == "failed" and run.failures < spec.retry.attempts and run.attempts[-1].error != "it failed":
            self._world.wrong(
                f"{run.run_id} has failed for good after {run.failures} of {spec.retry.attempts} attempts"
            )
