"""Decides how many processes of one preparation to start or end, and how long before an occurrence is due.

Times (`*_s`) are in seconds on a monotonic clock.
"""

from typing import Final

LEAD_S_MIN: Final = 2.0
LEAD_S_MAX: Final = 60.0
"""The bounds of the lead time, however short or long a preparation is."""

LEAD_S_UNKNOWN: Final = 15.0
"""The lead time as long as no preparation has succeeded on this member."""

LEAD_TIMES: Final = 1.5
"""The lead time as a multiple of the duration of a preparation, because the machine may be busier the next time."""

FORGET: Final = 0.2
"""The share by which a faster preparation shortens the expected duration. A slower one counts in full."""

GRACE_S: Final = 3.0
"""How long a surplus process stays, because an attempt is not counted between its claim and its launch."""

FAILED_S: Final = 5.0
FAILED_S_MAX: Final = 300.0
"""The bounds of the pause after a failed preparation, which doubles with each failure in a row."""


class PreparedCount:
    """Makes the decisions for one preparation, from the events that it is notified of.

    >>> count = PreparedCount()
    >>> count.lead_s, count.change(0, 1, 1, 10.0), count.change(1, 1, 1, 10.0)
    (15.0, 1, 0)
    >>> count.took(4.0)
    >>> count.lead_s, count.change(1, 0, 0, 20.0), count.wait_s(1, 21.0), count.change(1, 0, 0, 23.0)
    (6.0, 0, 2.0, -1)
    >>> count.change(1, 0, 1, 30.0), count.wait_s(1, 30.0)
    (0, None)
    >>> count.failed(40.0)
    >>> count.change(0, 1, 1, 41.0), count.wait_s(0, 41.0), count.change(0, 1, 1, 45.0)
    (0, 4.0, 1)
    """

    def __init__(self) -> None:
        self._took_s: float | None = None
        self._failures = 0
        self._not_before_s = float("-inf")
        self._surplus_since_s: float | None = None
        self._start = self._keep = 0

    @property
    def lead_s(self) -> float:
        """The lead time, in seconds: how long before an occurrence is due its process is started."""
        if self._took_s is None:
            return LEAD_S_UNKNOWN
        return min(LEAD_S_MAX, max(LEAD_S_MIN, LEAD_TIMES * self._took_s))

    def took(self, seconds: float) -> None:
        """Note that preparing a process took this time."""
        known_s = seconds if self._took_s is None else self._took_s
        self._took_s = max(seconds, known_s + FORGET * (seconds - known_s))
        self._failures = 0

    def failed(self, now_s: float) -> None:
        """Note that a preparation has failed, or its process has ended."""
        self._not_before_s = now_s + min(FAILED_S_MAX, FAILED_S * 2**self._failures)
        self._failures = min(self._failures + 1, 10)

    def change(self, there: int, start: int, keep: int, now_s: float) -> int:
        """Return how many processes to start now; negative: how many to end.

        `there`: how many processes are prepared or being prepared. `start`: how many are needed within the lead time.
        `keep`: how many of the present ones may stay.
        """
        self._start, self._keep = start, max(start, keep)
        return self.due(there, now_s)

    def due(self, there: int, now_s: float) -> int:
        """Return the result of `change` for the `start` and `keep` of its last call."""
        if there <= self._keep:
            self._surplus_since_s = None
        elif self._surplus_since_s is None:
            self._surplus_since_s = now_s
        if self._surplus_since_s is not None:
            return self._keep - there if now_s >= self._surplus_since_s + GRACE_S else 0
        return max(0, self._start - there) if now_s >= self._not_before_s else 0

    def wait_s(self, there: int, now_s: float) -> float | None:
        """Return the seconds until the counts change without an event; None: they do not change."""
        if self._surplus_since_s is not None:
            return max(0.0, self._surplus_since_s + GRACE_S - now_s)
        return max(0.0, self._not_before_s - now_s) if there < self._start else None
