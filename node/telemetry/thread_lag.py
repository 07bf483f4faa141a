"""Measures how late a node's threads run: the worst delay of the last minute, for operators and benchmarks.

A late thread has waited for a processor, for the interpreter's lock, or for a long computation of its own. A late
thread shows that a machine is overloaded, but is no reason to mark the node down
(docs/explanation/leases-and-claims.md).
"""

import asyncio
from time import monotonic, process_time
from typing import Final, NamedTuple

from prometheus_client import Histogram

from node.runtime.aligned import to_grid

PART_S: Final = 10.0
"""The length of one part of the observed time."""

PARTS: Final = 6
"""The number of finished parts that are kept beside the present one: the last minute, and up to ten seconds more."""

_DELAYS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800)

PROBE_S: Final = 0.02
"""The interval between two probes of a busy event loop. The measured length of a block is up to this much too short."""

IDLE_PROBE_S: Final = 0.5
"""The interval while the process is idle, because 50 wakeups a second were a fifth of its cost. Only the machine delays
an idle process, and Raft's thread and the heartbeat thread measure that delay too."""

IDLE_AFTER_S: Final = 1.0
"""The time of observation before the process counts as idle. A shorter time could contain little but a heartbeat."""

LATE_S: Final = PROBE_S
"""A probe that is at least this late ends the idle state."""

BUSY_SHARE: Final = 0.05
"""If the process used at least this share of a core since the last probe, the idle state ends."""


class Worst:
    """The maximum of the values noted within the last minute. One thread may note values; any thread may read."""

    def __init__(self) -> None:
        self._part = 0
        self._worst: dict[int, float] = {}

    def note(self, value: float, now_s: float) -> None:
        """Note `value`; a negative value counts as zero.

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
        """Return the maximum of the last minute; 0 if no value was noted."""
        since = int(now_s // PART_S) - PARTS
        return max((worst for part, worst in list(self._worst.items()) if part >= since), default=0.0)


class ThreadLag(NamedTuple):
    """The lateness of the event loop, Raft's thread and the heartbeat thread, in seconds on CLOCK_MONOTONIC.

    `answers`: the round-trip times of heartbeats to the leader; empty on a leader.
    """

    loop: Worst
    raft: Worst
    heartbeats: Worst
    answers: Worst


class ProbePace:
    """Decides how long to wait until the next probe of the event loop."""

    def __init__(self) -> None:
        self._idle = False
        self._probed_s = self._cpu_s = self._late_s = 0.0

    def next_s(self, probed_s: float, late_s: float, cpu_s: float) -> float:
        """Return the seconds until the next probe. The last probe took `probed_s` and was `late_s` late. Meanwhile the
        process used `cpu_s` of processor time.

        >>> pace = ProbePace()
        >>> [pace.next_s(0.5, 0.0, 0.001), pace.next_s(0.5, 0.0, 0.001), pace.next_s(0.1, 0.2, 0.001)]
        [0.02, 0.5, 0.02]
        """
        self._probed_s, self._cpu_s = self._probed_s + probed_s, self._cpu_s + cpu_s
        self._late_s = max(self._late_s, late_s)
        if self._idle or self._probed_s >= IDLE_AFTER_S:
            self._idle = self._late_s < LATE_S and self._cpu_s < BUSY_SHARE * self._probed_s
            self._probed_s = self._cpu_s = self._late_s = 0.0
        return IDLE_PROBE_S if self._idle else PROBE_S


def start_delays() -> Histogram:
    """Return the histogram of the delays from each attempt's due time to its beginning, for /metrics."""
    return Histogram(
        "rota_start_delay_seconds", "From when an attempt was due until it began", buckets=_DELAYS_S, registry=None
    )


async def watch_loop(worst: Worst) -> None:
    """Record in `worst` how late the event loop is. Runs until cancelled."""
    pace, wait_s = ProbePace(), PROBE_S
    while True:
        begun_s, begun_cpu_s = monotonic(), process_time()
        asleep_s = to_grid(wait_s, begun_s) if wait_s == IDLE_PROBE_S else wait_s
        await asyncio.sleep(asleep_s)
        now_s = monotonic()
        late_s = now_s - begun_s - asleep_s
        worst.note(late_s, now_s)
        wait_s = pace.next_s(now_s - begun_s, late_s, process_time() - begun_cpu_s)
