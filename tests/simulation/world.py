"""A discrete-event world: time, a network that cuts, delays and holds, processes that are stopped or killed.

Everything random comes from one seeded generator, so a seed is a history. Nothing here knows what the processes do.
"""

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

Lane = Literal["raft", "beat", "duty"]
Act = Callable[[], None]

FOREVER_S = float("inf")


@dataclass
class Machine:
    """Where one process lives: its clock, and which of its threads are stopped until when."""

    rate: float
    offset_s: float
    boot: int = 0
    running: bool = False
    stopped_until_s: dict[Lane, float] = field(default_factory=dict)


class World:
    """Machines and the links between them. `now_s` is the time that nobody in it can see."""

    def __init__(self, rng: random.Random, names: list[str]) -> None:
        self.rng = rng
        self.now_s = 0.0
        self.machines = {name: Machine(rng.uniform(0.995, 1.005), rng.uniform(10, 1e6)) for name in names}
        self.cut_until_s: dict[tuple[str, str], float] = {}
        self.slow: dict[tuple[str, str, Lane], tuple[float, float]] = {}
        self.hold_share = rng.choice([0.0, 0.003, 0.01, 0.03])
        self._events: list[tuple[float, int, Act]] = []
        self._order = itertools.count()

    def clock_s(self, name: str) -> float:
        """The machine's CLOCK_BOOTTIME."""
        machine = self.machines[name]
        return machine.offset_s + self.now_s * machine.rate

    def when_s(self, name: str, clock_s: float) -> float:
        """The world's time at which that machine's clock shows `clock_s`."""
        machine = self.machines[name]
        return (clock_s - machine.offset_s) / machine.rate

    def at(self, at_s: float, act: Act) -> None:
        """Do something at a time, whatever processes do."""
        heapq.heappush(self._events, (max(at_s, self.now_s), next(self._order), act))

    def run(self, until_s: float) -> None:
        """Let it happen."""
        while self._events and self._events[0][0] <= until_s:
            self.now_s, _, act = heapq.heappop(self._events)
            act()

    def within(self, name: str, lane: Lane, after_s: float, act: Act, *, last: bool = False) -> None:
        """Do something in a process's thread; late if it is stopped then, never if the process has died.

        `last`: after what else has waited for the thread to go on.
        """
        machine, boot = self.machines[name], self.machines[name].boot

        def due() -> None:
            if machine.boot != boot or not machine.running:
                return
            until_s = machine.stopped_until_s.get(lane, 0.0)
            if until_s > self.now_s:
                self.at(until_s + (0.002 if last else 0.0), due)
            else:
                act()

        self.at(self.now_s + after_s, due)

    def send(self, source: str, target: str, lane: Lane, act: Act, late_s: float = 0.0) -> None:
        """A message: delayed, now and then held for seconds; over a cut link lost, or sent again after the cut."""
        delay_s = late_s + self.rng.uniform(0.001, 0.015)
        if self.rng.random() < self.hold_share:
            delay_s += self.rng.uniform(0.2, 5.0)
        slow_until_s, slow_s = self.slow.get((source, target, lane), (0.0, 0.0))
        if slow_until_s > self.now_s:
            delay_s += slow_s * self.rng.uniform(0.9, 1.1)
        until_s = self.cut_until_s.get((source, target), 0.0)
        if until_s > self.now_s:
            if self.rng.random() < 0.5:
                return
            delay_s += until_s - self.now_s
        self.at(self.now_s + delay_s, lambda: self.within(target, lane, 0.0, act))

    def is_cut(self, one: str, other: str) -> bool:
        """Whether nothing can be said and answered between the two now."""
        return any(self.cut_until_s.get(pair, 0.0) > self.now_s for pair in ((one, other), (other, one)))

    def stop(self, name: str, lanes: tuple[Lane, ...], for_s: float) -> None:
        """Some or all threads of a process stand still."""
        machine = self.machines[name]
        for lane in lanes:
            machine.stopped_until_s[lane] = max(machine.stopped_until_s.get(lane, 0.0), self.now_s + for_s)

    def slow_down(self, source: str, target: str, lane: Lane, by_s: float, for_s: float) -> None:
        """Messages of one kind from one to the other take that much longer."""
        self.slow[source, target, lane] = (self.now_s + for_s, by_s)

    def cut(self, source: str, target: str, for_s: float) -> None:
        """Nothing gets from one to the other."""
        pair = (source, target)
        self.cut_until_s[pair] = max(self.cut_until_s.get(pair, 0.0), self.now_s + for_s)
