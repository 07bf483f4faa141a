"""Starts nodes again that have ended by themselves, as a service manager does: a full disk, a damaged file."""

import threading
from dataclasses import dataclass
from typing import Final

from bench.chaos.background import Background
from bench.chaos.cluster import HarmedCluster
from bench.chaos.observer import now_s

PAUSE_S: Final = 1.0


@dataclass(frozen=True)
class Ended:
    """A node that was found to have ended by itself, when (CLOCK_BOOTTIME), and with what exit code."""

    node: str
    at_s: float
    code: int


class Caretaker:
    """A thread, from `start` to `stop`. `ended` says which nodes have ended so."""

    def __init__(self, cluster: HarmedCluster) -> None:
        self.ended: list[Ended] = []
        self._cluster = cluster
        self._thread = Background("caretaker", self._watch)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._thread.stop()

    @property
    def found(self) -> list[str]:
        """What ended the thread, if an error did."""
        return self._thread.found

    def _watch(self, over: threading.Event) -> None:
        while not over.wait(PAUSE_S):
            self.ended += [Ended(name, now_s(), code) for name, code in self._cluster.revive()]
