"""Waits that end together: periodic services of one event loop share its wakeups."""

from math import floor


def to_next(period_s: float, now_s: float) -> float:
    """Seconds until the next multiple of `period_s` on the clock of `now_s`; never 0.

    Services whose periods are multiples of one another and that sleep for this wake in the same turn of the loop. Each
    wakeup of an idle process costs far more than the work of such a service.

    >>> to_next(0.25, 10.0), to_next(0.25, 10.125), to_next(0.5, 10.375)
    (0.25, 0.125, 0.125)
    """
    return (floor(now_s / period_s) + 1) * period_s - now_s
