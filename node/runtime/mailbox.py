"""Passes values from other threads to the event loop, in batches."""

import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

GATHER_S: Final = 0.025
"""The time for which values that may wait are collected, from the first one on."""


class Mailbox(Generic[T]):
    """Takes values from any thread, and calls `take` on the loop with all values since the last call.

    `call` runs a function on the loop, from any thread; `later` runs one after a number of seconds, from the loop.
    Waking the loop is a system call, which releases the interpreter's lock. Done for each of ten thousand entries
    applied after a start, it took longer than applying them. The work on the loop cost even more: a third of the cost
    of registering tasks one by one. So a value that may wait is delivered together with those that follow it.
    """

    def __init__(
        self,
        call: Callable[[Callable[[], None]], None],
        later: Callable[[float, Callable[[], None]], None],
        take: Callable[[list[T]], None],
    ) -> None:
        self._call = call
        self._later = later
        self._take = take
        self._lock = threading.Lock()
        self._values: list[T] = []
        self._delivering = False
        self._gathering = False

    def put(self, value: T, *, waits: bool = False) -> None:
        """Deliver a value as soon as the loop is free; if `waits`, within `GATHER_S`, together with later values."""
        with self._lock:
            self._values.append(value)
            if self._delivering or (waits and self._gathering):
                return
            if waits:
                self._gathering = True
            else:
                self._delivering = True
        self._call(self._gather if waits else self.deliver)

    def _gather(self) -> None:
        self._later(GATHER_S, self.deliver)

    def deliver(self) -> None:
        """Deliver all values now. Must be called on the loop."""
        with self._lock:
            values, self._values = self._values, []
            self._delivering = self._gathering = False
        if values:
            self._take(values)
