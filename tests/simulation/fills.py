"""Params that depend on the occurrence: made once, of its time and of its parents' results. Made anew here, by hand.

Nothing here asks `tasks.definition.template`: the tasks of the simulation have a few expressions, which are known.
"""

from collections import Counter
from datetime import timedelta
from typing import Any, Final

from node.state.apply import Applied
from node.state.entries import Proposal
from node.state.times import EPOCH
from node.state.value import EndedRun, OccurrenceId, Run, State
from tasks.definition.run import HELD
from tasks.definition.spec import Cron, Every, Schedule
from tests.simulation.world import World

S: Final = 1_000_000
NOMINAL: Final = "{{ nominal }}"
WINDOW: Final = "{{ window_start | unix }}-{{ window_end | unix }}"


class Fills:
    """Watches every accepted entry of a history with such tasks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.counts: Counter[str] = Counter()
        self._results: dict[tuple[str, str, OccurrenceId], dict[str, Any]] = {}
        """By the task that needs it, the one whose result it is, and the occurrence."""
        self._schedules: dict[str, Schedule] = {}
        """Of each task that has or had one: it stays the same in a history."""
        self._roots: dict[str, str] = {}
        """The task from which each descends."""

    def watch(self, before: State, proposal: Proposal, applied: Applied) -> None:
        """An entry was applied."""
        after = applied.state
        if before.tasks is not after.tasks:
            self._learn(after, applied)
        for ended in applied.ended:
            occurrence = ended.run.occurrence
            if ended.result is not None and occurrence is not None:
                for child, row in after.tasks.items():  # only what is needed by then is kept
                    if f"of_{ended.run.task}" in row.spec.params:
                        self._results[child, ended.run.task, occurrence] = ended.result
            if ended.run.spec.template and ended.state == "failed" and not ended.run.attempts:
                self._failed(before, ended)
        for task in applied.touched:
            for run_id in after.runs_of.get(task, ()):
                run = after.runs[run_id]
                if run is not before.runs.get(run_id) and run.spec.template:
                    self._run(before.runs.get(run_id), run)
        if before.carried is not after.carried or before.joins is not after.joins:
            self._kept(after)

    def _learn(self, state: State, applied: Applied) -> None:
        for task in applied.touched:
            row = state.tasks.get(task)
            if row is None or not row.spec.template:
                continue
            if row.spec.schedule is not None:
                self._schedules[task] = row.spec.schedule
            root = task
            while root in state.tasks and state.tasks[root].spec.after:
                root = state.tasks[root].spec.after[0].task
            self._roots[task] = root

    def _run(self, was: Run | None, run: Run) -> None:
        if run.params is None:
            if run.state in HELD:
                self._world.wrong(f"{run.run_id} is held, and its params are not made")
            return
        if was is not None and was.params is not None:
            if was.params != run.params:
                self._world.wrong(f"the params of {run.run_id} were {was.params}, and are {run.params}")
            return
        self.counts["params made"] += 1
        wanted, lacking = self._filled(run)
        if lacking or wanted != run.params:
            self._world.wrong(f"{run.run_id} has the params {run.params}, which should be {wanted}, without {lacking}")

    def _failed(self, before: State, ended: EndedRun) -> None:
        """A run that never began has failed: something that its params need must be missing."""
        run = ended.run
        _, lacking = self._filled(run)
        rootless = "window" in run.spec.params and self._roots.get(run.task) not in before.tasks
        if not lacking and not rootless:
            self._world.wrong(f"{run.run_id} fails, and nothing is missing: {ended.error}")
        self.counts["params lacking"] += 1

    def _filled(self, run: Run) -> tuple[dict[str, Any], list[str]]:
        """What the params of a run should be, and what is missing."""
        nominal_us = run.nominal_us or run.fire_at_us
        by_hand = run.trigger == "manual" or run.generation != 0
        made: dict[str, Any] = {}
        lacking: list[str] = []
        for name, value in run.spec.params.items():
            made[name] = value
            if value == NOMINAL:
                made[name] = (EPOCH + timedelta(microseconds=nominal_us)).isoformat().replace("+00:00", "Z")
            elif value == WINDOW:
                schedule = self._schedules.get(self._roots[run.task])
                if by_hand or schedule is None:
                    lacking.append("a window")
                else:
                    made[name] = f"{_before_us(schedule, nominal_us) // S}-{nominal_us // S}"
            elif name.startswith("of_"):
                parent = name.removeprefix("of_")
                known = None if run.occurrence is None else (run.task, parent, run.occurrence)
                result = {} if known is None else self._results.get(known, {})
                if "token" in result:
                    made[name] = result["token"]
                else:
                    lacking.append(f"the result of {parent}")
        return made, lacking

    def _kept(self, state: State) -> None:
        """Only for what waits is something kept."""
        for task in state.carried:
            for one in state.carried[task]:
                occurrence = one.nominal_us, one.generation
                waits = any(
                    (join.nominal_us, join.generation) == occurrence and not join.decided
                    for join in state.joins.get(task, ())
                )
                told = any(
                    (end.task, end.nominal_us, end.generation) == (one.parent, *occurrence)
                    for end in state.ends.values()
                )
                if not waits and not told:
                    self._world.wrong(f"what {one.parent} left at {occurrence} is kept for {task}, which does not wait")
        sizes = sum(64 + len(one.packed) for kept in state.carried.values() for one in kept)
        if state.runs_bytes < sizes:
            self._world.wrong(f"{sizes} bytes are kept of results, and {state.runs_bytes} are counted")


def _before_us(schedule: Schedule, nominal_us: int) -> int:
    """The time before one of a schedule of the simulation: so many seconds, or the last second that a line names."""
    if isinstance(schedule, Every):
        return max(0, nominal_us - round(schedule.every_s * S))
    assert isinstance(schedule, Cron)
    step = int(schedule.cron.removeprefix("*/").split()[0])
    at_us = nominal_us // S * S
    while at_us == nominal_us or at_us // S % 60 % step:
        at_us -= S
    return at_us
