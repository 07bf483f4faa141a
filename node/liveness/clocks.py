"""What time it is, where one member's wall clock is wrong: what most members' clocks say. Pure.

Every heartbeat bears its sender's wall clock, every answer the median of them; like cockroachdb, which compares the
clocks of its nodes and ends the one that is off, except that here it goes by the others' clock instead. As long as
more than half of the members' clocks are right, a wrong one makes nothing early, late or missed.

Most is more than half of all members, heard or not: with one of three down and one of three wrong, the two that are
heard say different times, and nobody can tell which is right. Then there is no answer, and each member goes on with
what was agreed last. That is kept against CLOCK_BOOTTIME, so it stays right whatever happens to wall clocks, and is
replaced as soon as most agree again. Two things follow from it:

- A member that starts while no answer can be had has nothing to go on with, and goes by its own clock, right or wrong.
- Where the clocks that agreed were wrong, and are set right one after the other, the first to be set right counts as
  off until most are. If most cannot be had, it does so until they can.

Wall clocks are in microseconds since the epoch. `now_s`, and all other seconds, are the own CLOCK_BOOTTIME.
"""

from collections.abc import Collection
from statistics import median_low

ROUND_S = 0.75
"""What took longer to go to and fro says too little about now."""

FRESH_S = 3.0
"""What a member said of its clock counts so long."""

TOLERATED_US = 1_000_000
"""A clock that is off by no more is good enough: each member goes by its own, and schedules fire by it."""

_US = 1_000_000


class Clocks:
    """The leader's side: what the members' clocks say."""

    def __init__(self) -> None:
        self._ahead_us: dict[str, tuple[int, float]] = {}
        """How much later each one's wall clock is than the own CLOCK_BOOTTIME, and when that was heard."""

    def heard(self, member: str, wall_us: int, echo_s: float | None, now_s: float) -> None:
        """A heartbeat bears `wall_us`. `echo_s`, the own clock in the answer before it, shows how old it may be."""
        if echo_s is not None and 0 <= now_s - echo_s <= ROUND_S:
            self._ahead_us[member] = (wall_us - round(now_s * _US), now_s)

    def agreed_us(self, members: Collection[str], now_s: float) -> int | None:
        """The wall clock that most of all members go by, known or not: the median of those that are known, if it is
        within `TOLERATED_US` of more than half of the members' clocks; else None.

        So it is never further than that from a right clock, where more than half are right: any two majorities have a
        member in common.

        >>> clocks = Clocks()
        >>> for member, wall_us in [("a", 5_000_000), ("b", 5_000_007), ("c", 3_605_000_000)]:
        ...     clocks.heard(member, wall_us, 1.0, 1.0)
        >>> clocks.agreed_us(["a", "b", "c"], 2.0), clocks.agreed_us(["a", "b", "c", "d"], 2.0)
        (6000007, None)
        """
        known = [
            ahead_us
            for member, (ahead_us, heard_s) in self._ahead_us.items()
            if member in members and now_s - heard_s <= FRESH_S
        ]
        if not known:
            return None
        median_us = median_low(known)
        agreeing = sum(abs(ahead_us - median_us) <= TOLERATED_US for ahead_us in known)
        return round(now_s * _US) + median_us if 2 * agreeing > len(members) else None


class Correction:
    """A member's side: the own wall clock, or where that is off, the one agreed on, however long ago that was.

    Before anything is agreed on, the own one. One that was off and is set right counts again, by itself, as soon as it
    is near what was agreed on last: nobody needs to be heard for that.
    """

    def __init__(self) -> None:
        self._ahead_us: int | None = None
        self.off = False
        """Whether the own wall clock was off when it was last looked at."""

    @property
    def agreed(self) -> bool:
        """Whether anything has been agreed on yet. Before that, nobody vouches for the own wall clock."""
        return self._ahead_us is not None

    def agree(self, agreed_us: int, sent_s: float, now_s: float) -> None:
        """An answer bears `agreed_us`, to a heartbeat of `sent_s`: it is that since half of the way."""
        if 0 <= now_s - sent_s <= ROUND_S:
            self._ahead_us = agreed_us - round((sent_s + now_s) / 2 * _US)

    def now_us(self, wall_us: int, now_s: float) -> int:
        """The time to go by, where the own wall clock says `wall_us`.

        >>> correction = Correction()
        >>> correction.now_us(3_600_000_000, 1.0)
        3600000000
        >>> correction.agree(5_000_000, 1.0, 1.0)
        >>> correction.now_us(3_600_000_000, 2.0), correction.now_us(6_900_000, 2.0), correction.now_us(6_100_000, 2.0)
        (6000000, 6000000, 6100000)
        """
        if self._ahead_us is None:
            return wall_us
        agreed_us = round(now_s * _US) + self._ahead_us
        # Once off, it must come closer before it counts again: it is not to be chosen anew at every look.
        self.off = abs(wall_us - agreed_us) > (TOLERATED_US // 2 if self.off else TOLERATED_US)
        return agreed_us if self.off else wall_us
