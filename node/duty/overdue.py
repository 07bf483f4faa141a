"""The tasks, of all owners, that are due and have not begun: the figure to alert on. Pure."""

from dataclasses import dataclass
from typing import Final

from node.duty.agenda import UNCLAIMED, next_occurrence_us
from node.state.value import Run, State
from tasks.definition.run import HELD

OVERDUE_US: Final = 1_000_000
"""How long something must be due to be overdue: a claim takes a few milliseconds, a failover about a second."""

EXACT_MAX: Final = 256
"""If more tasks than this come due at once, the time that was set for each is used, and not computed again: nearly all
of these tasks are due, and the others are forgotten when they change.
"""


@dataclass(frozen=True, slots=True)
class Overdue:
    """How many tasks are overdue, how long the oldest has waited (seconds), and their names."""

    tasks: int = 0
    oldest_s: float = 0.0
    names: frozenset[str] = frozenset()


class Late:
    """Remembers since when tasks are due. The caller names the tasks whose time has come, and those that change."""

    def __init__(self) -> None:
        self._since_us: dict[str, int] = {}

    def come(self, state: State, tasks: list[tuple[int, str]]) -> None:
        """Take tasks whose time has come, as pairs of the time that was set (0: at once) and the task."""
        exact = len(tasks) <= EXACT_MAX
        for at_us, task in tasks:
            try:
                since_us = unbegun_since_us(state, task) if exact or not at_us else at_us
            except Exception:  # noqa: BLE001 - a bug in Rota, which the decision on this task will show
                since_us = at_us or None
            if since_us is not None:
                self._since_us.setdefault(task, since_us)

    def forget(self, task: str) -> None:
        """Forget a task that has changed, or one of whose runs has."""
        self._since_us.pop(task, None)

    def clear(self) -> None:
        """Forget everything."""
        self._since_us.clear()

    def overdue(self, now_us: int) -> Overdue:
        """The tasks that are overdue at `now_us`."""
        late = {task: since_us for task, since_us in self._since_us.items() if now_us - since_us >= OVERDUE_US}
        return Overdue(len(late), (now_us - min(late.values())) / 1e6, frozenset(late)) if late else Overdue()


def unbegun_since_us(state: State, task: str) -> int | None:
    """The due time, past or ahead, of the earliest occurrence or run of `task` that has not begun; None: none.

    A run that waits behind another run of its task is due only once that run has ended, and a retry at its time.
    """
    row = state.tasks.get(task)
    if row is None:
        return None
    active = [state.runs[run_id] for run_id in state.runs_of.get(task, ())]
    blocked = any(run.state in HELD and not run.action for run in active) and row.spec.overlap != "allow"
    times = [_since_us(run) for run in active if run.state in UNCLAIMED and (run.action or not blocked)]
    occurrence_us = next_occurrence_us(row, row.through_us)
    if occurrence_us is not None:
        times.append(occurrence_us or row.since_us)  # 0: a continuous task's occurrence, which is due at once
    return min(times, default=None)


def _since_us(run: Run) -> int:
    ended_us = run.attempts[-1].finished_at_us if run.attempts else None
    return run.due_us or ended_us or run.created_at_us
