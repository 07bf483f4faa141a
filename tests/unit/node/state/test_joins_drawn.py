"""Drawn graphs of tasks, with reruns, pauses and changes between: each occurrence is decided once, and rightly."""

import random
from collections import Counter
from typing import Any

import pytest

from node.state.attempts import Cancel, Finish
from node.state.claims import Claim
from node.state.codec import from_pieces, snapshot_pieces
from node.state.joins import PassOn, SettleJoin
from node.state.members import TakeLead
from node.state.occurrences import SkipOccurrences, Start
from node.state.registry import DeleteTask, Pause, Put, PutTasks
from node.state.value import RULES, OccurrenceId, PassedOver, Run
from tasks.definition.after import ParentEnd, consequence, end_of
from tasks.definition.run import RunState
from tasks.definition.spec import after_of
from tests.unit.node.state.given import NOW_US, History, cluster, packed

MINUTE = 60_000_000
CRON = {"cron": "* * * * *"}
ENDS = ("succeeded",) * 6 + ("failed", "failed", "timed_out", "cancelled")


class Drawn:
    """A cluster with a drawn graph, and what was decided in it."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.history: History = cluster("a")
        self.history.must(TakeLead(NOW_US, "a", 1, RULES))
        self.minute = 0
        self.decided: Counter[tuple[str, int, OccurrenceId]] = Counter()
        """How often each occurrence of each registration of a task was decided."""
        self.passed: dict[tuple[str, int], ParentEnd] = {}
        """The roots' occurrences that were passed over: their records in the history are of several at once."""
        self.roots = [f"r{number}" for number in range(self.draw.randint(1, 3))]
        self.names = [*self.roots, *(f"t{number}" for number in range(self.draw.randint(1, 9)))]
        self.fields = {name: self.drawn_fields(name) for name in self.names}
        for name in self.names:
            self.put(name)

    @property
    def at_us(self) -> int:
        return NOW_US + self.minute * MINUTE

    def drawn_fields(self, name: str) -> dict[str, Any]:
        retry = {"attempts": self.draw.randint(1, 2), "backoff_s": 0}
        if name in self.roots:
            return {"schedule": CRON, "overlap": "allow", "retry": retry}
        before = self.names[: self.names.index(name)]
        parents = self.draw.sample(before, self.draw.randint(1, min(3, len(before))))
        on = self.draw.choices(["succeeded", "failed", "ended"], [8, 1, 1], k=len(parents))
        after = [{"task": task, "on": how} for task, how in zip(parents, on, strict=True)]
        overlap = self.draw.choice(["allow", "allow", "skip", "queue", "replace"])
        return {"after": after, "overlap": overlap, "retry": retry}

    def put(self, name: str) -> None:
        self.do(PutTasks(self.at_us, (Put(packed(name, **self.fields[name])),)))

    def do(self, entry: Any) -> bool:
        before = self.history.state
        ok = self.history.do(entry).ok
        assert self.history.last.result.code != "fault", self.history.last.result
        made = [run for run_id, run in self.history.state.runs.items() if run_id not in before.runs]
        for run in (*made, *(one.run for one in self.history.last.ended if one.run.run_id not in before.runs)):
            if run.trigger == "after" and run.occurrence is not None:
                row = self.history.state.tasks[run.task]
                self.decided[run.task, row.order, run.occurrence] += 1
        return ok

    def pass_on(self) -> None:
        state = self.history.state
        if state.ends:
            assert self.do(PassOn(self.at_us, state.next_end - len(state.ends)))

    def settle(self) -> None:
        joins = [join for joins in self.history.state.joins.values() for join in joins]
        for join in joins:
            self.do(SettleJoin(self.at_us, join.task, join.nominal_us, join.generation))

    def tick(self) -> None:
        self.minute += 1
        for root in self.roots:
            row = self.history.state.tasks.get(root)
            if row is None or row.paused or row.through_us >= self.at_us:
                continue
            if self.draw.random() < 0.15:
                self.pass_over(root, self.draw.choice(["skipped", "missed"]))
            else:
                self.history.claim(root, self.at_us)

    def pass_over(self, root: str, state: PassedOver) -> None:
        self.passed[root, self.at_us] = "skipped"
        self.do(SkipOccurrences(self.at_us, root, state, (self.at_us,)))

    def work(self, *, all_of_it: bool = False) -> None:
        """Claim what waits, and end what runs."""
        runs = sorted(self.history.state.runs.values(), key=lambda run: run.run_id)
        self.draw.shuffle(runs)
        for run in runs:
            if all_of_it or self.draw.random() < 0.6:
                self.step(run.run_id)

    def step(self, run_id: str) -> None:
        run = self.history.state.runs.get(run_id)
        if run is None:
            return
        if run.state == "waiting":
            if self.draw.random() < 0.05:
                self.do(Cancel(self.at_us, run_id))
            elif not self.claims(run):
                return
        else:
            self.do(Finish(self.at_us, run_id, run.token, self.draw.choice(ENDS)))  # type: ignore[arg-type]

    def claims(self, run: Run) -> bool:
        return self.do(Claim(self.at_us, run.task, run.fire_at_us, "a", 1, run.run_id))

    def drain(self) -> None:
        """Let all that is under way come to its end."""
        for _ in range(400):
            state = self.history.state
            waits = [join for joins in state.joins.values() for join in joins if not join.decided]
            if not state.runs and not state.ends and not waits:
                return
            for name, row in state.tasks.items():
                # Nothing else falls due at the times that others wait for.
                if name in self.roots and not row.paused and row.through_us < self.at_us:
                    self.pass_over(name, "missed")
            self.work(all_of_it=True)
            while self.history.state.ends:
                self.pass_on()
            self.settle()
        raise AssertionError(f"does not come to rest: {waits}, {list(state.runs)}, {state.ends}")

    def check_once(self) -> None:
        assert {key: count for key, count in self.decided.items() if count != 1} == {}
        state = self.history.state
        assert from_pieces(list(snapshot_pieces(state))) == state
        named = {(one.task, name) for name, row in state.tasks.items() for one in after_of(row.spec_packed)}
        assert {(parent, child) for parent, names in state.children.items() for child in names} == named

    def check_verdicts(self) -> None:
        """Without changes between, each occurrence that the roots had is decided as the ends of its parents say."""
        states: dict[tuple[str, int], RunState] = {}
        ends = dict(self.passed)
        for one in self.history.ended:
            if (occurrence := one.run.occurrence) is not None and one.series is None:
                states[one.run.task, occurrence.nominal_us] = one.state
                ends[one.run.task, occurrence.nominal_us] = end_of(one.state)
        for name in self.names[len(self.roots) :]:
            after = after_of(self.history.state.tasks[name].spec_packed)
            for minute in range(1, self.minute + 1):
                at_us = NOW_US + minute * MINUTE
                found = consequence(after, {one.task: ends[one.task, at_us] for one in after})
                ran = {"succeeded", "failed", "timed_out", "cancelled", "skipped"}
                assert states[name, at_us] in (ran if found == "due" else {found})


@pytest.mark.parametrize("seed", range(40))
def test_each_occurrence_is_decided_once_as_its_parents_ended(seed: int) -> None:
    drawn = Drawn(seed)
    for _ in range(drawn.draw.randint(3, 25)):
        drawn.tick()
        drawn.work()
        if drawn.draw.random() < 0.5:
            drawn.pass_on()
    drawn.drain()
    drawn.check_once()
    drawn.check_verdicts()


@pytest.mark.parametrize("seed", range(100, 180))
def test_each_occurrence_is_decided_once_whatever_changes_between(seed: int) -> None:
    drawn = Drawn(seed)
    draw = drawn.draw
    for _ in range(drawn.draw.randint(5, 40)):
        drawn.tick()
        drawn.work()
        name = draw.choice(drawn.names)
        match draw.randint(0, 9):
            case 0 | 1:
                drawn.do(Pause(drawn.at_us, name, draw.random() < 0.5))
            case 2:
                drawn.fields[name] = drawn.drawn_fields(name)
                drawn.put(name)
            case 3:
                drawn.do(DeleteTask(drawn.at_us, name, with_children=True))
            case 4:
                drawn.put(name)
            case 5 | 6:
                drawn.do(Start(drawn.at_us, name, downstream=draw.random() < 0.8))
            case 7:
                drawn.settle()
            case _:
                drawn.pass_on()
    drawn.drain()
    drawn.check_once()
    assert all(join.decided for joins in drawn.history.state.joins.values() for join in joins)
