"""What other threads have to say to the event loop, brought to it together."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """Takes values from any thread; `take` is called on the loop with all that have come since it was called last.

    `on_loop` has something called there. To wake the loop is a system call, which lets another thread have the
    interpreter: for each of ten thousand entries applied after a start, that took longer than to apply them.
    """

    def __init__(self, on_loop: Callable[[Callable[[], None]], None], take: Callable[[list[T]], None]) -> None:
        self._on_loop = on_loop
        self._take = take
        self._lock = threading.Lock()
        self._values: list[T] = []

    def put(self, value: T) -> None:
        """Leave a value for the loop."""
        with self._lock:
            self._values.append(value)
            first = len(self._values) == 1
        if first:
            self._on_loop(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            values, self._values = self._values, []
        self._take(values)
