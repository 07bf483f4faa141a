"""Seeded lives of folders that are to found a cluster (`founding_history`)."""

import os
import subprocess
import sys
from pathlib import Path

from tests.simulation.founding_history import History
from tests.simulation.mutants import founded_by_majority

ROOT = Path(__file__).parents[2]
SEEDS = 300

SHOWN_BY = 174
"""A seed with which founding by a majority founds two clusters. Seeds that do are rare: one of the first 1,200 does."""


def _lived(seed: int) -> History:
    history = History(seed)
    history.run()
    return history


def test_no_folder_comes_into_two_clusters_however_lists_and_disks_change() -> None:
    lived = [_lived(seed) for seed in range(SEEDS)]
    assert not [history.seed for history in lived if history.overlapping]
    assert sum(bool(history.founded) for history in lived) > 0.2 * SEEDS
    assert any(history.by_hand and history.founded for history in lived)


def test_if_a_majority_sufficed_a_folder_would_come_into_two_clusters() -> None:
    assert not _lived(SHOWN_BY).overlapping
    with founded_by_majority():
        assert _lived(SHOWN_BY).overlapping


def test_a_seed_is_a_life_however_strings_hash() -> None:
    command = "from tests.simulation.founding_history import digests; print(*digests(range(20)))"
    said = {
        subprocess.run(
            [sys.executable, "-c", command],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(said) == 1
