"""Deadlines (docs/explanation/execution.md): what is late is marked once, nothing else is, and it is over once.

Which tasks are judged since when, what has begun, failed and succeeded is gathered here from the entries; the state is
asked only for definitions, active runs, and how far a schedule has been decided on.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from node.state.apply import Applied
from node.state.attempts import Began
from node.state.calendar import days_of
from node.state.deadlines import Breached
from node.state.entries import Entry, Proposal, Unreadable
from node.state.value import RULES, Breach, Run, State, TaskRow
from tasks.definition.deadlines import DEADLINES, DeadlineName
from tasks.definition.schedule import occurrences
from tests.simulation.world import World

GRACE_S: Final = 6.0
"""What is late for so long, while one member leads and is well, is marked."""

_FAILED: Final = ("failed", "timed_out", "abandoned", "upstream_failed", "upstream_late")


@dataclass(slots=True)
class Record:
    """What is known of a task since it is judged, from `since_us` on."""

    since_us: int
    succeeded_us: int = 0
    failed_us: set[tuple[str, int]] = field(default_factory=set)
    """When what failed was due, and on which member if the task runs on each: what it does there makes up for it."""


class Punctuality:
    """Watches every proposal as it is applied; `look` is called now and then."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._records: dict[str, Record] = {}
        self._begun: set[str] = set()
        self._unmarked_s: dict[tuple[str, int, DeadlineName], float] = {}
        self._led: tuple[str, int] | None = None
        self.counts: Counter[str] = Counter()

    def watch(self, before: State, proposal: Proposal, applied: Applied) -> None:
        """One proposal has been applied."""
        entry, after = proposal.entry, applied.state
        if not applied.result.ok or isinstance(entry, Unreadable):
            return
        if isinstance(entry, Began):
            self._begun.add(entry.run_id)
        facts = Counter((one.task, one.breach.deadline, one.change != "breached") for one in applied.deadlines)
        self.counts.update(one.change for one in applied.deadlines)
        said = {(one.task, one.breach.deadline, one.change) for one in applied.deadlines}
        for task in sorted(applied.touched):
            self._record(after.tasks.get(task), task, entry, applied)
            then, now = _breaches(before, task), _breaches(after, task)
            for deadline in DEADLINES:
                was, is_now = then.get(deadline), now.get(deadline)
                self._judge(before, after, task, entry, was, is_now)
                if was is not None and (task, deadline, "met") in said:
                    self._met(task, was, entry, applied)
                facts[task, deadline, False] -= was is None and is_now is not None
                facts[task, deadline, True] -= was is not None and is_now is None
        if any(facts.values()):
            self._world.wrong(f"deadlines: {applied.deadlines} is not what {entry} changed")

    def _record(self, row: TaskRow | None, task: str, entry: Entry, applied: Applied) -> None:
        judged = row is not None and not row.paused and row.spec.enabled and applied.state.lead.rules >= RULES
        if row is None or not judged or not any(map(row.spec.deadlines.limit_us, DEADLINES)):
            self._records.pop(task, None)
            return
        record = self._records.setdefault(task, Record(entry.at_us))
        for one in applied.ended:
            if one.run.task == task and one.run.cancelling != "deleted" and not one.run.backfill:
                due_us, member = _due_us(one.run), one.run.member
                each = applied.state.each.get(task)
                if one.state in _FAILED:
                    parts = [part.member for part in each.parts] if each is not None and not member else []
                    record.failed_us |= {(name, due_us) for name in parts or [member]}
                elif one.state == "succeeded":
                    record.succeeded_us = one.finished_at_us
                    own = {failed for failed in record.failed_us if failed[0] == member}
                    if (member, due_us) >= min(own, default=(member, 0)):
                        record.failed_us -= own  # it makes up for all that failed before it succeeded
        if (each := applied.state.each.get(task)) is not None:
            members = {part.member for part in each.parts} or {""}
            record.failed_us = {failed for failed in record.failed_us if failed[0] in members}

    def _judge(
        self, before: State, after: State, task: str, entry: Entry, was: Breach | None, is_now: Breach | None
    ) -> None:
        """What an entry did to one deadline of a task."""
        if is_now is not None:
            open_us = set(self._open_us(after, task, is_now.deadline))
            if is_now.due_us not in open_us:
                self._world.wrong(f"deadlines: {task} has {is_now}, and only these are open: {open_us} ({entry})")
            if was is None:
                late_us = self._late_us(after, task, is_now.deadline, entry.at_us)
                if not isinstance(entry, Breached) or is_now.due_us not in late_us:
                    self._world.wrong(f"deadlines: {task} has {is_now} by {entry}, and these are late: {late_us}")
        elif was is not None:
            rows = [state.tasks[task] for state in (before, after) if task in state.tasks]
            limits_us = {row.spec.deadlines.limit_us(was.deadline) for row in rows}
            dropped = task not in self._records or len(limits_us) > 1
            # A run that was asked for at the very time of an occurrence begins: the occurrence is breached by itself.
            # Where the schedule counts anew, what it has due at the same time is another occurrence.
            undecided = was.undecided and len({row.since_us for row in rows}) == 1
            if not dropped and was.due_us in self._open_us(after, task, was.deadline, undecided=undecided):
                self._world.wrong(f"deadlines: {was} of {task} has not been met, and is over by {entry}")

    def _met(self, task: str, was: Breach, entry: Entry, applied: Applied) -> None:
        """A deadline is said to have been met: something must have begun, or succeeded."""
        if was.deadline == "start_within":
            active = (applied.state.runs[one] for one in applied.state.runs_of.get(task, ()))
            met = any(run.run_id in self._begun and _due_us(run, was.deadline) == was.due_us for run in active)
        else:
            ended = [one for one in applied.ended if one.run.task == task and not one.run.backfill]
            met = any(one.state == "succeeded" for one in ended)
        if not met:
            self._world.wrong(f"deadlines: {was} of {task} has not been met by {entry}")

    def look(self, state: State, leader: str | None) -> None:
        """What is late now, and not marked? `leader` is None unless one leads and is well."""
        led = None if leader is None else (leader, state.lead.term)
        if led is None or led != self._led or state.lead.member != leader:
            self._unmarked_s.clear()
            self._led = led
            return
        now_s, unmarked = self._world.now_s, {}
        for task in self._records:
            row, judged = state.tasks[task], _judged(state, task)
            marked = {breach.deadline for breach in row.breaches}
            for deadline in DEADLINES:
                if deadline not in marked and self._late_us(judged, task, deadline, self._world.true_us):
                    key = task, row.order, deadline
                    unmarked[key] = self._unmarked_s.get(key, now_s)
                    if now_s - unmarked[key] > GRACE_S:
                        self._world.wrong(f"deadlines: {deadline} of {task} is late for long, and is not marked")
        self._unmarked_s = unmarked

    def _late_us(self, state: State, task: str, deadline: DeadlineName, at_us: int) -> list[int]:
        """When that was due which is late at `at_us`."""
        row = state.tasks[task]
        limit_us = row.spec.deadlines.limit_us(deadline)
        if limit_us is None or task not in self._records:
            return []
        return [due for due in self._open_us(state, task, deadline) if self._from_us(row, due) + limit_us <= at_us]

    def _from_us(self, row: TaskRow, due_us: int) -> int:
        from_us = max(due_us, self._records[row.placing.name].since_us)
        rests = row.spec.continuous and due_us == row.since_us and row.last is not None and row.last.state in _FAILED
        return from_us + round(row.spec.retry.backoff_s * 1e6) * rests

    def _open_us(self, state: State, task: str, deadline: DeadlineName, *, undecided: bool = True) -> Iterator[int]:
        """When that was due, or will be, which has not met a deadline yet: all of it, but one undecided occurrence."""
        row, record = state.tasks[task], self._records[task]
        if deadline == "success_every":
            yield max(record.since_us, record.succeeded_us)
            return
        for run in (state.runs[one] for one in state.runs_of.get(task, ())):
            if not run.backfill and (deadline == "finish_within" or run.run_id not in self._begun):
                yield _due_us(run, deadline)
        if deadline == "finish_within":
            yield from (join.nominal_us for join in state.joins.get(task, ()) if join.times)
            yield from (due_us for _, due_us in record.failed_us)
        if undecided:
            days = days_of(state.calendars, row.timing)
            yield from islice(occurrences(row.spec.schedule, days, row.since_us, row.through_us), 1)


def _judged(state: State, task: str) -> State:
    """The state without the runs of a deleted task whose name the task has: the leader does not judge them."""
    kept = tuple(one for one in state.runs_of.get(task, ()) if state.runs[one].cancelling != "deleted")
    return replace(state, runs_of=state.runs_of.set(task, kept))


def _breaches(state: State, task: str) -> dict[DeadlineName, Breach]:
    return {breach.deadline: breach for breach in state.tasks[task].breaches} if task in state.tasks else {}


def _due_us(run: Run, deadline: DeadlineName = "finish_within") -> int:
    """From when a deadline of a run counts. What comes after others has to begin from when these have ended on."""
    made = run.trigger == "manual" or (run.trigger == "after" and (deadline == "start_within" or run.generation > 0))
    return run.created_at_us if made else run.fire_at_us
