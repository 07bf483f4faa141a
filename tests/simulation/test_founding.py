"""Seeded lives of folders that are to found a cluster (`founding_history`)."""

from tests.simulation.founding_history import History

SEEDS = 300


def _lived(seed: int) -> History:
    history = History(seed)
    history.run()
    return history


def test_no_folder_comes_into_two_clusters_however_lists_and_disks_change() -> None:
    lived = [_lived(seed) for seed in range(SEEDS)]
    assert not [history.seed for history in lived if history.overlapping]
    assert sum(bool(history.founded) for history in lived) > 0.2 * SEEDS
    assert any(history.by_hand and history.founded for history in lived)
