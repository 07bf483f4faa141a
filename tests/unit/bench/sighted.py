"""What the observer of a cluster of five would have seen: for the tests of the checker."""

import random
from collections.abc import Mapping, Sequence

from bench.chaos.observer import LOOK_S, Sight

NAMES = tuple(f"node-{number}" for number in range(1, 6))
Away = Sequence[tuple[str, float, float, float]]
"""Who could do nothing, from when to when, and when that was marked down (later than the end: it never was)."""


def sights(
    begin_s: float, end_s: float, away: Away = (), leaderless: Sequence[tuple[float, float]] = ()
) -> dict[str, list[Sight]]:
    """All sights of that time. The first that can leads, but in the `leaderless` times."""

    def can(node: str, at_s: float) -> bool:
        return not any(one == node and from_s <= at_s < to_s for one, from_s, to_s, _ in away)

    def statuses(at_s: float) -> Mapping[str, str]:
        down = {one for one, _, to_s, marked_s in away if marked_s <= at_s < to_s}
        return {name: "down" if name in down else "up" for name in NAMES}

    seen: dict[str, list[Sight]] = {name: [] for name in NAMES}
    for turn in range(int((end_s - begin_s) / LOOK_S)):
        at_s = begin_s + turn * LOOK_S
        headless = any(from_s <= at_s < to_s for from_s, to_s in leaderless)
        leader = None if headless else next((name for name in NAMES if can(name, at_s)), None)
        for name in NAMES:
            if can(name, at_s):
                led = leader is not None
                seen[name].append(Sight(at_s, name, True, leader, 1, led, statuses(at_s), led))
            else:
                seen[name].append(Sight(at_s, name, answered=False))
    return seen


def dense(begin_s: float, minutes: float) -> dict[str, list[Sight]]:
    """As in a real trial: round after round, each with somebody away for seconds, 0.5 to 3 s between them."""
    rng = random.Random(303)
    end_s, at_s, number = begin_s + 60 * minutes, begin_s + 2.0, 0
    away, leaderless = [], []
    while at_s < end_s:
        number += 1
        victim, hold_s = rng.choice(NAMES), rng.uniform(2.0, 15.0)
        # Killed, it is found out at once; stopped, when its lease is over.
        marked_s = at_s + rng.choice((0.7, 2.7))
        away.append((victim, at_s, at_s + hold_s, marked_s))
        if victim == NAMES[0]:
            leaderless.append((at_s, marked_s))
        at_s += hold_s + (20.0 if number % 5 == 0 else rng.uniform(0.5, 3.0))
    return sights(begin_s, end_s, away, leaderless)
