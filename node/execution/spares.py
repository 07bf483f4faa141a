"""Decides how many processes the nursery keeps ready for attempts, and when it forks and ends them.

A new fork takes milliseconds for the first writes to its memory. So the nursery forks spare processes before an attempt
comes: when the node announces an attempt, and again after a spare process was used.
"""

from typing import Final

SPARES: Final = 2
"""How many spare processes are kept, 6 MiB each. If more attempts begin at once, the others begin in new forks."""

KEPT_S: Final = 60.0
"""After this time without an announced or begun attempt the spare processes are ended, so an idle node keeps none."""

REFILL_S: Final = 0.1
"""The pause before a used spare process is replaced, so that the attempt that has begun gets the processor first."""

PAUSE_S: Final = 5.0
"""The pause before the next try after a fork has failed."""


class SpareCount:
    """Makes the decisions on spare processes, from the events noted here. `now_s` is on a monotonic clock.

    >>> count = SpareCount()
    >>> count.missing(0, 10.0), count.wait_s(0, 10.0)
    (0, None)
    >>> count.expect(10.0)
    >>> count.missing(0, 10.0), count.missing(2, 10.0), count.wait_s(2, 10.0)
    (2, 0, 60.0)
    >>> count.used(11.0)
    >>> count.missing(1, 11.0), round(count.wait_s(1, 11.0), 2), count.missing(1, 11.2)
    (0, 0.1, 1)
    >>> count.surplus(2, 70.0), count.surplus(2, 71.0)
    (0, 2)
    """

    def __init__(self) -> None:
        self._until_s = float("-inf")
        self._refill_s = 0.0

    def expect(self, now_s: float) -> None:
        """Note that an attempt is expected soon."""
        self._until_s = now_s + KEPT_S

    def used(self, now_s: float) -> None:
        """Note that an attempt has begun."""
        self._until_s, self._refill_s = now_s + KEPT_S, now_s + REFILL_S

    def failed(self, now_s: float) -> None:
        """Note that a fork has failed."""
        self._refill_s = now_s + PAUSE_S

    def missing(self, there: int, now_s: float) -> int:
        """Return how many processes to fork now, if `there` are ready."""
        return max(0, SPARES - there) if self._refill_s <= now_s < self._until_s else 0

    def surplus(self, there: int, now_s: float) -> int:
        """Return how many processes to end now, if `there` are ready."""
        return there if now_s >= self._until_s else 0

    def wait_s(self, there: int, now_s: float) -> float | None:
        """Return the seconds until the counts change without an event; None: they do not change."""
        if now_s >= self._until_s:
            return None if not there else 0.0
        if there < SPARES and self._refill_s < self._until_s:
            return max(0.0, self._refill_s - now_s)
        return self._until_s - now_s
