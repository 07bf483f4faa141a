"""All nodes are killed at once, under writes: three rounds of `make blackout`."""

from pathlib import Path

import pytest

from bench.blackout import Blackout

pytestmark = pytest.mark.chaos


def test_nothing_acknowledged_is_lost_when_all_are_killed_at_once(tmp_path: Path) -> None:
    blackout = Blackout(tmp_path, nodes=3, seed=1)
    with blackout.cluster:
        blackout.begin()
        for _ in range(3):
            assert blackout.round(), blackout.found
    assert blackout.written > 3 * 3 * 3
