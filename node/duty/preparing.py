"""Decides for which tasks a member prepares processes: for its own tasks that are due soon, by their schedule or once
the runs before them end, and for other members' tasks that it would take over.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from node.duty.agenda import Agenda
from node.duty.room import NO_TERMS, FreePlaces, KindTerms
from node.duty.step import Owners, Wanted
from node.state.joins import missing_parents, past_end
from node.state.value import OccurrenceId, PendingJoin, Run, State, TaskRow
from tasks.definition.after import ParentEnd, consequence
from tasks.definition.run import HELD
from tasks.definition.spec import after_of, comes_after, run_as_of, waits_at_times

KEEP_US: Final = 60_000_000
"""An idle prepared process is kept if an occurrence is due within the lead time plus this time. So a task that falls
due often need not wait for a new process. It is also kept for this time if the runs before a task last longer than they
were expected to."""


class Preparing:
    """Remembers when tasks of kinds with a preparation are due. Tasks of other kinds cost nothing here."""

    def __init__(self, me: str, kinds: Mapping[str, KindTerms]) -> None:
        self._me = me
        self._kinds = kinds
        self._names = sorted({terms.preparation for terms in kinds.values() if terms.preparation})
        self._agenda = Agenda()
        self._kind_of: dict[str, str] = {}
        self._near: dict[str, tuple[str, int]] = {}
        """The kind and the due time of each task that is due soon, whichever member owns it."""
        self._following: dict[str, tuple[str, int]] = {}
        """The kind and the expected due time of each task whose last parents work, whichever member owns it."""
        self._guarded: dict[str, tuple[str, str]] = {}
        """The kind and the member of each run on another member whose task has standbys, by task."""
        self._guards: dict[str, bool] = {}
        self._owners: Owners | None = None

    @property
    def idle(self) -> bool:
        """Whether no kind on this member has a preparation."""
        return not self._names

    def clear(self) -> None:
        """Forget all tasks."""
        self._agenda = Agenda()
        self._kind_of.clear()
        self._near.clear()
        self._following.clear()
        self._guarded.clear()
        self._guards.clear()

    def put(self, state: State, task: str, due_us: int | None) -> None:
        """Note when `task` is due. 0: now, or soon; None: never."""
        if self.idle:
            return
        row = state.tasks.get(task)
        self._near.pop(task, None)
        if row is not None and due_us is not None and self._is_prepared(row):
            self._kind_of[task] = row.placing.kind
            self._agenda.put(task, due_us)
        elif self._kind_of.pop(task, None) is not None:
            self._agenda.put(task, None)

    def feed(self, state: State, tasks: Iterable[str]) -> None:
        """Note that the runs of these tasks have changed."""
        if self.idle:
            return
        for task in tasks:
            self._guarded.pop(task, None)
            self._guards.pop(task, None)
            for run in (state.runs[one] for one in state.runs_of.get(task, ())):
                if self._is_guarded(state, run):
                    self._guarded[task] = (run.spec.kind, run.node or "")
            for one in (task, *state.children.get(task, ())):
                self._follow(state, one)

    def _follow(self, state: State, task: str) -> None:
        """Note when a task is expected to be due after others."""
        self._following.pop(task, None)
        row = state.tasks.get(task)
        if row is None or not comes_after(row.spec_packed) or not self._is_prepared(row):
            return
        if (due_us := expected_us(state, row)) is not None:
            self._following[task] = (row.placing.kind, due_us)

    def wanted(
        self, owners: Owners, now_us: int, leads_us: Mapping[str, int], places: FreePlaces
    ) -> tuple[dict[str, Wanted], int | None]:
        """Return how many processes of each preparation are wanted, and when this changes by time alone.

        `leads_us` has the lead time of each preparation. `places` are the places that attempts leave free.
        """
        if self.idle:
            return {}, None
        horizon_us = now_us + KEEP_US + max((leads_us.get(name, 0) for name in self._names), default=0)
        for due_us, task in self._agenda.due(horizon_us):
            self._near[task] = (self._kind_of[task], due_us)
        start, keep = dict.fromkeys(self._names, 0), dict.fromkeys(self._names, 0)
        times: list[int] = []
        following = {task: due for task, due in self._following.items() if now_us < due[1] + KEEP_US}
        times += [due_us + KEEP_US for _, due_us in following.values()]
        for task, (kind, due_us) in (*self._near.items(), *following.items()):
            if owners.owner(task) != self._me:
                continue
            name = self._kinds[kind].preparation
            soon_us = due_us - leads_us.get(name, 0)
            keep[name] += 1
            if soon_us <= now_us:
                start[name] += 1
            else:
                times.append(soon_us)
        for task, (kind, holder) in self._guarded.items():
            if self._guards_for(owners, task, holder):
                start[self._kinds[kind].preparation] += 1
                keep[self._kinds[kind].preparation] += 1
        next_us = self._agenda.next_us()
        if next_us is not None:
            times.append(next_us - (horizon_us - now_us))
        return self._within(start, keep, places), min(times, default=None)

    def none(self) -> dict[str, Wanted]:
        """Return the answer that no process of any preparation is wanted."""
        return dict.fromkeys(self._names, Wanted())

    def _within(self, start: Mapping[str, int], keep: Mapping[str, int], places: FreePlaces) -> dict[str, Wanted]:
        """Cut `start` and `keep` to the free places; the places of a bound are shared in the order of the names."""
        left: dict[str, int] = {}
        found: dict[str, Wanted] = {}
        for name in self._names:
            kind = next(kind for kind, terms in self._kinds.items() if terms.preparation == name)
            bound = self._kinds[kind].bound
            most = left.get(bound, places.left(kind))
            found[name] = Wanted(min(start[name], most, places.free), min(keep[name], most))
            left[bound] = most - found[name].keep if bound else most
        return found

    def _prepares(self, kind: str) -> bool:
        return bool(self._kinds.get(kind, NO_TERMS).preparation)

    def _is_prepared(self, row: TaskRow) -> bool:
        # A prepared process runs as the node's own user, and can no longer become another user.
        return self._prepares(row.placing.kind) and run_as_of(row.spec_packed) is None

    def _is_guarded(self, state: State, run: Run) -> bool:
        row = state.tasks.get(run.task)
        return (
            row is not None
            and row.placing.standbys > 0
            and run.state in HELD
            and run.node != self._me
            and run.spec.run_as is None
            and self._prepares(run.spec.kind)
        )

    def _guards_for(self, owners: Owners, task: str, holder: str) -> bool:
        """Whether this member should be ready to take over the run of `task` that works on `holder`."""
        if owners is not self._owners:
            self._owners = owners
            self._guards.clear()
        if task not in self._guards:
            self._guards[task] = self._me in owners.guards(task, holder)
        return self._guards[task]


def expected_us(state: State, row: TaskRow) -> int | None:
    """Return when a task is expected to be due because the last runs before it end, in microseconds since the epoch.

    A run is expected to take as long as the last one of its task. None: some run before it has not begun or takes an
    unknown time, or the task will not run if they succeed.
    """
    after = after_of(row.spec_packed)
    if not after or row.paused or not row.timing.enabled:
        return None
    name = row.placing.name
    held: dict[tuple[str, OccurrenceId], Run] = {}
    joins = {OccurrenceId(join.nominal_us, join.generation): join for join in state.joins.get(name, ())}
    for one in after:
        for run in (state.runs[run_id] for run_id in state.runs_of.get(one.task, ())):
            if run.state in HELD and (occurrence := run.occurrence) is not None:
                held[run.task, occurrence] = run
                if occurrence.generation or not waits_at_times(row.spec_packed):
                    joins.setdefault(occurrence, PendingJoin(name, *occurrence))
    times = (_due_us(state, row, join, held) for join in joins.values())
    return min((time_us for time_us in times if time_us is not None), default=None)


def _due_us(state: State, row: TaskRow, join: PendingJoin, held: Mapping[tuple[str, OccurrenceId], Run]) -> int | None:
    """Return when the occurrence of `join` is expected to be due. `held` has the runs before it that a member holds."""
    ends: dict[str, ParentEnd] = {one.task: one.end for one in join.ends}
    missing = [one.task for one in missing_parents(state, row, join)]
    ends |= dict.fromkeys(missing, "succeeded")
    past = not join.generation and not join.times and join.nominal_us <= row.after_us
    awaited = [one for one in after_of(row.spec_packed) if one.task in ends]
    if past or join.decided or consequence(awaited, ends) != "due":
        return None
    times: list[int] = []
    for task in missing:
        if past_end(state.past_ends, join, task) is None:
            run = held.get((task, join.wanted(task)))
            if run is None or (end_us := _end_us(state, run)) is None:
                return None
            times.append(end_us)
    return max(times, default=None)


def _end_us(state: State, run: Run) -> int | None:
    """Return when a run is expected to end; None: its task's last run took an unknown time."""
    row = state.tasks.get(run.task)
    took_us = row.last.took_us if row is not None and row.last is not None else None
    return None if took_us is None else run.attempts[0].claimed_at_us + took_us
