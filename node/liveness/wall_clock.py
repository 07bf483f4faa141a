"""The wall clock that this process goes by: the machine's, or the members' where the machine's is off.

There is one for each process, as there is one clock in a machine. What it decides is `node.liveness.clocks`'s.
"""

import logging
import time
from typing import Final

from node.liveness.clocks import Correction

_log = logging.getLogger("rota.clock")


class WallClock:
    """The time, in microseconds since the epoch. Any thread may read it; one thread tells what is agreed on."""

    def __init__(self) -> None:
        self._correction = Correction()
        self._told_off = False

    def now_us(self) -> int:
        """What entries are stamped with, and schedules fire by."""
        return self._correction.now_us(machine_us(), time.clock_gettime(time.CLOCK_BOOTTIME))

    @property
    def agreed(self) -> bool:
        """Whether most members' clocks have ever vouched for the time in this process; it is right since then."""
        return self._correction.agreed

    def agree(self, agreed_us: int, sent_s: float, now_s: float) -> None:
        """The leader has said what most members' clocks say, in answer to a heartbeat of `sent_s`, at `now_s`."""
        self._correction.agree(agreed_us, sent_s, now_s)
        off_us = machine_us() - self.now_us()
        if self._correction.off != self._told_off:
            self._told_off = self._correction.off
            if self._told_off:
                _log.warning(
                    "this machine's wall clock is %.1f s %s most members' clocks: theirs is used here; set it right",
                    abs(off_us) / 1e6,
                    "ahead of" if off_us > 0 else "behind",
                )
            else:
                _log.info("this machine's wall clock agrees with most members' clocks again")


def machine_us() -> int:
    """The machine's wall clock, right or wrong."""
    return time.time_ns() // 1000


CLOCK: Final = WallClock()
now_us: Final = CLOCK.now_us
"""What everything in a node reads."""
