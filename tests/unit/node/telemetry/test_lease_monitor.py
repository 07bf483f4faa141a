"""What a node logs of a lease that it does not have."""

import logging

from node.telemetry.lease_monitor import REPORT_AFTER_S, LeaseMonitor


def test_a_lost_lease_is_logged_once_and_so_is_its_return() -> None:
    monitor = LeaseMonitor(0.0)
    assert monitor.observe(1.0, held=True, leader="a") is None
    observed = [monitor.observe(2.0 + step / 2, held=False, leader="a") for step in range(20)]
    logged = [line for line in observed if line is not None]
    assert [level for level, _ in logged] == [logging.WARNING]
    assert "the leader, a, grants none" in logged[0][1]
    assert monitor.observe(12.0, held=True, leader="a") == (logging.INFO, "lease regained after 10.0 s")
    assert monitor.observe(13.0, held=True, leader="a") is None


def test_an_election_is_not_logged() -> None:
    monitor = LeaseMonitor(0.0)
    assert monitor.observe(1.0, held=True, leader="a") is None
    assert monitor.observe(2.0, held=False, leader=None) is None
    assert monitor.observe(1.9 + REPORT_AFTER_S, held=False, leader=None) is None
    assert monitor.observe(2.5 + REPORT_AFTER_S, held=True, leader="b") is None


def test_a_node_that_finds_no_leader_at_its_start_logs_that() -> None:
    monitor = LeaseMonitor(100.0)
    assert monitor.observe(101.0, held=False, leader=None) is None
    line = monitor.observe(103.0, held=False, leader=None)
    assert line is not None
    assert "no leader is known" in line[1]
