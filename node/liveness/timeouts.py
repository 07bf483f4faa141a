"""The times that leases and verdicts rest on, through a change of the settings (design, section 7). Pure.

A change takes effect after the longer of the old and new waits. Until then whoever grants uses the shorter
times and whoever judges the longer ones, so that neither a lease granted under the old settings nor a leader
that has not heard of the new ones is outrun.
"""

from typing import NamedTuple

from node.state.value import Settings


class Times(NamedTuple):
    """The three times of the settings, in seconds."""

    lease_s: float
    window_s: float
    margin_s: float

    @property
    def silence_s(self) -> float:
        """How long a member may be silent."""
        return self.lease_s + self.margin_s

    @property
    def whole_s(self) -> float:
        """How long what an older leader granted may last: what a new one waits before it judges."""
        return self.window_s + self.lease_s + self.margin_s


class Waits:
    """The settings' times, present and just replaced."""

    def __init__(self) -> None:
        self._present: Times | None = None
        self._former: list[tuple[Times, float]] = []

    def look(self, settings: Settings, now_s: float) -> None:
        """The settings as they are now."""
        times = Times(settings.lease_s, settings.window_s, settings.margin_s)
        if self._present is not None and times != self._present:
            wait_s = max(self._present.whole_s, times.whole_s)
            self._former = [*self._standing(now_s), (self._present, now_s + wait_s)]
        self._present = times

    def elected(self, now_s: float) -> None:
        """This node leads from now on: the leader before it may have learnt of a change later than this node did."""
        wait_s = self.to_judge(now_s).whole_s
        self._former = [(times, now_s + wait_s) for times, _ in self._standing(now_s)]

    def to_grant(self, now_s: float) -> Times:
        """The times for granting leases: the shortest that may be in force anywhere."""
        return Times(*map(min, zip(*self._in_force(now_s), strict=True)))

    def to_judge(self, now_s: float) -> Times:
        """The times for declaring a member down: the longest that may be in force anywhere."""
        return Times(*map(max, zip(*self._in_force(now_s), strict=True)))

    def _in_force(self, now_s: float) -> list[Times]:
        if self._present is None:
            raise RuntimeError("the settings have not been looked at yet")
        return [self._present, *(times for times, _ in self._standing(now_s))]

    def _standing(self, now_s: float) -> list[tuple[Times, float]]:
        return [(times, until_s) for times, until_s in self._former if now_s < until_s]
