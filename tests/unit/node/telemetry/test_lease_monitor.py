"""What a node's log says of leases that are not there."""

import logging

from node.telemetry.lease_monitor import TELL_AFTER_S, Lapse


def test_a_lapse_is_told_once_and_its_end_too() -> None:
    lapse = Lapse(0.0)
    assert lapse.look(1.0, held=True, leader="a") is None
    said = [lapse.look(2.0 + step / 2, held=False, leader="a") for step in range(20)]
    told = [one for one in said if one is not None]
    assert [level for level, _ in told] == [logging.WARNING]
    assert "a, which leads, grants none" in told[0][1]
    assert lapse.look(12.0, held=True, leader="a") == (logging.INFO, "a lease again, after 10.0 s")
    assert lapse.look(13.0, held=True, leader="a") is None


def test_an_election_is_no_news() -> None:
    lapse = Lapse(0.0)
    assert lapse.look(1.0, held=True, leader="a") is None
    assert lapse.look(2.0, held=False, leader=None) is None
    assert lapse.look(1.9 + TELL_AFTER_S, held=False, leader=None) is None
    assert lapse.look(2.5 + TELL_AFTER_S, held=True, leader="b") is None


def test_a_node_that_finds_nobody_at_its_start_says_so() -> None:
    lapse = Lapse(100.0)
    assert lapse.look(101.0, held=False, leader=None) is None
    said = lapse.look(103.0, held=False, leader=None)
    assert said is not None
    assert "no leader is known" in said[1]
