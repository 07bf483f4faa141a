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
    until it is mended. `channels`: notices are told. `graph`: there are tasks that come after others;
    `pools`: tasks that use pools; `each`: tasks that run on each member; `calendars`: tasks that are due by calendars,
    and blackouts; `backfills`: tasks for past times; `templates`: tasks whose params depend on the occurrence.
    and blackouts; `backfills`: tasks for past times.
    `shares`: members tell their places, and offer runs to one another. `asked_for`: successes and digests are told.
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
    pools: bool = False
    each: bool = False
    calendars: bool = False
    backfills: bool = False
    templates: bool = False
    shares: bool = False
    asked_for: bool = False

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

POOL_CLIENTS: dict[str, int] = {
    "resize_pool": 4,
    "remove_pool": 1,
    "start_pooled": 5,
    "pause_pooled": 2,
    "resume_pooled": 3,
    "change_pooled": 3,
    "delete_pooled": 1,
    "restore_pooled": 3,
}
"""What clients ask for of pools, and of tasks that use them."""

POOLS_IN, POOLS_OF = 10, 9
"""One of so many histories has pools, and which."""

EACH_CLIENTS: dict[str, int] = {
    "start_on_each": 3,
    "pause_each": 1,
    "resume_each": 3,
    "change_each": 3,
    "delete_each": 1,
    "restore_each": 3,
}
"""What clients ask for of tasks that run on each member."""

EACH_IN, EACH_OF = 10, 7
"""One of so many histories has such tasks, and which."""
BACKFILL_CLIENTS: dict[str, int] = {
    "start_backfill": 6,
    "pause_backfill": 2,
    "resume_backfill": 4,
    "cancel_backfill": 1,
    "start_backfilled": 2,
    "change_backfilled": 2,
    "delete_backfilled": 1,
    "restore_backfilled": 3,
}
"""What clients ask for of backfills, and of tasks that are run for past times."""

BACKFILLS_IN, BACKFILLS_OF = 10, 8
"""One of so many histories has backfills, and which."""
SHARE_CLIENTS: dict[str, int] = {"start_shared": 6, "change_shared": 3, "pause_shared": 3, "delete_shared": 1}
"""What clients ask for of tasks that are due together."""

SHARES_IN, SHARES_OF = 10, 2
"""One of so many histories has members that tell their places, and which."""

CALENDAR_CLIENTS: dict[str, int] = {
    "change_days": 8,
    "start_by_calendar": 3,
    "change_by_calendar": 3,
    "delete_by_calendar": 1,
    "restore_by_calendar": 2,
    "black_out": 4,
    "black_out_until_told": 3,
}
"""What clients ask for of calendars, of tasks that are due by them, and of blackouts."""

CALENDARS_IN, CALENDARS_OF = 10, 5
"""One of so many histories has calendars and blackouts, and which."""

TEMPLATE_CLIENTS: dict[str, int] = {
    "start_templated": 6,
    "pause_templated": 2,
    "resume_templated": 3,
    "change_templated": 4,
    "delete_templated": 1,
    "restore_templated": 3,
}
"""What clients ask for of tasks whose params depend on the occurrence."""

TEMPLATES_IN, TEMPLATES_OF = 10, 3
"""One of so many histories has such tasks, and which."""

TOLD_IN = 3
"""One of so many histories has channels: they make a history a sixth longer."""


ASKED_FOR_IN, ASKED_FOR_OF = 90, (24, 48, 54, 84)
"""One of so many histories has channels of what is told only where it is asked for, and which; one with backfills."""


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
    pools = seed % POOLS_IN == POOLS_OF
    if pools:
        drawn = random.Random(f"plan of pools {seed}")
        clients += _series(drawn, POOL_CLIENTS, drawn.choice([1.0, 2.0, 4.0]))
    each = seed % EACH_IN == EACH_OF
    if each:
        drawn = random.Random(f"plan of each {seed}")
        clients += _series(drawn, EACH_CLIENTS, drawn.choice([1.0, 2.0, 4.0]))
    calendars = seed % CALENDARS_IN == CALENDARS_OF
    if calendars:
        drawn = random.Random(f"plan of calendars {seed}")
        clients += _series(drawn, CALENDAR_CLIENTS, drawn.choice([1.0, 2.0, 4.0]))
    backfills = seed % BACKFILLS_IN == BACKFILLS_OF
    if backfills:
        drawn = random.Random(f"plan of backfills {seed}")
        clients += _series(drawn, BACKFILL_CLIENTS, drawn.choice([1.0, 2.0, 4.0]))
    templates = seed % TEMPLATES_IN == TEMPLATES_OF
    if templates:
        drawn = random.Random(f"plan of templates {seed}")
        clients += _series(drawn, TEMPLATE_CLIENTS, drawn.choice([1.0, 2.0, 4.0]))
    shares = seed % SHARES_IN == SHARES_OF
    if shares:
        drawn = random.Random(f"plan of shares {seed}")
        clients += _series(drawn, SHARE_CLIENTS, drawn.choice([1.0, 2.0, 4.0]))
    befalls = tuple(sorted(faults + clients, key=lambda fault: fault.at_s))
    late_s = rng.choice([0.0, 0.0, 0.0, 1.5])
    first_s = tuple(rng.uniform(0, late_s) for _ in range(members))
    wrong = frozenset(rng.sample(range(members), rng.choice([0, 0, 0, 1, 2])))
    return Plan(
        seed=seed,
        members=members,
        drift=drift,
        lost_share=lost,
        held_share=held,
        faults=befalls,
        first_s=first_s,
        wrong_lists=wrong,
        channels=seed % TOLD_IN == 0,
        graph=graph,
        pools=pools,
        each=each,
        calendars=calendars,
        backfills=backfills,
        templates=templates,
        shares=shares,
        asked_for=seed % ASKED_FOR_IN in ASKED_FOR_OF,
    )


def _series(rng: random.Random, weights: dict[str, int], pace_s: float) -> list[Fault]:
    series = []
    at_s = BEGIN_S + rng.expovariate(1 / pace_s)
    while at_s < HEAL_S:
        [kind] = rng.choices(list(weights), list(weights.values()))
        for_s = rng.choice([0.3, 1.0, 2.0, 3.0, 4.0, 6.0]) * rng.uniform(0.8, 1.2)
        series.append(Fault(at_s, kind, rng.randrange(1000), rng.randrange(1000), for_s, rng.random()))
        at_s += rng.expovariate(1 / pace_s)
    return series
