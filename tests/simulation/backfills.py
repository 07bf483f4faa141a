"""Backfills: each past time once and in order, its runs behind all others, and told of nowhere but there.

Which times there are, what is under way and how it ended is gathered here from definitions and entries.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Final

from node.state.apply import Applied
from node.state.backfill import BackfillRow
from node.state.backfills import AdvanceBackfill, ChangeBackfill, StartBackfill
from node.state.claims import Claim
from node.state.entries import Entry, Proposal
from node.state.registry import DeleteTask
from node.state.value import Run, State, TaskRow
from tasks.definition.run import HELD
from tasks.definition.spec import Cron, Every
from tests.simulation.kin import as_end, children_of
from tests.simulation.world import World

HALF_OF_PLACES: Final = 3
"""Of the places of a member here (`tests.simulation.process.MAX_RUNS`)."""

UNKNOWN: Final = 1
"""So many claims may be granted whose member was not told of that, and has made another one since."""

IN_A_ROW: Final = 5
GRACE_S: Final = 6.0
"""What the leader has to do is done in this time, while one member leads and is well."""


def past_times(row: TaskRow, from_us: int, to_us: int) -> list[int]:
    """The times of a task's schedule in a range, however long ago: those of its interval, or so many whole seconds."""
    schedule = row.spec.schedule
    if isinstance(schedule, Every):
        step_us, phase_us = round(schedule.every_s * 1e6), row.since_us
    elif isinstance(schedule, Cron):
        step_us, phase_us = int(schedule.cron.removeprefix("*/").partition(" ")[0]) * 1_000_000, 0
    else:
        return []
    first_us = from_us + (phase_us - from_us) % step_us
    return list(range(first_us, to_us, step_us))


def below(state: State, task: str) -> frozenset[str]:
    """A task and those that are due for its times: all after it that have no times of their own."""
    found = {task}
    while (
        more := {
            child for name in found for child in children_of(state, name) if state.tasks[child].spec.schedule is None
        }
        - found
    ):
        found |= more
    return frozenset(found)


@dataclass(slots=True)
class Filled:
    """What is known of a backfill: the times to come, what is under way by its rerun, and how the others ended."""

    left: list[int]
    task: str
    parallel: int
    paused: bool = False
    cancelled: bool = False
    exhausted: bool = False
    in_row: int = 0
    under_way: dict[int, set[str]] = field(default_factory=dict)
    ends: Counter[str] = field(default_factory=Counter)

    @property
    def over(self) -> bool:
        """Nothing of it is left."""
        return not self.under_way and (self.exhausted or self.cancelled)


class Backfills:
    """Watches every accepted entry of a history."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._filled: dict[int, Filled] = {}
        self._runs: set[str] = set()
        self._marks: dict[int, list[tuple[str, str]]] = defaultdict(list)
        """How tasks ended the occurrences under way, by the number of their rerun."""
        self._stuck_s: dict[int, float] = {}
        self._led: tuple[str, int] | None = None
        self.counts: Counter[str] = Counter()

    def watch(self, before: State, proposal: Proposal, applied: Applied) -> None:
        """An entry was applied."""
        entry, after = proposal.entry, applied.state
        if not applied.result.ok or not (after.backfills or before.backfills):
            return
        match entry:
            case StartBackfill():
                self._begun(before, entry, int(applied.result.value["backfill"]))
            case AdvanceBackfill():
                self._advanced(before, after, entry)
            case ChangeBackfill() if one := self._filled[entry.number]:
                one.paused = {"paused": True, "resumed": False}.get(entry.change, one.paused)
                one.cancelled = one.cancelled or entry.change == "cancelled"
                one.in_row = 0 if entry.change == "resumed" and before.backfills[entry.number].paused else one.in_row
            case DeleteTask():
                for one in self._filled.values():
                    if one.task == entry.task and not one.over:
                        one.cancelled = True
                        for generation in one.under_way:
                            if all(task != one.task for task, _ in self._marks[generation]):
                                self._marks[generation].append((one.task, "skipped"))
            case Claim() if entry.run_id in self._runs:
                self._claimed(before, after, entry)
        self._ended(before, after, applied)
        self._leaves_alone(before, after, applied)

    def _begun(self, before: State, entry: StartBackfill, number: int) -> None:
        times = past_times(before.tasks[entry.task], entry.from_us, entry.to_us)
        self._filled[number] = Filled(times[::-1] if entry.newest_first else times, entry.task, entry.parallel)
        self.counts["backfills"] += 1

    def _advanced(self, before: State, after: State, entry: AdvanceBackfill) -> None:
        one, row = self._filled[entry.number], after.backfills[entry.number]
        if entry.exhausted and one.left:
            self._world.wrong(f"backfill {entry.number} is said to have no more times, and has {one.left}")
        one.exhausted = one.exhausted or entry.exhausted
        if not entry.nominal_us:
            return
        begun = [run for run in after.runs.values() if run.run_id not in before.runs]
        if row.why.endswith("continuous") and not begun:
            one.paused = True
            return
        if one.paused or one.cancelled or len(one.under_way) >= one.parallel:
            self._world.wrong(f"{entry} begins one more, beside {one}")
        if one.left[:1] != [entry.nominal_us]:
            self._world.wrong(f"{entry} begins another time than {one.left[:1]}")
            return
        if [(run.fire_at_us, run.backfill, run.state) for run in begun] != [(entry.nominal_us, row.number, "waiting")]:
            self._world.wrong(f"{entry} makes {begun}")
            return
        del one.left[0]
        tasks = below(after, row.task) if row.downstream else frozenset({row.task})
        one.under_way[begun[0].generation] = set(tasks)
        self.counts["past times"] += 1
        self.counts["past times of chains"] += len(tasks) > 1

    def _claimed(self, before: State, after: State, entry: Claim) -> None:
        """A run of a backfill begins: beside no other where these may not overlap, and in one of half of the places."""
        run = before.runs[entry.run_id or ""]
        others = [before.runs[one] for one in before.runs_of[run.task] if one != run.run_id]
        live = [one.run_id for one in others if not (one.action or one.backfill)]
        if live and before.tasks[run.task].spec.overlap != "allow":
            self._world.wrong(f"{run.run_id} of a backfill begins while {live} are there")
        held = _held(after)
        if (many := sum(one.node == entry.member for one in held)) > HALF_OF_PLACES + UNKNOWN:
            self._world.wrong(f"{entry.member} has {many} runs of backfills, which is more than half")
        for name, capacity in after.settings.pools:
            used = sum(one.spec.uses.get(name, 0) for one in held)
            if name in run.spec.uses and used > max(capacity // 2, run.spec.uses[name]):
                self._world.wrong(f"runs of backfills use {used} of the pool {name}, of which there is {capacity}")
        self.counts["claims of backfills"] += 1

    def _ended(self, before: State, after: State, applied: Applied) -> None:
        """How occurrences ended, by the ends of their runs; and that they are counted so."""
        self._runs.update(run_id for run_id, run in after.runs.items() if run.backfill)
        for number, row in after.backfills.items():
            one, was = self._filled[number], before.backfills.get(number)
            self._note(one, number, applied)
            if was is None or was is row:
                continue
            still = {generation for _, generation in row.in_flight}
            for _, generation in was.in_flight:
                if generation not in still:
                    self._over(one, number, after, generation)
            counted = {"succeeded": row.succeeded, "failed": row.failed, "skipped": row.skipped}
            if counted != {name: one.ends[name] for name in counted} or one.paused != row.paused:
                self._world.wrong(f"backfill {number} counts {counted}, paused {row.paused}, where it is {one}")
            if one.over == row.open or one.cancelled != row.cancelled or len(one.under_way) != len(row.in_flight):
                self._world.wrong(f"backfill {number} is {row.status}, where it is {one}")

    def _note(self, one: Filled, number: int, applied: Applied) -> None:
        for ended in applied.ended:
            run = ended.run
            if run.backfill == number and run.generation in one.under_way and run.cancelling != "deleted":
                self._marks[run.generation].append((run.task, as_end(ended.state)))

    def _over(self, one: Filled, number: int, after: State, generation: int) -> None:
        """An occurrence is over: nothing of it is left, and what failed or did not run counts."""
        left = [run.run_id for run in after.runs.values() if run.generation == generation]
        left = [run_id for run_id in left if after.runs[run_id].cancelling != "deleted"]
        if left:
            self._world.wrong(f"an occurrence of backfill {number} is over, and {left} are there")
        marks = self._marks.pop(generation, [])
        del one.under_way[generation]
        if any(end == "failed" for _, end in marks):
            one.ends["failed"] += 1
            one.in_row += 1
            if one.in_row >= IN_A_ROW and not (one.cancelled or one.exhausted or one.paused):
                one.paused = True
                self.counts["backfills that failed"] += 1
        elif (one.task, "skipped") in marks:
            one.ends["skipped"] += 1
        else:
            one.ends["succeeded"] += 1
            one.in_row = 0

    def _leaves_alone(self, before: State, after: State, applied: Applied) -> None:
        for task in applied.touched:
            row, was = after.tasks.get(task), before.tasks.get(task)
            if row is None or was is None:
                continue
            if row.last is not None and row.last.run_id in self._runs:
                self._world.wrong(f"the last run of {task} is {row.last.run_id}, of a backfill")
            live = [one for one in applied.ended if one.run.task == task and not one.run.backfill]
            if not live and row.failing != was.failing:
                self._world.wrong(f"{task} is failing: {row.failing}, and no run of its own has ended")

    # -- what is left to the leader

    def look(self, state: State, leader: str | None) -> None:
        """What should begin now, or end, and does not? `leader` is None unless one leads and is well."""
        led = None if leader is None else (leader, state.lead.term)
        if led is None or led != self._led or state.lead.member != leader:
            self._stuck_s.clear()
            self._led = led
            return
        now_s = self._world.now_s
        stuck = [number for number, row in state.backfills.items() if row.open and self._waits(state, row)]
        self._stuck_s = {number: self._stuck_s.get(number, now_s) for number in stuck}
        for number, since_s in self._stuck_s.items():
            if now_s - since_s > GRACE_S:
                self._world.wrong(f"backfill {number} waits for the leader for long: {state.backfills[number]}")

    def _waits(self, state: State, row: BackfillRow) -> bool:
        """Whether the next occurrence could begin, or one is under way of which nothing is left."""
        generations = {run.generation for run in state.runs.values()}
        generations |= {join.generation for joins in state.joins.values() for join in joins}
        generations |= {end.generation for end in state.ends.values()}
        if any(generation not in generations for _, generation in row.in_flight):
            return True
        return not (row.paused or row.cancelled or row.exhausted) and len(row.in_flight) < row.parallel

    def unrest(self, state: State) -> list[object]:
        """The backfills that are to go on, where nothing falls due any more."""
        return [
            (number, row.status) for number, row in sorted(state.backfills.items()) if row.open and not _at_rest(row)
        ]


def _at_rest(row: BackfillRow) -> bool:
    return row.paused and not row.in_flight


def _held(state: State) -> list[Run]:
    return [run for run in state.runs.values() if run.backfill and run.state in HELD]


def of_backfill(state: State, entry: Entry) -> tuple[int, str, frozenset[str]] | None:
    """The rerun that an entry begins as an occurrence of a backfill: its number, first task and tasks; None: none."""
    if not isinstance(entry, AdvanceBackfill) or not entry.nominal_us:
        return None
    row = state.backfills[entry.number]
    tasks = below(state, row.task) if row.downstream else frozenset({row.task})
    generations = [generation for at_us, generation in row.in_flight if at_us == entry.nominal_us]
    return (generations[0], row.task, tasks) if generations else None
