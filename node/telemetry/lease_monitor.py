"""Logs when this member has been without a lease for some time, and when it has one again."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from node.runtime.aligned import sleep_to_grid

_log = logging.getLogger("rota.lease")

REPORT_AFTER_S: Final = 3.0
"""A shorter loss is not logged, because an election, which is part of normal operation, takes less time."""

POLL_S: Final = 0.5


class LeaseMonitor:
    """Decides what to log. `begun_s`: when the member started, still without a lease."""

    def __init__(self, begun_s: float) -> None:
        self._since_s: float | None = begun_s
        self._reported = False

    def observe(self, now_s: float, held: bool, leader: str | None) -> tuple[int, str] | None:
        """Return the level and text of the line to log now; None: no line. `leader`: the leader, if it is known here.

        >>> monitor = LeaseMonitor(0.0)
        >>> monitor.observe(1.0, held=True, leader="a"), monitor.observe(2.0, held=False, leader=None)
        (None, None)
        >>> monitor.observe(5.5, held=False, leader=None)[1]
        'no lease for 3.5 s: no leader is known. Nothing starts here; running attempts are frozen until there is one'
        >>> monitor.observe(9.0, held=True, leader="b")[1]
        'lease regained after 7.0 s'
        """
        if held:
            since_s, reported = self._since_s, self._reported
            self._since_s, self._reported = None, False
            return (logging.INFO, f"lease regained after {now_s - (since_s or now_s):.1f} s") if reported else None
        if self._since_s is None:
            self._since_s = now_s
        for_s = now_s - self._since_s
        if self._reported or for_s < REPORT_AFTER_S:
            return None
        self._reported = True
        why = "no leader is known" if leader is None else f"the leader, {leader}, grants none"
        return (
            logging.WARNING,
            f"no lease for {for_s:.1f} s: {why}. Nothing starts here; running attempts are frozen until there is one",
        )


async def monitor_lease(held: Callable[[], bool], leader: Callable[[], str | None]) -> None:
    """Log when the lease is lost or regained, until cancelled."""
    clock = asyncio.get_running_loop().time
    monitor = LeaseMonitor(clock())
    while True:
        await sleep_to_grid(POLL_S)
        line = monitor.observe(clock(), held(), leader())
        if line is not None:
            _log.log(*line)
