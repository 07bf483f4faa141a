"""Logs when Raft's thread is blocked, mostly because its disk does not answer a sync of the journal.

Meanwhile this node commits no entries. If the block lasts, the node stops its heartbeats, and the other members take
over its work (`node.liveness.pulse.STILL_S`).
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from node.runtime.aligned import sleep_to_grid

_log = logging.getLogger("rota.raft_watchdog")

REPORT_AFTER_S: Final = 1.0
"""A shorter block is not logged, because a disk that is only busy answers a sync within this time."""

POLL_S: Final = 0.5
COUNTED_S_MAX: Final = 0.75


class RaftWatchdog:
    """Decides what to log, and whether Raft's thread is blocked. After a block of `silent_after_s`, heartbeats stop."""

    def __init__(self, silent_after_s: float) -> None:
        self._silent_after_s = silent_after_s
        self._turns = 0
        self._blocked_s = 0.0
        self._observed_s = 0.0

    @property
    def blocked(self) -> bool:
        """Whether Raft's thread has been blocked for `REPORT_AFTER_S`."""
        return self._blocked_s >= REPORT_AFTER_S

    def observe(self, now_s: float, turns: int) -> tuple[int, str] | None:
        """Return the level and text of the line to log now; None: no line. `turns`: the thread's steps; 0: not started.

        Of the time between two observations, at most `COUNTED_S_MAX` counts, because the thread was not blocked while
        the whole process was suspended.

        >>> watchdog = RaftWatchdog(silent_after_s=15)
        >>> [watchdog.observe(at / 4, turns=7) for at in range(4)]
        [None, None, None, None]
        >>> watchdog.observe(1.0, turns=7)[1].partition(":")[0], watchdog.blocked
        ('Raft thread blocked for 1.0 s', True)
        >>> watchdog.observe(1.25, turns=8)[1], watchdog.blocked
        ('Raft thread resumed after 1.2 s', False)
        """
        passed_s, self._observed_s = min(now_s - self._observed_s, COUNTED_S_MAX), now_s
        was_blocked, before_s = self.blocked, self._blocked_s
        if turns != self._turns or not turns:
            self._turns, self._blocked_s = turns, 0.0
            return (logging.WARNING, f"Raft thread resumed after {before_s + passed_s:.1f} s") if was_blocked else None
        self._blocked_s += passed_s
        if was_blocked or not self.blocked:
            return None
        return (
            logging.WARNING,
            f"Raft thread blocked for {self._blocked_s:.1f} s: the disk of ROTA_DATA does not answer, or the machine "
            f"is overloaded. This node commits nothing meanwhile; after {self._silent_after_s:.0f} s the other members "
            "take over what runs here",
        )


async def watch_raft(watchdog: RaftWatchdog, turns: Callable[[], int]) -> None:
    """Log when Raft's thread is blocked, until cancelled."""
    clock = asyncio.get_running_loop().time
    while True:
        await sleep_to_grid(POLL_S)
        line = watchdog.observe(clock(), turns())
        if line is not None:
            _log.log(*line)
