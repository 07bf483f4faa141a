"""Counts the tasks, of all owners, that are due and have not begun. Operators alert on this figure. Pure."""

from dataclasses import dataclass
from typing import Final

from node.duty.agenda import UNCLAIMED, next_occurrence_us
from node.state.blackout import blackout_of
from node.state.value import Run, State
from tasks.definition.run import HELD

OVERDUE_US: Final = 1_000_000
"""How long a task must be due to count as overdue. A claim takes a few milliseconds, a failover about a second."""

EXACT_MAX: Final = 256
"""If more tasks than this come due at once, the due time that was set for each is used and not computed again. It is
nearly always right, and a wrong one is forgotten when its task changes.
"""


@dataclass(frozen=True, slots=True)
class Overdue:
    """The number of overdue tasks, the seconds for which the oldest has waited, and their names."""

    tasks: int = 0
    oldest_s: float = 0.0
    names: frozenset[str] = frozenset()


class Late:
    """Remembers since when tasks are due. The caller reports the tasks whose time has come, and changed tasks."""

    def __init__(self) -> None:
        self._since_us: dict[str, int] = {}

    def come(self, state: State, tasks: list[tuple[int, str]], now_us: int) -> bool:
        """Note tasks whose time has come, as pairs of the time that was set (0: at once) and the task.

        What a blackout holds is late from its end on. Returns whether something is due now, other than of backfills.
        """
        something = False
        exact = len(tasks) <= EXACT_MAX
        for at_us, task in tasks:
            try:
                since_us = unbegun_since_us(state, task) if exact or not at_us else at_us
            except Exception:  # noqa: BLE001 - a bug in Rota, which the decision on this task will show
                since_us = at_us or None
            row = state.tasks.get(task)
            if since_us is not None and state.blackouts and row is not None:
                blackout = blackout_of(state.blackouts, row.spec_packed, now_us)
                since_us = since_us if blackout is None else max(since_us, blackout.until_us)
            if since_us is not None:
                self._since_us.setdefault(task, since_us)
                something = something or since_us <= now_us
        return something

    def forget(self, task: str) -> None:
        """Forget a task that has changed, or one of whose runs has."""
        self._since_us.pop(task, None)

    def clear(self) -> None:
        """Forget everything."""
        self._since_us.clear()

    def overdue(self, now_us: int) -> Overdue:
        """Return the tasks that are overdue at `now_us`."""
        late = {task: since_us for task, since_us in self._since_us.items() if now_us - since_us >= OVERDUE_US}
        return Overdue(len(late), (now_us - min(late.values())) / 1e6, frozenset(late)) if late else Overdue()


def unbegun_since_us(state: State, task: str) -> int | None:
    """Return the due time, past or future, of the earliest occurrence or run of `task` that has not begun, or None.

    A run that waits behind another run of its task is due only once that run has ended. A retry is due at its time. The
    runs of backfills are left out: they begin whenever nothing else needs their place.
    """
    row = state.tasks.get(task)
    if row is None:
        return None
    active = [run for run in map(state.runs.__getitem__, state.runs_of.get(task, ())) if not run.backfill]
    work = () if row.spec.overlap == "allow" else active
    blocked = {run.member for run in work if run.state in HELD and not run.action}  # with `each`, these members
    times = [_since_us(run) for run in active if run.state in UNCLAIMED and (run.action or run.member not in blocked)]
    occurrence_us = next_occurrence_us(state.calendars, row, row.through_us)
    if occurrence_us is not None:
        times.append(occurrence_us or row.since_us)  # 0: a continuous task's occurrence, which is due at once
    return min(times, default=None)


def _since_us(run: Run) -> int:
    ended_us = run.attempts[-1].finished_at_us if run.attempts else None
    return run.due_us or ended_us or run.created_at_us
