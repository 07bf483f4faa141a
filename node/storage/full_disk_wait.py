"""What Raft does where its disk is full: it gives up what was kept back for that, and else waits for room.

Nothing is acknowledged meanwhile. To the others the node is one whose disk does not answer
(`node.telemetry.raft_watchdog`); it goes on as soon as there is room, by itself.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

_log = logging.getLogger("rota.disk")

AGAIN_S: Final = 0.05
SAY_AGAIN_S: Final = 60.0


class WaitForRoom:
    """Called in Raft's thread after each write that failed. `release` gives up what is kept back, `tell` has the
    node look at its disk at once, both from any thread.
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
        self._said_s: float | None = None

    def __call__(self, error: Exception) -> bool:
        """Whether to write again: always, after a while where nothing more can be given up."""
        now_s = self._now_s()
        released = self._release()
        if released:
            _log.warning("the disk is full (%s): Raft's journal goes on with the room that was kept back for it", error)
        elif self._said_s is None or now_s - self._said_s >= SAY_AGAIN_S:
            self._said_s = now_s
            _log.error(
                "the disk is full (%s): nothing is committed here until there is room, and then this node goes on by "
                "itself. Delete something on the file system of ROTA_DATA",
                error,
            )
        self._tell()
        if not released:
            self._sleep(AGAIN_S)
        return True
