"""Agreement on the time of day, so that one member's wrong wall clock does no harm. Pure.

Every heartbeat carries its sender's wall clock, every answer the median of all. CockroachDB compares its nodes' clocks
too, and stops a node whose clock is off. Here such a node uses the others' time instead. While more than half of the
members' clocks are right, a wrong one makes no occurrence early, late or missed.

The majority is of all members, reachable or not. With one of three down and one of three wrong, the two clocks that
are heard differ, and it is unknown which is right. Then there is no agreement, and each member keeps the last agreed
clock. This is kept relative to CLOCK_BOOTTIME, so it stays right whatever happens to wall clocks, until the next
agreement replaces it. Two consequences:

- A member that starts while there is no agreement uses its own clock, right or wrong.
- If the agreed clocks were wrong and are corrected one after the other, the first corrected one counts as off until a
  majority is corrected and reachable.

Wall clocks are in microseconds since the epoch. `now_s` and all other seconds are of the member's own CLOCK_BOOTTIME.
"""

from collections.abc import Collection
from statistics import median_low

ROUND_S = 0.75
"""A sample with a longer round trip is too imprecise and is not used."""

FRESH_S = 3.0
"""How long a member's sample counts."""

TOLERATED_US = 1_000_000
"""A clock that is off by at most this much is used uncorrected."""

_US = 1_000_000


class Clocks:
    """The leader's side: samples of the members' clocks."""

    def __init__(self) -> None:
        self._ahead_us: dict[str, tuple[int, float]] = {}
        """For each member: its wall clock minus the leader's CLOCK_BOOTTIME, and when the clock was sampled."""

    def heard(self, member: str, wall_us: int, echo_s: float | None, now_s: float) -> None:
        """Sample a member's clock, which read `wall_us` in its heartbeat.

        The heartbeat was sent after `echo_s`, the leader's clock in the last answer.
        """
        if echo_s is not None and 0 <= now_s - echo_s <= ROUND_S:
            self._ahead_us[member] = (wall_us - round(now_s * _US), now_s)

    def agreed_us(self, members: Collection[str], now_s: float) -> int | None:
        """Return the median of the sampled clocks if more than half of all members' clocks are within `TOLERATED_US`
        of it, else None.

        While more than half of the clocks are right, the median is within `TOLERATED_US` of a right clock, because any
        two majorities have a member in common.

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
    """A member's side: uses its own wall clock, or, if that is off, the last agreed clock, however old.

    Before the first agreement it uses its own clock. Once an operator has corrected that clock, it is used again as
    soon as it is near the last agreed clock, even if no other member is reachable.
    """

    def __init__(self) -> None:
        self._ahead_us: int | None = None
        self.off = False
        """Whether the own wall clock was off at the last call of `now_us`."""

    @property
    def agreed(self) -> bool:
        """Whether there has been an agreement. Before that, the own wall clock is unverified."""
        return self._ahead_us is not None

    def agree(self, agreed_us: int, sent_s: float, now_s: float) -> None:
        """Use the agreed clock in an answer that arrived at `now_s`. The heartbeat was sent at `sent_s`.

        `agreed_us` counts as read in the middle of the round trip.
        """
        if 0 <= now_s - sent_s <= ROUND_S:
            self._ahead_us = agreed_us - round((sent_s + now_s) / 2 * _US)

    def off_us(self, wall_us: int, now_s: float) -> int | None:
        """Return how far the own wall clock `wall_us` is ahead of the last agreed one; None before an agreement.

        >>> correction = Correction()
        >>> correction.agree(5_000_000, 1.0, 1.0)
        >>> correction.off_us(6_100_000, 2.0), Correction().off_us(1, 1.0)
        (100000, None)
        """
        return None if self._ahead_us is None else wall_us - round(now_s * _US) - self._ahead_us

    def now_us(self, wall_us: int, now_s: float) -> int:
        """Return the time to use while the own wall clock reads `wall_us`.

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
        # Hysteresis: once off, a clock must come closer before it is used again.
        self.off = abs(wall_us - agreed_us) > (TOLERATED_US // 2 if self.off else TOLERATED_US)
        return agreed_us if self.off else wall_us
