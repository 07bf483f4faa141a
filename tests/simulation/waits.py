"""Which occurrences of tasks wait for their parents, how these ended, and whether the others may still end."""

from dataclasses import dataclass, field
from itertools import islice

from node.state.calendar import days_of
from node.state.value import OccurrenceId, State
from tasks.definition.schedule import occurrences
from tasks.definition.spec import After, Cron, after_of
from tests.simulation.kin import Registration, parents_of


@dataclass(slots=True)
class Wait:
    """An occurrence that waits: how its parents ended. `decided`: it was decided without some, and is still known.

    `times`, of a task with a schedule: for which occurrences of its parents it waits, until `until_us`.
    """

    ends: dict[str, str] = field(default_factory=dict)
    decided: bool = False
    times: dict[str, int] = field(default_factory=dict)
    until_us: int = 0

    def wanted(self, parent: str, occurrence: OccurrenceId) -> OccurrenceId:
        """For which occurrence of a parent this one waits."""
        return OccurrenceId(self.times[parent]) if self.times else occurrence


class Waits:
    """What waits of each registration. `reruns` are the tasks of each rerun."""

    def __init__(self) -> None:
        self.reruns: dict[int, frozenset[str]] = {}
        self.gone: dict[int, set[str]] = {}
        """Of each rerun, the tasks that have been decided on, or deleted."""
        self._of: dict[Registration, dict[OccurrenceId, Wait]] = {}
        self._from_us: dict[Registration, int] = {}
        """Up to which time occurrences are not a task's own."""

    def of(self, registration: Registration) -> dict[OccurrenceId, Wait]:
        """The waiting occurrences of a task."""
        return self._of.setdefault(registration, {})

    def drop(self, registration: Registration) -> None:
        """A task is deleted."""
        self._of.pop(registration, None)

    def count_from(self, registration: Registration, at_us: int) -> None:
        """Occurrences up to a time are not a task's own."""
        self._from_us[registration] = max(self._from_us.get(registration, 0), at_us)

    def its_own(self, registration: Registration, occurrence: OccurrenceId) -> bool:
        """Whether a task takes part in an occurrence."""
        if occurrence.generation:
            rerun = self.reruns.get(occurrence.generation, frozenset())
            return registration[0] in rerun - self.gone.get(occurrence.generation, set())
        return occurrence.nominal_us > self._from_us.get(registration, 0)

    def awaited(self, state: State, task: str, occurrence: OccurrenceId) -> list[After]:
        """The parents that an occurrence of a task waits for: in a rerun, those that are rerun with it."""
        rerun = self.reruns.get(occurrence.generation, frozenset())
        return [one for one in parents_of(state, task) if not occurrence.generation or one.task in rerun]

    def undecided(self, state: State) -> list[tuple[str, OccurrenceId, Wait]]:
        """All that waits, of the tasks that there are."""
        return [
            (task, occurrence, wait)
            for (task, order), waits in self._of.items()
            if task in state.tasks and state.tasks[task].order == order
            for occurrence, wait in waits.items()
            if not wait.decided
        ]

    def in_vain(self, state: State) -> list[Registration]:
        """The tasks of which something waits only for parents that cannot end."""
        found = []
        for task, occurrence, wait in self.undecided(state):
            missing = [one.task for one in self.awaited(state, task, occurrence) if one.task not in wait.ends]
            if not any(self.can_end(state, one, wait.wanted(one, occurrence), at_all=True) for one in missing):
                found.append((f"{task} ({occurrence})", state.tasks[task].order))
        return found

    def too_long(self, state: State, now_us: int) -> list[Registration]:
        """The tasks of which something has waited for as long as it may."""
        return [
            (f"{task} ({occurrence}) too long", state.tasks[task].order)
            for task, occurrence, wait in self.undecided(state)
            if wait.times and wait.until_us <= now_us
        ]

    def can_end(
        self, state: State, task: str, occurrence: OccurrenceId, *, at_all: bool, seen: frozenset[str] = frozenset()
    ) -> bool:
        """Whether a task may end an occurrence. `at_all`: by the state's means, which do not compute cron lines.

        An end of which the tasks after it are still to be told counts as one to come.
        """
        row = state.tasks.get(task)
        kept = any(one.task == task and occurrence == (one.nominal_us, one.generation) for one in state.ends.values())
        if kept or row is None or task in seen:
            return kept
        runs = (state.runs[one] for one in state.runs_of.get(task, ()))
        if any(run.occurrence == occurrence and (at_all or run.cancelling != "deleted") for run in runs):
            return True
        wait = self.of((task, row.order)).get(occurrence)
        if wait is not None and not wait.decided:
            return True
        if after_of(row.spec_packed) and (occurrence.generation or row.spec.schedule is None):
            if not occurrence.generation and not self.its_own((task, row.order), occurrence):
                return False
            more, parents = seen | {task}, self.awaited(state, task, occurrence)
            return any(self.can_end(state, one.task, occurrence, at_all=at_all, seen=more) for one in parents)
        if occurrence.generation or row.paused or not row.spec.enabled or occurrence.nominal_us <= row.through_us:
            return False
        days = days_of(state.calendars, row.timing)
        times = islice(occurrences(row.spec.schedule, days, row.since_us, occurrence.nominal_us - 1), 1)
        unsure = at_all and isinstance(row.spec.schedule, Cron) and occurrence.nominal_us > row.since_us
        return unsure or occurrence.nominal_us in times
