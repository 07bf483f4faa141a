"""A discrete-event world: time, clocks, a network that cuts, delays, loses and holds, processes that stop or die.

Everything random comes from one seeded generator, so a seed is a history. Nothing here knows what the processes do.
"""

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

Lane = Literal["raft", "beat", "loop"]
"""A process's threads: Raft's, the heartbeat's, the event loop."""

LANES: tuple[Lane, ...] = ("raft", "beat", "loop")
Act = Callable[[], None]

BEGUN_US = 1_800_000_000_000_000
"""What a wall clock that is right shows when a history begins."""

EVENTS_MAX = 400_000
"""More in one history: something goes round and round."""

TOLD_LAST = 200


@dataclass(slots=True)
class Machine:
    """Where one process lives: its clocks, and which of its threads are stopped until when.

    `rate` is how fast its clocks go; `wall_off_s` how far its wall clock is off besides.
    """

    rate: float
    offset_s: float
    boot: int = 0
    running: bool = False
    wall_off_s: float = 0.0
    stopped_until_s: dict[Lane, float] = field(default_factory=dict)


_Event = tuple[float, int, Act, Machine | None, int | None, Lane, float]
"""When, in which order, and what is done. On a machine: in which of its boots (None: in any) and in which lane, and how
long after the lane goes on if it is stopped then. A tuple, not a closure: there are 20,000 of them in a history."""


class World:
    """Machines and the links between them. `now_s` is the true time, which no process can read.

    `violation` is what is wrong with this history, once something is; the world stands still then.
    """

    def __init__(self, rng: random.Random, *, drift: float, lost_share: float, held_share: float) -> None:
        self.rng = rng
        self.now_s = 0.0
        self.machines: dict[str, Machine] = {}
        self.violation: str | None = None
        self.story: deque[str] = deque(maxlen=TOLD_LAST)
        self._drift, self._lost_share, self._held_share = drift, lost_share, held_share
        self._cut_until_s: dict[tuple[str, str], float] = {}
        self._slow: dict[tuple[str, str, Lane], tuple[float, float]] = {}
        self._events: list[_Event] = []
        self._order = itertools.count()
        self._done = 0

    def add(self, name: str) -> None:
        """A machine for a member."""
        rate = 1 + self.rng.uniform(-self._drift, self._drift)
        self.machines[name] = Machine(rate, self.rng.uniform(10, 1e6))

    def wrong(self, what: str) -> None:
        """An invariant is broken. The first one counts."""
        if self.violation is None:
            self.violation = f"at {self.now_s:.3f} s: {what}"

    def tell(self, what: str) -> None:
        """Something worth reading when it went wrong; the last of it is kept."""
        self.story.append(f"{self.now_s:8.3f} {what}")

    # clocks

    def clock_s(self, name: str) -> float:
        """The machine's CLOCK_BOOTTIME."""
        machine = self.machines[name]
        return machine.offset_s + self.now_s * machine.rate

    def when_s(self, name: str, clock_s: float) -> float:
        """The world's time at which that machine's CLOCK_BOOTTIME shows `clock_s`."""
        machine = self.machines[name]
        return (clock_s - machine.offset_s) / machine.rate

    def wall_us(self, name: str) -> int:
        """The machine's wall clock, in microseconds since the epoch."""
        machine = self.machines[name]
        return BEGUN_US + round((self.now_s * machine.rate + machine.wall_off_s) * 1e6)

    @property
    def true_us(self) -> int:
        """What a wall clock that is right shows."""
        return BEGUN_US + round(self.now_s * 1e6)

    # events

    def at(self, at_s: float, act: Act) -> None:
        """Do something at a time, whatever processes do."""
        heapq.heappush(self._events, (max(at_s, self.now_s), next(self._order), act, None, None, "loop", 0.0))

    def run(self, until_s: float) -> None:
        """Let it happen."""
        events, pop = self._events, heapq.heappop
        while events and events[0][0] <= until_s and self.violation is None:
            self.now_s, _, act, machine, boot, lane, late_s = pop(events)
            if machine is None:
                act()
            elif machine.running and (boot is None or boot == machine.boot):
                goes_on_s = machine.stopped_until_s.get(lane, 0.0)
                if goes_on_s > self.now_s:
                    later = (goes_on_s + late_s, next(self._order), act, machine, boot, lane, late_s)
                    heapq.heappush(events, later)
                else:
                    act()
            self._done += 1
            if self._done > EVENTS_MAX:
                self.wrong(f"{EVENTS_MAX} events: something goes round and round")
        if self.violation is None:
            self.now_s = max(self.now_s, until_s)

    def within(self, name: str, lane: Lane, after_s: float, act: Act, *, last: bool = False) -> None:
        """Do something in a process's thread; late if it is stopped then, never if the process has died.

        `last`: after what else has waited for the thread to go on.
        """
        machine = self.machines[name]
        event = (self.now_s + after_s, next(self._order), act, machine, machine.boot, lane, 0.002 if last else 0.0)
        heapq.heappush(self._events, event)

    # the network

    def send(self, source: str, target: str, lane: Lane, act: Act) -> None:
        """A message to whatever process of `target` runs when it comes: delayed, now and then lost or held for long.

        Over a cut link it is lost, or sent again after the cut.
        """
        rng, now_s = self.rng, self.now_s
        delay_s = 0.001 + 0.014 * rng.random()
        chance = rng.random()
        if chance < self._held_share:
            delay_s += rng.uniform(0.2, 5.0)
        elif chance > 1 - self._lost_share:
            return
        if self._slow:
            until_s, slow_s = self._slow.get((source, target, lane), (0.0, 0.0))
            if until_s > now_s:
                delay_s += slow_s * rng.uniform(0.9, 1.1)
        if self._cut_until_s:
            until_s = self._cut_until_s.get((source, target), 0.0)
            if until_s > now_s:
                if rng.random() < 0.5:
                    return
                delay_s += until_s - now_s
        event = (now_s + delay_s, next(self._order), act, self.machines[target], None, lane, 0.0)
        heapq.heappush(self._events, event)

    def is_cut(self, one: str, other: str) -> bool:
        """Whether nothing can be said and answered between the two now."""
        return any(self._cut_until_s.get(pair, 0.0) > self.now_s for pair in ((one, other), (other, one)))

    # faults

    def stop(self, name: str, lanes: Iterable[Lane], for_s: float) -> None:
        """Some or all threads of a process stand still."""
        machine = self.machines[name]
        for lane in lanes:
            machine.stopped_until_s[lane] = max(machine.stopped_until_s.get(lane, 0.0), self.now_s + for_s)

    def slow_down(self, source: str, target: str, lane: Lane, by_s: float, for_s: float) -> None:
        """Messages of one kind from one to the other take that much longer."""
        self._slow[source, target, lane] = (self.now_s + for_s, by_s)

    def cut(self, source: str, target: str, for_s: float) -> None:
        """Nothing gets from one to the other."""
        pair = (source, target)
        self._cut_until_s[pair] = max(self._cut_until_s.get(pair, 0.0), self.now_s + for_s)

    def heal(self) -> None:
        """The network is well from now on, all threads go on and wall clocks are right. What is under way stays so."""
        self._cut_until_s.clear()
        self._slow.clear()
        self._lost_share = self._held_share = 0.0
        for machine in self.machines.values():
            machine.stopped_until_s.clear()
            machine.wall_off_s = self.now_s * (1 - machine.rate)
