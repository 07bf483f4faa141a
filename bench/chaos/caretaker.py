"""Starts nodes again that have ended by themselves, as a service manager does: a full disk, a damaged file."""

import threading
from typing import Final

from bench.chaos.cluster import HarmedCluster

PAUSE_S: Final = 1.0


class Caretaker:
    """A thread, from `start` to `stop`. `ended` says which nodes have ended so, each with its exit code."""

    def __init__(self, cluster: HarmedCluster) -> None:
        self.ended: list[tuple[str, int]] = []
        self._cluster = cluster
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="caretaker", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(PAUSE_S):
            self.ended += self._cluster.revive()
