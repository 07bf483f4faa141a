"""Seeded lives of Raft clusters that lose disks (`raft_history`). `RAFT_SEED=n pytest ...` lives one again."""

import os
from pathlib import Path

import pytest

from tests.simulation.raft_history import History

HERE = Path(__file__).relative_to(Path(__file__).parents[2])
SEEDS = 20
STEPS = 3_000


@pytest.mark.parametrize("members", [3, pytest.param(5, marks=pytest.mark.more)])
def test_what_is_committed_stays_whoever_loses_a_disk(tmp_path: Path, members: int) -> None:
    chosen = os.environ.get("RAFT_SEED")
    losses = 0
    for seed in [int(chosen)] if chosen else range(SEEDS):
        history = History(tmp_path / str(seed), seed, members, STEPS)
        try:
            history.run()
        except AssertionError as error:
            again = f"RAFT_SEED={seed} .venv/bin/pytest {HERE} -k 'stays and {members}'"
            raise AssertionError(f"seed {seed}: {error}; again: {again}") from error
        losses += history.losses
    assert losses > 0
