"""Keeps runs of backfills out of the moments at which other work falls due. Pure.

Each beginning takes processor time on all members: an entry, a new process, its confinement. Most schedules name whole
minutes or seconds, so that there is time between them, and it costs a backfill little to leave the moments free at
which other work falls due. Where there is no such time, its runs begin all the same, half a second later.
"""

from typing import Final

BEFORE_US: Final = 100_000
"""The time before other work falls due in which no run of a backfill begins, in microseconds."""

AFTER_US: Final = 100_000
"""The time after other work has fallen due in which none begins, in microseconds."""

HELD_BACK_US: Final = 500_000
"""How long one task's run is held back at most, in microseconds."""


class GivingWay:
    """Which tasks' runs of backfills are held back, and until when."""

    def __init__(self) -> None:
        self._came_us = 0
        """When other work was last due."""
        self._since_us: dict[str, int] = {}
        """Since when each task is held back. A dict, so that the decisions do not depend on how strings hash."""
        self.until_us: int | None = None
        """When those that are held back are decided on again; None: none is."""

    def came(self, now_us: int) -> None:
        """Note that other work is due now."""
        self._came_us = now_us

    def released(self, now_us: int) -> list[str]:
        """Return the tasks that are to be decided on again: all that are held back, once their time has come."""
        if self.until_us is None or now_us < self.until_us:
            return []
        self.until_us = None
        # Of what is gone or has another owner, nothing is asked again.
        self._since_us = {one: at_us for one, at_us in self._since_us.items() if now_us - at_us < 2 * HELD_BACK_US}
        return list(self._since_us)

    def holds(self, task: str, now_us: int, next_us: int | None) -> bool:
        """Whether a task's run of a backfill, which could begin now, is held back. `next_us`: when other work is due.

        >>> giving_way = GivingWay()
        >>> giving_way.holds("copy", 850_000, 1_000_000), giving_way.holds("copy", 920_000, 1_000_000)
        (False, True)
        >>> giving_way.came(1_000_000)
        >>> giving_way.until_us, giving_way.holds("copy", 1_050_000, None), giving_way.holds("copy", 1_100_000, None)
        (1100000, True, False)
        """
        since_us = self._since_us.setdefault(task, now_us)
        until_us = self._free_us(now_us, next_us)
        if until_us is None or not 0 <= now_us - since_us < HELD_BACK_US:
            del self._since_us[task]
            return False
        until_us = min(until_us, since_us + HELD_BACK_US)
        self.until_us = until_us if self.until_us is None else min(self.until_us, until_us)
        return True

    def _free_us(self, now_us: int, next_us: int | None) -> int | None:
        """Return when a run may begin; None: now."""
        if next_us is not None and next_us - now_us < BEFORE_US:
            return max(next_us, now_us) + AFTER_US
        if 0 <= now_us - self._came_us < AFTER_US:
            return self._came_us + AFTER_US
        return None
