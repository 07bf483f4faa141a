"""Notices that Raft's thread has stood still, and says so in the log: mostly its disk does not answer.

It waits for a sync of the journal, as it must. From here nothing is committed meanwhile; if it lasts, the heartbeats
end, and others take the work over (`node.liveness.pulse.STILL_S`).
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

_log = logging.getLogger("rota.stalls")

TELL_AFTER_S: Final = 1.0
"""A disk that is busy is done with a sync before that."""

LOOK_S: Final = 0.25


class Stall:
    """Decides what to report, and whether a stall lasts. Heartbeats end after `silent_after_s` of one."""

    def __init__(self, silent_after_s: float) -> None:
        self._silent_after_s = silent_after_s
        self._turns = 0
        self._still_s = 0.0
        self._looked_s = 0.0

    @property
    def lasts(self) -> bool:
        """Whether the thread stands still for longer than is usual."""
        return self._still_s >= TELL_AFTER_S

    def look(self, now_s: float, turns: int) -> tuple[int, str] | None:
        """The level and the text of what to log now; None: nothing. `turns` counts the thread's rounds; 0: none yet.

        What counts is the time between looks: a process that was suspended as a whole did not stand still in it.

        >>> stall = Stall(silent_after_s=15)
        >>> [stall.look(at / 4, turns=7) for at in range(4)]
        [None, None, None, None]
        >>> stall.look(1.0, turns=7)[1].partition(":")[0], stall.lasts
        ('Raft has stood still here for 1.0 s', True)
        >>> stall.look(1.25, turns=8)[1], stall.lasts
        ('Raft goes on here, after 1.2 s', False)
        """
        passed_s, self._looked_s = min(now_s - self._looked_s, 2 * LOOK_S), now_s
        lasted, before_s = self.lasts, self._still_s
        if turns != self._turns or not turns:
            self._turns, self._still_s = turns, 0.0
            return (logging.WARNING, f"Raft goes on here, after {before_s + passed_s:.1f} s") if lasted else None
        self._still_s += passed_s
        if lasted or not self.lasts:
            return None
        return (
            logging.WARNING,
            f"Raft has stood still here for {self._still_s:.1f} s: the disk of ROTA_DATA does not answer, or this"
            " machine has far too much to do. Nothing is committed from here until it goes on; after"
            f" {self._silent_after_s:.0f} s the others take over what runs here",
        )


async def tell_of_stalls(stall: Stall, turns: Callable[[], int]) -> None:
    """Serve until cancelled."""
    clock = asyncio.get_running_loop().time
    while True:
        await asyncio.sleep(LOOK_S)
        said = stall.look(clock(), turns())
        if said is not None:
            _log.log(*said)
