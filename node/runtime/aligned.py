"""Aligns waits so that they end together: the periodic services of one event loop share its wakeups."""

import asyncio
from math import floor
from typing import Final

GRID_S: Final = 0.5


def to_grid(wait_s: float, now_s: float) -> float:
    """Return the longest wait up to `wait_s` that ends at a multiple of `GRID_S` on the clock of `now_s`.

    Never 0 if `wait_s` is `GRID_S` or more. Services with such waits wake in the same turns of the loop, because a
    wakeup of an idle process costs far more than the work of such a service.

    >>> to_grid(0.5, 10.0), to_grid(0.5, 10.125), to_grid(2.0, 10.125)
    (0.5, 0.375, 1.875)
    """
    return floor((now_s + wait_s) / GRID_S) * GRID_S - now_s


async def sleep_to_grid(wait_s: float) -> None:
    """Sleep for `wait_s`, or up to `GRID_S` less, so that services wake together."""
    await asyncio.sleep(to_grid(wait_s, asyncio.get_running_loop().time()))
