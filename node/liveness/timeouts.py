"""The timeouts of leases and verdicts, through a change of the settings. Pure.

A change takes effect after the longer of the old and the new `whole_s`. Until then leases are granted by the shorter
times, and verdicts given by the longer ones. So no verdict is earlier than the end of a lease that was granted under
the old settings, or by a leader that has not applied the new ones.
"""

from typing import NamedTuple

from node.state.value import Settings


class Times(NamedTuple):
    """The three timeouts of the settings, in seconds."""

    lease_s: float
    window_s: float
    margin_s: float

    @property
    def silence_s(self) -> float:
        """How long a member may be silent."""
        return self.lease_s + self.margin_s

    @property
    def whole_s(self) -> float:
        """The longest time for which a lease of an older leader may last. A new leader's first verdict waits for it."""
        return self.window_s + self.lease_s + self.margin_s


class Timeouts:
    """The timeouts of the present settings, and of those replaced a short time ago."""

    def __init__(self) -> None:
        self._present: Times | None = None
        self._former: list[tuple[Times, float]] = []

    def observe(self, settings: Settings, now_s: float) -> None:
        """Apply the present settings. If they have changed, the old timeouts count too for a while."""
        times = Times(settings.lease_s, settings.window_s, settings.margin_s)
        if self._present is not None and times != self._present:
            wait_s = max(self._present.whole_s, times.whole_s)
            self._former = [*self._standing(now_s), (self._present, now_s + wait_s)]
        self._present = times

    def elected(self, now_s: float) -> None:
        """Note that this node leads from now on. The previous leader may have applied a change later than this node."""
        wait_s = self.to_judge(now_s).whole_s
        self._former = [(times, now_s + wait_s) for times, _ in self._standing(now_s)]

    def to_grant(self, now_s: float) -> Times:
        """Return the timeouts for granting leases: the shortest that may be in force on any member."""
        if self._present is not None and not self._former:
            return self._present
        return Times(*map(min, zip(*self._in_force(now_s), strict=True)))

    def to_judge(self, now_s: float) -> Times:
        """Return the timeouts for marking a member down: the longest that may be in force on any member."""
        if self._present is not None and not self._former:
            return self._present
        return Times(*map(max, zip(*self._in_force(now_s), strict=True)))

    def _in_force(self, now_s: float) -> list[Times]:
        if self._present is None:
            raise RuntimeError("no settings have been observed yet")
        return [self._present, *(times for times, _ in self._standing(now_s))]

    def _standing(self, now_s: float) -> list[tuple[Times, float]]:
        return [(times, until_s) for times, until_s in self._former if now_s < until_s]
