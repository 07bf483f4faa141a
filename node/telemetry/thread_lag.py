"""How late a node's threads are: the worst of the last minute, for whoever watches its load.

A thread that is late has waited for a processor, for the interpreter, or for something that it did itself and that
took long. None of that is death (DESIGN.md, section 7); it is what an operator sees of a machine that has too much
to do, and what the benchmarks of size and load are read from.
"""

import asyncio
from time import monotonic
from typing import Final, NamedTuple

from prometheus_client import Histogram

PART_S: Final = 10.0
PARTS: Final = 6
"""So many parts are remembered besides the present one: the last minute, and up to ten seconds more."""

_DELAYS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800)

PROBE_S: Final = 0.02
"""Between two looks at the loop's clock. A loop that stands still for a while is found late by that, less this."""


class Worst:
    """The greatest of what was noted within the last minute. One thread notes, any thread asks."""

    def __init__(self) -> None:
        self._part = 0
        self._worst: dict[int, float] = {}

    def note(self, value: float, now_s: float) -> None:
        """Take note of `value`; below zero counts as nothing.

        >>> worst = Worst()
        >>> worst.note(0.25, 100.0), worst.note(0.125, 130.0)
        (None, None)
        >>> worst.over_a_minute(140.0), worst.over_a_minute(185.0), worst.over_a_minute(999.0)
        (0.25, 0.125, 0.0)
        """
        part = int(now_s // PART_S)
        if part != self._part:
            self._part = part
            self._worst = {known: worst for known, worst in self._worst.items() if known >= part - PARTS}
        if value > self._worst.get(part, 0.0):
            self._worst[part] = value

    def over_a_minute(self, now_s: float) -> float:
        """The greatest value of the last minute; 0 if there was none."""
        since = int(now_s // PART_S) - PARTS
        return max((worst for part, worst in list(self._worst.items()) if part >= since), default=0.0)


class Lateness(NamedTuple):
    """How late the event loop, Raft's thread and the heartbeats' were, in seconds on CLOCK_MONOTONIC.

    `answers`: the time from a heartbeat to the leader's answer, which a member that leads does not wait for.
    """

    loop: Worst
    raft: Worst
    heartbeats: Worst
    answers: Worst


def start_delays() -> Histogram:
    """How long after it was due each attempt began, to be shown in /metrics."""
    return Histogram(
        "rota_start_delay_seconds", "From when an attempt was due until it began", buckets=_DELAYS_S, registry=None
    )


async def watch_loop(worst: Worst) -> None:
    """Take note of how late the event loop is, until cancelled."""
    while True:
        due_s = monotonic() + PROBE_S
        await asyncio.sleep(PROBE_S)
        now_s = monotonic()
        worst.note(now_s - due_s, now_s)
