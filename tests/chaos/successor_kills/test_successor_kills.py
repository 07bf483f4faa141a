"""A few drawn moments; `python -m tests.chaos.successor_kills` takes as many as one asks."""

import random
from pathlib import Path

import pytest

from tests.chaos.successor_kills.killing import killed_cluster

pytestmark = [pytest.mark.chaos, pytest.mark.more]


def test_whichever_node_is_killed_when_a_parent_ends_each_successor_runs_once(tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print("drawn with seed", seed)
    draw, kills = random.Random(seed), 0
    with killed_cluster(tmp_path / "killed") as killing:
        while kills < 6:
            kills += len(killing.kill(draw).killed)
        wrong = killing.settle()
    assert not wrong, "\n".join(wrong)
