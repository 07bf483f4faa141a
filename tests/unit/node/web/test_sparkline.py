"""Small bars of how long runs took."""

import asyncio
import doctest
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from node.state.value import Attempt, EndedRun, Outcome, Run
from node.web import sparkline as spark
from node.web.sparkline import HEIGHT, SparklineKeeper, sparkline_of
from tests.unit.node.http.given import NOW_US, World


def ended(number: int, took_s: float, state: Any = "succeeded", action: str = "") -> EndedRun:
    attempt = Attempt(1, "a", 1, number, state, NOW_US, NOW_US, NOW_US + round(took_s * 1e6))
    run = Run(f"t~{number}", "t", "schedule", NOW_US, b"", state, NOW_US, attempts=(attempt,), action=action)
    return EndedRun(run, state, NOW_US + round(took_s * 1e6))


@dataclass
class History:
    """A history that counts how often it is read."""

    runs_of_t: list[EndedRun] = field(default_factory=list)
    read: int = 0

    def runs(self, task: str, *_: Any) -> Sequence[EndedRun]:
        self.read += 1
        return self.runs_of_t


class Context:
    """As much of a request's context as is used."""

    def __init__(self, history: History) -> None:
        self.world = World()
        self.world.task("t")
        self.node = self
        self.history = history

    @property
    def state(self) -> Any:
        return self.world.state

    def ends(self, run_id: str) -> None:
        row = self.world.state.tasks["t"]
        last = Outcome(run_id, "succeeded", NOW_US, NOW_US)
        self.world.state = replace(self.world.state, tasks=self.world.state.tasks.set("t", replace(row, last=last)))


def test_the_example_holds() -> None:
    assert doctest.testmod(spark).failed == 0


def test_runs_that_took_no_time_have_bars() -> None:
    found = sparkline_of([(0.0, True)] * 3)
    assert found is not None
    assert found.bars == ((1, True),) * 3


def test_the_longest_has_the_tallest_bar() -> None:
    found = sparkline_of([(1, True), (4, True), (2, False)])
    assert found is not None
    assert found.bars == ((round(HEIGHT / 4), True), (HEIGHT, True), (HEIGHT // 2, False))


def test_a_run_took_as_long_as_all_of_it_with_the_pauses_between_its_attempts() -> None:
    one = ended(1, 3.0, "failed")
    attempt = replace(one.run.attempts[0], finished_at_us=NOW_US + 3_000_000)
    late = replace(
        one, run=replace(one.run, attempts=(attempt,)), state="cancelled", finished_at_us=NOW_US + 600_000_000
    )
    history = History([late, ended(0, 1.0)])
    context: Any = Context(history)
    context.ends("t~1")
    [found] = asyncio.run(SparklineKeeper().of(context, ["t"])).values()
    assert found.words == "the last 2 runs took 1.0 s to 10 min, 1 did not succeed"


def test_the_history_is_read_once_for_each_run_that_ends() -> None:
    history = History([ended(3, 2.0), ended(2, 1.0, action="preview"), ended(1, 1.0, "failed")])
    context: Any = Context(history)
    keeper = SparklineKeeper()

    def bars() -> Any:
        return {task: one.bars for task, one in asyncio.run(keeper.of(context, ["t", "unknown"])).items()}

    assert bars() == {}, "none has ended"
    assert history.read == 0
    context.ends("t~3")
    assert bars() == {"t": ((HEIGHT // 2, False), (HEIGHT, True))}, "without what was an action, oldest first"
    assert bars() == {"t": ((HEIGHT // 2, False), (HEIGHT, True))}
    assert history.read == 1
    context.ends("t~4")
    bars()
    assert history.read == 2
