"""The promise, over seeded histories of a minute each (docs/explanation/leases-and-claims.md).

ROTA_HISTORIES=5000 tells that many, ROTA_SEED=1000 begins with that seed. `make test-more` tells the next 120.
"""

import os
import subprocess
import sys
import warnings
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest

from tests.simulation.history import tell
from tests.simulation.mutants import MUTANTS
from tests.simulation.plan import plan
from tests.simulation.pool import SEARCHED, share
from tests.simulation.shrink import report, shortened

ROOT = Path(__file__).parents[2]
HISTORIES = int(os.environ.get("ROTA_HISTORIES", "80"))
SEED = int(os.environ.get("ROTA_SEED", "0"))

ENOUGH: dict[str, float] = {
    "launches": 20,
    "Claim": 20,
    "succeeded": 10,
    "cancelled": 1,
    "timed_out": 1,
    "skipped": 2,
    "missed": 1,
    "failovers": 1,
    "abandoned": 0.2,
    "freezes": 1,
    "thaws": 1,
    "silent": 0.3,
    "gone": 0.5,
    "down": 1,
    "joins": 1,
    "removed": 0.1,
    "let in": 0.1,
    "Checkpoint refused": 0.1,
    "MarkDown refused": 0.05,
    "Claim refused": 0.5,
    "ChangeSettings": 0.1,
    "StandAside": 0.05,
    "notices": 8,
    "messages": 4,
    "heard twice": 0.5,
    "refused messages": 0.3,
    "TakeLead": 3,
    "disks lost": 0.05,
    "grown by list": 0.1,
    "lost apart": 0.02,
    "blackouts": 0.05,
    "clocks moved": 0.2,
    "breached": 4,
    "met": 2,
    "dropped": 1,
    "due after others": 1,
    "PassOn": 0.5,
    "settled": 0.2,
    "not_needed": 0.2,
    "upstream_failed": 0.3,
    "upstream_skipped": 0.5,
    "due at times": 0.2,
    "waits at times": 0.1,
    "too late": 0.01,
    "claims of backfills": 0.5,
    "past times of chains": 0.2,
    "fanned out": 1.5,
    "ended on all": 1.5,
    "after each": 2,
    "missed on a member": 0.2,
    "MissRun": 0.01,
    "due by a calendar": 0.3,
    "starts at a rate": 0.4,
}
"""What a history has of each on average, at least: histories in which little happens prove little."""


@pytest.mark.more
def test_every_rule_that_is_switched_off_is_missed() -> None:
    """The simulation is worth something only if it finds what the rules are for."""
    lines = share(list(MUTANTS))
    unnoticed = [line.name for line in lines if line.violation is None]
    assert not unnoticed, f"nothing went wrong without {unnoticed}"
    searched = {line.name: (line.violation or "").partition(":")[0] for line in lines if line.tried > 1}
    if searched:
        warnings.warn(f"searched for, at half a second a seed; note them in SHOWN_BY: {searched}", stacklevel=1)


def test_a_seed_is_a_history() -> None:
    assert tell(plan(3)) == tell(plan(3))


def test_the_command_that_is_printed_tells_the_story_again() -> None:
    told = report(plan(0).only(set()), MUTANTS["epoch"], "epoch")
    violation, command = told.splitlines()[0].removeprefix("seed 0: "), told.rpartition("replay: ")[2].split()
    again = subprocess.run([sys.executable, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (again.returncode, again.stdout.splitlines()[-1:]) == (1, [violation]), again.stderr


@pytest.mark.more
def test_a_story_is_shortened_and_still_goes_wrong() -> None:
    rules = MUTANTS["slots-kept"]
    chosen = next(plan(seed) for seed in range(SEARCHED) if tell(plan(seed), rules).violation is not None)
    told, kept = shortened(chosen, rules, tries=12)
    assert len(kept) < len(chosen.faults)
    assert told == tell(chosen.only(set(kept)), rules)
    assert told.violation is not None


def test_no_history_breaks_an_invariant() -> None:
    """Last in its file: at the end of a whole run it takes both cores, where the others would leave one idle."""
    lines = share([str(seed) for seed in range(SEED, SEED + HISTORIES)])
    broken = [line.violation for line in lines if line.violation is not None]
    assert not broken, "\n".join([f"{len(broken)} of {HISTORIES} histories are broken", *broken[:5]])
    counts = Counter(chain.from_iterable(line.counts.elements() for line in lines))
    few = {what: counts[what] / HISTORIES for what, least in ENOUGH.items() if counts[what] < least * HISTORIES}
    assert not few, f"the histories show too little to prove anything: {few}"
