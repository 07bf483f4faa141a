"""Runs work for several destinations at once, each in a thread of its own: one that hangs does not hold up others."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from tasks.backup.tee import SILENT_S, Silent

_LOOK_S: Final = 0.2


class Errand:
    """A piece of work for one destination. `error` is why it failed, once it has ended; None: it succeeded."""

    def __init__(self, work: Callable[["Errand"], None]) -> None:
        self._work = work
        self._moved_s = time.monotonic()
        self._given_up: Exception | None = None
        self.error: Exception | None = None
        self.ended = threading.Event()

    def tick(self) -> None:
        """Say that the work goes on. Called by the work; raises if the errand was given up meanwhile."""
        if self._given_up is not None:
            raise self._given_up
        self._moved_s = time.monotonic()

    def run(self) -> None:
        """Do the work."""
        try:
            self._work(self)
        except Exception as error:  # noqa: BLE001  storage libraries raise any exception; it is reported
            self.error = error
        self.ended.set()

    def give_up(self, why: Exception) -> None:
        """Wait no longer: the work ends at its next `tick`, and its result counts no more."""
        self._given_up = self.error = why

    @property
    def silent_s(self) -> float:
        """For how long the work has not moved."""
        return time.monotonic() - self._moved_s


def run_errands(errands: Sequence[Errand], step: Callable[[], None]) -> None:
    """Run all errands at once, and return when each has ended or was given up because it did not move for `SILENT_S`.

    Calls `step` meanwhile. What it raises ends the waiting, and the errands at their next `tick`.
    """
    going = list(errands)
    for errand in going:
        threading.Thread(target=errand.run, name="errand", daemon=True).start()
    try:
        while going:
            going[0].ended.wait(_LOOK_S)
            step()
            for errand in going:
                if not errand.ended.is_set() and errand.silent_s > SILENT_S:
                    errand.give_up(Silent(f"has not answered for {errand.silent_s:.0f} s"))
            going = [errand for errand in going if not errand.ended.is_set() and errand.error is None]
    except BaseException:
        for errand in going:
            errand.give_up(Silent("the attempt ended"))
        raise
