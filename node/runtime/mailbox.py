"""What other threads have to say to the event loop, brought to it together."""

import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

REST_S: Final = 0.025
"""So long what may rest is gathered, from the first of it on."""


class Inbox(Generic[T]):
    """Takes values from any thread; `take` is called on the loop with all that have come since it was called last.

    `on_loop` has something called there, `later` does so after so many seconds, and is itself called there. To wake the
    loop is a system call, which lets another thread have the interpreter: for each of ten thousand entries applied
    after a start, that took longer than to apply them. What follows from waking costs more still: while tasks are
    registered one by one, it was a third of the price. So a value may rest until others have come.
    """

    def __init__(
        self,
        on_loop: Callable[[Callable[[], None]], None],
        later: Callable[[float, Callable[[], None]], None],
        take: Callable[[list[T]], None],
    ) -> None:
        self._on_loop = on_loop
        self._later = later
        self._take = take
        self._lock = threading.Lock()
        self._values: list[T] = []
        self._coming = False
        self._resting = False

    def put(self, value: T, *, rests: bool = False) -> None:
        """Leave a value for the loop: as soon as it is free, or with what comes in the next `REST_S`, if it `rests`."""
        with self._lock:
            self._values.append(value)
            if self._coming or (rests and self._resting):
                return
            if rests:
                self._resting = True
            else:
                self._coming = True
        self._on_loop(self._rest if rests else self.deliver)

    def _rest(self) -> None:
        self._later(REST_S, self.deliver)

    def deliver(self) -> None:
        """Bring what there is, now. To be called on the loop."""
        with self._lock:
            values, self._values = self._values, []
            self._coming = self._resting = False
        if values:
            self._take(values)
