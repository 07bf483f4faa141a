"""Limits how many bytes a second are read."""

import threading
import time
from collections.abc import Callable


class ReadingPace:
    """A rate in bytes a second, which several threads share. Time in which nothing was read is not made up for."""

    def __init__(self, bytes_per_s: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._bytes_per_s = bytes_per_s
        self._clock = clock
        self._lock = threading.Lock()
        self._free_at_s = clock()

    def take(self, size_bytes: int) -> None:
        """Count bytes that were read."""
        with self._lock:
            self._free_at_s = max(self._free_at_s, self._clock()) + size_bytes / self._bytes_per_s

    def wait_s(self) -> float:
        """Return the seconds to wait before more is read; 0: none."""
        with self._lock:
            return max(0.0, self._free_at_s - self._clock())
