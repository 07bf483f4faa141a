"""What Raft's thread does when its disk is full: it releases the reserve, and otherwise waits for free space.

It acknowledges nothing meanwhile. To other members the node is one whose disk does not answer
(`node.telemetry.raft_watchdog`); it resumes by itself as soon as there is space.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

_log = logging.getLogger("rota.disk")

RETRY_S: Final = 0.05
LOG_AGAIN_S: Final = 60.0


class WaitForRoom:
    """Called in Raft's thread after each failed write. `release` frees the reserve; `tell` makes the disk watch measure
    at once. Both may be called from any thread.
    """

    def __init__(
        self,
        release: Callable[[], bool],
        tell: Callable[[], None],
        sleep: Callable[[float], None] = time.sleep,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._release = release
        self._tell = tell
        self._sleep = sleep
        self._now_s = now_s
        self._logged_s: float | None = None

    def __call__(self, error: Exception) -> bool:
        """Whether to retry the write: always; after a pause if there was no reserve to release."""
        now_s = self._now_s()
        released = self._release()
        if released:
            _log.warning("the disk is full (%s): the space reserved for Raft's journal is released", error)
        elif self._logged_s is None or now_s - self._logged_s >= LOG_AGAIN_S:
            self._logged_s = now_s
            _log.error(
                "the disk is full (%s): this node commits nothing until there is free space, and then resumes by "
                "itself. Delete files on the file system of ROTA_DATA",
                error,
            )
        self._tell()
        if not released:
            self._sleep(RETRY_S)
        return True
