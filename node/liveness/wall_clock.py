"""The wall clock of this process: the machine's, or the members' agreed one if the machine's is off.

One per process, since there is one clock per machine. `node.liveness.clocks` decides.
"""

import logging
import time
from typing import Final

from node.liveness.clocks import Correction
from node.runtime.boottime import boottime_s

_log = logging.getLogger("rota.clock")


class WallClock:
    """The time, in microseconds since the epoch. Any thread may read it; one thread calls `agree`."""

    def __init__(self) -> None:
        self._correction = Correction()
        self._logged_off = False

    def now_us(self) -> int:
        """Return the time for the stamps of entries and for schedules."""
        return self._correction.now_us(machine_us(), boottime_s())

    @property
    def agreed(self) -> bool:
        """Whether the members have agreed on a time since this process started; `now_us` has been right since then."""
        return self._correction.agreed

    @property
    def off_us(self) -> int | None:
        """How far the machine's clock is ahead of the agreed one, in microseconds; None before the first agreement."""
        return self._correction.off_us(machine_us(), boottime_s())

    def agree(self, agreed_us: int, sent_s: float, now_s: float) -> None:
        """Use the agreed time in the leader's answer, which came at `now_s`. The heartbeat was sent at `sent_s`."""
        self._correction.agree(agreed_us, sent_s, now_s)
        off_us = machine_us() - self.now_us()
        if self._correction.off != self._logged_off:
            self._logged_off = self._correction.off
            if self._logged_off:
                _log.warning(
                    "this machine's wall clock is %.1f s %s most members' clocks: theirs is used; correct this one",
                    abs(off_us) / 1e6,
                    "ahead of" if off_us > 0 else "behind",
                )
            else:
                _log.info("this machine's wall clock agrees with most members' clocks again")


def machine_us() -> int:
    """Return the machine's wall clock, right or wrong."""
    return time.time_ns() // 1000


CLOCK: Final = WallClock()
now_us: Final = CLOCK.now_us
"""The clock that every part of a node reads."""
