"""A pool: how much the cluster's tasks may use of something at once, and how often they may start. A value."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from immutables import Map

PRIORITY_US: Final = 60_000_000
"""One more of `priority` is worth as much as having waited so much longer, in microseconds."""


OF_BACKFILL: Final = 2
"""The `order` of a run of a backfill."""


class QueuedTask(NamedTuple):
    """A task whose next run waits for a pool. Sorts in the order in which such runs are to begin."""

    #: 0: its run was lost with a member, and goes before all others; 1: it was not; 2: its run is of a backfill.
    order: int
    #: `since_us`, less `PRIORITY_US` for each of the priority.
    rank_us: int
    #: The name of the task.
    task: str
    #: Since when the run is due, in microseconds since the epoch. It may be in the future.
    since_us: int
    #: The run.
    run_id: str


class PacedStart(NamedTuple):
    """A start of a run with a rate: the time stamp of its claim, and from when on the next one is allowed.

    Both are in microseconds since the epoch, by the clock of the member that claimed the run.
    """

    at_us: int
    next_us: int


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool of the cluster: what of it is used, and who waits for it."""

    #: How much of it there is (`Settings.pools`).
    capacity: int = 0
    #: How many tasks use it, or have a rate in it, by their definitions.
    tasks: int = 0
    #: How much each run that a member holds uses, by the run's id.
    holders: Map[str, int] = field(default_factory=Map)
    #: How much all of them use. More than `capacity` only where that was lowered later: nobody is evicted.
    used: int = 0
    #: The tasks that wait, in order.
    queue: tuple[QueuedTask, ...] = ()
    #: How much of `used` the runs of backfills use.
    backfilled: int = 0
    #: When `capacity`, `used` or the first of the queue last changed, in microseconds since the epoch.
    changed_us: int = 0
    #: The latest start of a run with a rate by its time stamp, and perhaps one by a clock that is far behind that
    #: (`node.state.pacing`).
    starts: tuple[PacedStart, ...] = ()

    @property
    def free(self) -> int:
        """How much of it is free."""
        return max(0, self.capacity - self.used)
