"""Keeps the cyclic garbage collector from stopping the node: a collection traverses objects and stops all threads.

A state of 100,000 tasks is half a million objects, none of them in a cycle. A full collection took a second, in which
neither the event loop nor the heartbeats ran. So the survivors of a slow full collection are frozen (`gc.freeze`): they
are still freed when their last reference goes, but no collection traverses them again. Later collections traverse only
newer objects, and take milliseconds. The price: a frozen object that becomes part of a garbage cycle leaks. Few objects
leak, because only the requests under way at a freeze have such objects, and the next freeze comes only after tens of
thousands of new long-lived objects, mostly another state.

Python starts a collection by the number of objects created minus those freed. While a cache replaces its values, the
two cancel out, and a young collection may have to traverse ten times its threshold. So values that are made for every
task of a list are not cached (`tasks.definition.spec.read_spec`, not `cached_spec`).
"""

import gc
from collections.abc import Callable
from time import thread_time
from typing import Any, Final

MIDDLE_AFTER: Final = 3
FULL_AFTER: Final = 1
"""The thresholds of the middle and the old generation, as numbers of collections of the next younger generation. With
Python's default of ten for both, one collection traverses ten times as much."""

LONG_S: Final = 0.003
"""After a full collection that took longer than this, in processor time of its thread, its survivors are frozen. The
next full collection may traverse a third more objects, and take three times as long while the machine is busy."""


class Freezer:
    """A callback for `gc.callbacks` that freezes the survivors of a slow full collection."""

    def __init__(self, freeze: Callable[[], None] = gc.freeze, clock: Callable[[], float] = thread_time) -> None:
        self._freeze = freeze
        self._clock = clock
        self._begun_s = 0.0

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        """Called by the collector when a collection starts and when it stops."""
        if info["generation"] < 2:
            return
        if phase == "start":
            self._begun_s = self._clock()
        elif self._clock() - self._begun_s > LONG_S:
            self._freeze()


def collect_in_short(clock: Callable[[], float] = thread_time) -> None:
    """Freeze all present objects, mostly modules, enable the collector, and keep its collections short from now on.

    It does not collect before the freeze, because this took 50 ms of a start and freed less than 1 MB.
    """
    gc.freeze()
    gc.enable()
    gc.set_threshold(gc.get_threshold()[0], MIDDLE_AFTER, FULL_AFTER)
    gc.callbacks.append(Freezer(clock=clock))
