"""The library's poller, which also says how long it has waited.

How late Raft's thread is can then be told however long it was asked to wait (`Raft.lateness`).
"""

import select
from typing import Final

from pysyncobj.monotonic import monotonic
from pysyncobj.poller import POLL_EVENT_TYPE, PollPoller

_FAILED: Final = select.POLLERR | select.POLLHUP


class TimedPoller(PollPoller):  # type: ignore[misc]  # the library ships no types
    """`waited_s`: how long the last `poll` waited, at most as long as it was asked to. Used in one thread."""

    def __init__(self) -> None:
        super().__init__()
        self.waited_s = 0.0

    def poll(self, timeout: float) -> None:
        """Wait for events for `timeout` seconds at most, and pass them to those that have subscribed."""
        begun_s = monotonic()
        events = self._PollPoller__poll.poll(timeout * 1000)
        self.waited_s = min(timeout, monotonic() - begun_s)
        for descriptor, event in events:
            mask = POLL_EVENT_TYPE.READ if event & select.POLLIN else 0
            mask |= POLL_EVENT_TYPE.WRITE if event & select.POLLOUT else 0
            mask |= POLL_EVENT_TYPE.ERROR if event & _FAILED else 0
            self._PollPoller__descrToCallbacks[descriptor](descriptor, mask)
