"""Invariant 4 over seeded histories: no two attempts of a run work at once (DESIGN.md, sections 6 and 7).

ROTA_HISTORIES=2000 runs that many of each size, ROTA_SEED=1000 begins with that seed.
"""

import os
from itertools import chain, product

import pytest

from tests.simulation.history import BROKEN, Told, replay, tell

HISTORIES = int(os.environ.get("ROTA_HISTORIES", "16"))
SEED = int(os.environ.get("ROTA_SEED", "0"))

SHOWN_BY: dict[str, tuple[int, int]] = {
    "echo": (10, 3),
    "election-wait": (0, 3),
    "lead": (5, 5),
    "period": (25, 5),
    "join": (4, 3),
}
"""A history (seed, members) in which the rule was missed; if the model has changed since, others are searched."""

SEARCHED = 400


@pytest.mark.parametrize("members", [3, 5])
def test_no_two_attempts_of_a_run_work_at_once(members: int) -> None:
    told = [tell(seed, members) for seed in range(SEED, SEED + HISTORIES)]
    broken = [f"{history.violation}\n  replay: {replay(history)}" for history in told if history.violation]
    print(f"seeds {SEED} to {SEED + HISTORIES - 1}, {members} members")
    assert not broken, "\n".join(broken)
    assert _busy(told), "the histories show too little to prove anything"


def _busy(told: list[Told]) -> bool:
    """Whether work started, froze and went on again, and members were marked down for both reasons."""
    many = len(told)
    starts, freezes, thaws = (sum(t.starts for t in told), sum(t.freezes for t in told), sum(t.thaws for t in told))
    gone, silent = sum(t.gone for t in told), sum(t.verdicts - t.gone for t in told)
    return starts > 5 * many and freezes > 3 * many and thaws > many / 2 and gone > many / 5 and silent > many / 5


@pytest.mark.parametrize("rule", sorted(BROKEN))
def test_without_the_rule_two_attempts_work_at_once(rule: str) -> None:
    """The simulation is worth something only if it finds what the rules are for."""
    for seed, members in chain([SHOWN_BY[rule]], product(range(SEARCHED), (3, 5))):
        told = tell(seed, members, BROKEN[rule])
        if told.violation:
            print(f"{told.violation}\n  replay: {replay(told, rule)}")
            return
    pytest.fail(f"nothing went wrong without the rule '{rule}'")


def test_a_seed_is_a_history() -> None:
    assert tell(3, 3) == tell(3, 3)
