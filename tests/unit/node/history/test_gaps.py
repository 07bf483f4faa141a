"""Gaps in a member's history, and the portions that other members send."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from node.history.database import EXPORT_BYTES_MAX, EXPORT_RUNS_MAX
from node.history.store import HistoryStore
from node.peer.portions import Gap, Portion, pack_portion, unpack_portion
from tests.unit.node.history.test_store import ended, ids


@pytest.fixture
def history(tmp_path: Path) -> Iterator[HistoryStore]:
    opened = HistoryStore(tmp_path / "history.db")
    yield opened
    opened.close()


@pytest.fixture
def other(tmp_path: Path) -> Iterator[HistoryStore]:
    opened = HistoryStore(tmp_path / "other.db")
    yield opened
    opened.close()


def fetch(history: HistoryStore, other: HistoryStore) -> int:
    """Fill the gaps with what the other member has. Returns the number of portions."""
    portions = 0
    for gap in history.gaps():
        while gap.after < gap.through and (portion := other.export(gap)) is not None:
            history.fill(gap, unpack_portion(pack_portion(portion)))
            gap = Gap(portion.through, gap.through)
            portions += 1
    return portions


def test_a_snapshot_leaves_a_gap_that_another_member_fills(history: HistoryStore, other: HistoryStore) -> None:
    everything = [(number, ended(number)) for number in range(1, 2 * EXPORT_RUNS_MAX)]
    other.record(len(everything), everything)
    history.record(10, everything[:10])
    history.jumped(len(everything))
    assert fetch(history, other) > 1
    assert history.gaps() == ()
    assert ids(history.runs(None, None, None, None, 5000)) == ids(other.runs(None, None, None, None, 5000))


def test_a_part_that_no_member_has_does_not_hold_up_the_rest(history: HistoryStore, other: HistoryStore) -> None:
    other.jumped(5)
    other.record(1000, [(number, ended(number)) for number in range(6, 1001)])
    history.jumped(1000)
    fetch(history, other)
    assert history.gaps() == (Gap(0, 5),)
    assert ids(history.runs(None, None, None, None, 5000)) == ids(other.runs(None, None, None, None, 5000))


def test_a_member_exports_the_first_part_that_it_has(history: HistoryStore) -> None:
    history.jumped(5)
    history.record(7, [(6, ended(6)), (7, ended(7))])
    history.jumped(9)
    history.record(12, [(12, ended(12))])

    def exported(asked: Gap) -> tuple[int, int, int] | None:
        portion = history.export(asked)
        return None if portion is None else (portion.after, portion.through, len(portion.runs))

    assert [exported(Gap(*asked)) for asked in [(0, 20), (6, 20), (7, 20), (9, 10)]] == [
        (5, 7, 2),
        (6, 7, 1),
        (9, 12, 1),
        (9, 10, 0),
    ]
    assert [exported(Gap(*asked)) for asked in [(0, 5), (7, 9), (12, 20), (6, 6)]] == [None] * 4


def test_a_portion_of_large_runs_is_bounded_by_bytes(history: HistoryStore, other: HistoryStore) -> None:
    large = {"text": "x" * (EXPORT_BYTES_MAX // 10)}
    everything = [(number, replace(ended(number), result=large)) for number in range(1, 31)]
    other.record(30, everything)
    portion = other.export(Gap(0, 30))
    assert portion is not None
    assert 0 < len(pack_portion(portion)) <= EXPORT_BYTES_MAX
    history.jumped(30)
    assert fetch(history, other) == 4
    assert history.gaps() == ()
    assert ids(history.runs(None, None, None, None, 50)) == ids(other.runs(None, None, None, None, 50))


def test_an_entry_that_ended_many_runs_is_exported_whole(history: HistoryStore) -> None:
    much = [(4, ended(number)) for number in range(EXPORT_RUNS_MAX + 50)]
    history.record(5, [*much, (5, ended(9_999))])
    portion = history.export(Gap(0, 5))
    assert portion is not None
    assert (len(portion.runs), portion.after, portion.through) == (EXPORT_RUNS_MAX + 50, 0, 4)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (Portion(0, 5, ((1, b"x"),)), "cannot be read"),
        (Portion(0, 0, ()), "outside of"),
        (Portion(0, 6, ()), "outside of"),
    ],
)
def test_a_portion_is_validated(history: HistoryStore, sent: Portion, why: str) -> None:
    history.jumped(5)
    with pytest.raises(ValueError, match=why):
        history.fill(Gap(0, 5), unpack_portion(pack_portion(sent)))
    assert history.gaps() == (Gap(0, 5),)


def test_a_gap_is_given_up_once_all_its_runs_are_too_old(history: HistoryStore) -> None:
    history.jumped(50)
    for at_us, left in [(1000, (0, 50)), (1100, (0, 50)), (1101, None)]:
        history.delete_older(at_us, at_us - 100)
        assert history.gaps() == (() if left is None else (Gap(*left),)), at_us


def test_the_rest_of_a_gap_keeps_its_age(history: HistoryStore) -> None:
    history.jumped(50)
    history.delete_older(1000, 900)
    history.fill(Gap(0, 50), Portion(20, 30, ()))
    history.jumped(60)
    history.delete_older(1101, 1001)
    assert history.gaps() == (Gap(50, 60),)


def test_a_portion_of_a_gap_that_was_given_up_does_not_restore_it(history: HistoryStore) -> None:
    history.jumped(50)
    history.delete_older(1000, 900)
    history.delete_older(2000, 1900)
    history.fill(Gap(0, 50), Portion(20, 30, ()))
    assert history.gaps() == ()
