"""Keeps the collector of cyclic garbage from stopping the node: it looks at all objects, and holds all threads.

A state of 100,000 tasks is half a million objects, none of them ever in a cycle, and a full collection of them took
a second, in which neither the loop nor the heartbeats ran. So what has survived a full collection that took long is
frozen (`gc.freeze`): it is still freed when nothing refers to it any more, and is not looked at again. A collection
is of what has come since, and takes milliseconds. The price: what is frozen and later becomes a part of a cycle of
garbage stays. At such a moment that is what few requests under way hold, and it takes tens of thousands of new objects
that live on (another state, most likely) until there is the next.

When a collection is due, Python tells by how many objects are new, less how many were freed. So while a cache turns
over, as much is freed as is made, and a young collection may find ten times its threshold: what is made for every task
of a list is not to be remembered (`tasks.spec.read`, not `unpack`).
"""

import gc
from collections.abc import Callable
from time import thread_time
from typing import Any, Final

MIDDLE_AFTER: Final = 3
FULL_AFTER: Final = 1
"""A collection of the middle generation comes after more than so many of the young one, a full one after more than so
many of the middle one; Python's own ten and ten let it look at ten times as much at once."""

LONG_S: Final = 0.003
"""What a full collection looked at is frozen if it took longer, in processor time of its thread. There may be a
third more to look at by then; and while others compute on the machine, it takes three times as long."""


class Freezer:
    """To be among `gc.callbacks`."""

    def __init__(self, freeze: Callable[[], None] = gc.freeze, clock: Callable[[], float] = thread_time) -> None:
        self._freeze = freeze
        self._clock = clock
        self._begun_s = 0.0

    def __call__(self, phase: str, info: dict[str, Any]) -> None:
        """A collection begins or has ended."""
        if info["generation"] < 2:
            return
        if phase == "start":
            self._begun_s = self._clock()
        elif self._clock() - self._begun_s > LONG_S:
            self._freeze()


def collect_in_short(clock: Callable[[], float] = thread_time) -> None:
    """Have this process's collections be short ones. What is there now is frozen: modules, most of all.

    The collector may have been off until now: it is on from here on.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(gc.get_threshold()[0], MIDDLE_AFTER, FULL_AFTER)
    gc.callbacks.append(Freezer(clock=clock))
