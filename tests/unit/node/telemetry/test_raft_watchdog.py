"""When a node logs that its Raft thread is blocked, and when it resumed."""

import logging

from node.telemetry.raft_watchdog import POLL_S, REPORT_AFTER_S, RaftWatchdog


def test_a_block_is_logged_once_and_so_is_its_end() -> None:
    watchdog, polls = RaftWatchdog(silent_after_s=15), round(3 / POLL_S)
    observed = [watchdog.observe(poll * POLL_S, turns=1) for poll in range(polls)]
    logged = [line for line in observed if line is not None]
    assert [level for level, _ in logged] == [logging.WARNING]
    assert logged[0][1].startswith(f"Raft thread blocked for {REPORT_AFTER_S:.1f} s: the disk of ROTA_DATA")
    assert watchdog.blocked
    assert watchdog.observe(3.0, turns=2) == (logging.WARNING, "Raft thread resumed after 3.0 s")
    assert not watchdog.blocked


def test_a_suspended_process_is_not_a_blocked_thread() -> None:
    watchdog = RaftWatchdog(silent_after_s=15)
    assert watchdog.observe(1.0, turns=1) is None
    assert watchdog.observe(3600.0, turns=1) is None
    assert not watchdog.blocked


def test_a_thread_that_has_not_started_is_not_blocked() -> None:
    watchdog = RaftWatchdog(silent_after_s=15)
    assert [watchdog.observe(float(at), turns=0) for at in range(10)] == [None] * 10
    assert not watchdog.blocked
