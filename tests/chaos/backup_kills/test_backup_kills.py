"""A few drawn moments of three kinds; `python -m tests.chaos.backup_kills` takes as many of each kind as one asks."""

import random
from pathlib import Path

import pytest

from tests.chaos.backup_kills.kinds import killed_cluster

pytestmark = [pytest.mark.chaos, pytest.mark.more]


@pytest.mark.parametrize("kind", ["databases", "sqlite", "drill"])
def test_whenever_the_owner_is_killed_one_backup_counts(kind: str, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print("drawn with seed", seed)
    draw = random.Random(seed)
    with killed_cluster(kind, tmp_path / kind, undisturbed=1) as killing:
        for _ in range(2):
            outcome = killing.kill(draw)
            assert not outcome.wrong, outcome
