"""What befalls one history, as values made from its seed up front, so that a part of it can be left out."""

import random
from dataclasses import dataclass, replace

MENDED_S = 1.0
"""When a wrong list is mended, and its member started again."""

BEGIN_S, HEAL_S, END_S = 3.0, 44.0, 56.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that happens: `kind` is a method of `Faults`, `Ambushes`, `Operators` or `Clients`.

    `who` and `other` are numbers to choose members and tasks by, `much` any size.
    """

    at_s: float
    kind: str
    who: int
    other: int
    for_s: float
    much: float

    def __str__(self) -> str:
        return (
            f"{self.at_s:6.2f} s  {self.kind}(who={self.who}, other={self.other}, {self.for_s:.2f} s, {self.much:.2f})"
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """A history's cluster and what is to befall it, in the order of time.

    `first_s`: when each member is first started; `wrong_lists`: those whose list names a node that does not exist,
    until it is mended. `channels`: notices are told. `graph`: there are tasks that come after others.
    """

    seed: int
    members: int
    drift: float
    lost_share: float
    held_share: float
    faults: tuple[Fault, ...]
    first_s: tuple[float, ...] = ()
    wrong_lists: frozenset[int] = frozenset()
    channels: bool = False
    graph: bool = False

    def only(self, kept: set[int]) -> "Plan":
        """The same with some of the faults, by their places."""
        faults = tuple(fault for place, fault in enumerate(self.faults) if place in kept)
        return replace(self, faults=faults)


FAULTS: dict[str, int] = {
    "partition": 4,
    "one_way": 4,
    "apart": 2,
    "cut_leader": 3,
    "pause": 3,
    "pause_leader": 2,
    "stall": 4,
    "slow": 4,
    "slow_leader": 2,
    "mire": 4,
    "crash": 4,
    "crash_leader": 2,
    "stop": 2,
    "wipe": 1,
    "grow": 1,
    "lose_apart": 2,
    "slow_disk": 1,
    "clock": 2,
    "elect": 2,
    "ambush": 4,
    "late_word": 3,
    "late_drain": 1,
    "late_goodbye": 3,
    "late_join": 1,
    "late_verdict": 2,
    "late_lead": 2,
    "old_leader": 3,
    "blackout": 1,
    "replace": 2,
    "join": 1,
    "remove": 1,
    "drain": 2,
    "undrain": 2,
    "leave_and_stay": 1,
}
"""Faults and how often each is chosen."""

CLIENTS: dict[str, int] = {
    "start": 5,
    "cancel": 3,
    "change": 3,
    "register": 1,
    "delete": 1,
    "pause_task": 1,
    "resume_task": 2,
    "lease": 1,
}
"""What clients ask for."""


GRAPH_CLIENTS: dict[str, int] = {
    "rerun": 5,
    "pause_in_graph": 3,
    "resume_in_graph": 4,
    "change_in_graph": 3,
    "delete_in_graph": 2,
    "restore_graph": 3,
}
"""What clients ask for of tasks that come after others."""

GRAPH_IN, GRAPH_OF = 5, 1
"""One of so many histories has such tasks, and which: they take longer, too."""

TOLD_IN = 3
"""One of so many histories has channels: they make a history a sixth longer."""


def plan(seed: int) -> Plan:
    """The history of a seed."""
    rng = random.Random(seed * 1_000_003 + 17)
    members = rng.choice([3, 3, 3, 3, 4, 5, 5])
    drift = rng.choice([0.0, 0.005, 0.005])
    lost, held = rng.choice([0.0, 0.002, 0.02]), rng.choice([0.0, 0.003, 0.02])
    # Each history has some kinds of faults often and others never: a mixture of all is the same every time.
    kinds = rng.sample(sorted(FAULTS), rng.choice([5, 8, 12, len(FAULTS)]))
    faults = _series(rng, {kind: FAULTS[kind] for kind in kinds}, rng.choice([0.7, 1.5, 3.0]))
    clients = _series(rng, CLIENTS, rng.choice([1.0, 2.0, 4.0]))
    graph = seed % GRAPH_IN == GRAPH_OF
    if graph:
        drawn = random.Random(f"plan of a graph {seed}")  # all else is drawn as without
        clients += _series(drawn, GRAPH_CLIENTS, drawn.choice([1.5, 3.0, 6.0]))
    befalls = tuple(sorted(faults + clients, key=lambda fault: fault.at_s))
    late_s = rng.choice([0.0, 0.0, 0.0, 1.5])
    first_s = tuple(rng.uniform(0, late_s) for _ in range(members))
    wrong = frozenset(rng.sample(range(members), rng.choice([0, 0, 0, 1, 2])))
    return Plan(seed, members, drift, lost, held, befalls, first_s, wrong, channels=seed % TOLD_IN == 0, graph=graph)


def _series(rng: random.Random, weights: dict[str, int], pace_s: float) -> list[Fault]:
    series = []
    at_s = BEGIN_S + rng.expovariate(1 / pace_s)
    while at_s < HEAL_S:
        [kind] = rng.choices(list(weights), list(weights.values()))
        for_s = rng.choice([0.3, 1.0, 2.0, 3.0, 4.0, 6.0]) * rng.uniform(0.8, 1.2)
        series.append(Fault(at_s, kind, rng.randrange(1000), rng.randrange(1000), for_s, rng.random()))
        at_s += rng.expovariate(1 / pace_s)
    return series
