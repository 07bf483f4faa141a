"""The next state while one entry is being applied.

A handler changes the draft and returns a result. If that is not "ok", the draft is discarded: a refusal changes
nothing.
"""

from bisect import insort
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import make_dataclass
from datetime import datetime, timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from immutables import Map

from node.state.backfill import BackfillRow
from node.state.blackout import Blackout
from node.state.bounds import run_bytes
from node.state.calendar import Calendar
from node.state.copying import Maker, replace
from node.state.outbox import Channels, Fact, Notice, with_digest, with_fact
from node.state.parts import GatheredRuns, part_of, summed_up, with_end, with_part
from node.state.pool import Pool
from node.state.run_times import RULES_TOOK, latest_took_us, took_us
from node.state.shape import field_names
from node.state.value import (
    COUNTED,
    Breach,
    CarriedFields,
    DeadlineChange,
    DeadlineEvent,
    EachRow,
    EndedRun,
    Lead,
    Member,
    MemberPart,
    OccurrenceEnd,
    OccurrenceId,
    OpenRound,
    Outcome,
    PendingJoin,
    Rerun,
    Result,
    Run,
    Series,
    Settings,
    State,
    TaskRow,
    Window,
)
from tasks.definition.after import ParentEnd, end_of
from tasks.definition.run import RunState

ERROR_CHARS_MAX: Final = 2000
"""The most characters of an error that the state and history keep. The attempt's log has the whole error."""

ATTEMPTS_KEPT: Final = 32
"""How many of a run's latest attempts are kept. The numbers of later attempts go on rising."""

_STATES: Final = Maker(State)

RULES_AFTER: Final = 8
"""From these rules on (`Lead.rules`), tasks are due after others, and what ends because of others is counted."""

RULES_EACH: Final = 10
"""From these rules on, tasks run on each member (`node.state.each`)."""

MEMBER_REMOVED: Final = "its member was removed"
"""Why a run of a task with `each` is cancelled if its member is removed. It does not count for the tasks after it."""
RULES_TEMPLATES: Final = 10
"""From these rules on, the params of a task may depend on the occurrence."""

RULES_AT_TIMES: Final = 9
"""From these rules on, a task with a schedule may come after others, and wait for them at times of its own."""

PAST_ENDS_MAX: Final = 100
"""How many of its latest ends a task keeps for those that come after it and have a schedule."""

_COUNTED_BEFORE: Final = 5
_COUNTED_AFTER: Final = 8

_PLACE_OF: Final = {state: place for place, state in enumerate(COUNTED)}

_EPOCH: Final = datetime(1970, 1, 1)  # in UTC, and written without the offset


if TYPE_CHECKING:

    class _Fields:
        cluster_id: str
        index: int
        epoch: int
        token: int
        orders: int
        settings: Settings
        lead: Lead
        slots: tuple[str | None, ...]
        members: Map[str, Member]
        tasks: Map[str, TaskRow]
        runs: Map[str, Run]
        runs_of: Map[str, tuple[str, ...]]
        windows: Map[str, Window]
        forgotten: int
        specs_bytes: int
        runs_bytes: int
        requests_bytes: int
        endings: tuple[int, ...]
        children: Map[str, tuple[str, ...]]
        joins: Map[str, tuple[PendingJoin, ...]]
        ends: Map[int, OccurrenceEnd]
        reruns: Map[int, Rerun]
        past_ends: Map[str, tuple[OccurrenceEnd, ...]]
        pools: Map[str, Pool]
        backfills: Map[int, BackfillRow]
        each: Map[str, EachRow]
        calendars: Map[str, Calendar]
        blackouts: Map[str, Blackout]
        carried: Map[str, tuple[CarriedFields, ...]]
        channels: Channels
        next_end: int

        def __init__(self, *fields: Any) -> None: ...

else:
    _Fields = make_dataclass("_Fields", field_names(State), eq=False)


class Draft(_Fields):
    """A mutable copy of the state for one entry: it has all fields of `State` (declared above)."""

    def __init__(self, state: State) -> None:
        super().__init__(*_STATES.fields_of(state))
        self.index += 1
        self.ended: list[EndedRun] = []
        self.deadlines: list[DeadlineEvent] = []
        self.touched: set[str] = set()
        self.retimed: set[str] = set()
        self.ended_occurrences: list[OccurrenceEnd] = []
        self.placing_changed = False
        self._facts = 0
        self._gathered: GatheredRuns | None = None

    def state(self, windows: Map[str, Window]) -> State:
        """Return the state of this draft, with these windows, and in a new epoch if placement changed. Call it once."""
        self.windows = windows
        self.epoch += self.placing_changed
        return _STATES.make(_STATES.fields_of(self))

    def note(self, fact: Fact) -> None:
        """Add a notice of a fact to the channels that want it."""
        self.channels = with_fact(self.channels, fact, f"{self.index}.{self._facts}")
        self._facts += 1

    def note_digest(self, channel: str, text: str, figures: dict[str, Any], at_us: int) -> None:
        """Add a digest to the notices of a channel."""
        notice = Notice(f"{self.index}.{self._facts}", "digest", "info", at_us, text, figures=figures)
        self.channels = with_digest(self.channels, channel, notice)
        self._facts += 1

    def put_member(self, member: Member) -> None:
        """Add or change a member."""
        self.members = self.members.set(member.id, member)

    def put_task(self, row: TaskRow) -> None:
        """Add or change a task."""
        self.tasks = self.tasks.set(row.placing.name, row)
        self.touched.add(row.placing.name)

    def put_run(self, run: Run) -> None:
        """Add an active run as its task's newest, or change one."""
        before = self.runs.get(run.run_id)
        self.runs_bytes += run_bytes(run) - (0 if before is None else run_bytes(before))
        if before is None:
            if (gathered := self._gathered) is not None and gathered.task == run.task:
                gathered.add(run)
            else:
                self.runs_of = self.runs_of.set(run.task, (*self.runs_of.get(run.task, ()), run.run_id))
        self.runs = self.runs.set(run.run_id, run)
        self.touched.add(run.task)

    @contextmanager
    def gathered(self, task: str) -> Iterator[None]:
        """Change many runs of a task within the block, each of which then costs no walk over the others.

        Of a task without `each`, this changes nothing. Until the end of the block, its row has not the state of its
        worst member, and `runs_of` and `each` have what was before. Blocks are not nested.
        """
        if (each := self.each.get(task)) is None:
            yield
            return
        gathered = self._gathered = GatheredRuns(task, self.active(task), each.parts)
        yield
        self._gathered = None
        if gathered.runs:
            self.runs_of = self.runs_of.set(task, tuple(gathered.runs))
        elif task in self.runs_of:
            self.runs_of = self.runs_of.delete(task)
        parts = gathered.sorted_parts()
        self.each = self.each.set(task, replace(self.each[task], parts=parts))
        if not gathered.summed:
            self.tasks = self.tasks.set(task, summed_up(self.tasks[task], parts))

    def active(self, task: str) -> list[Run]:
        """Return the active runs of a task, oldest first."""
        if (gathered := self._gathered) is not None and gathered.task == task:
            return [self.runs[run_id] for run_id in gathered.runs]
        return [self.runs[run_id] for run_id in self.runs_of.get(task, ())]

    def overlapping(self, task: str) -> list[Run]:
        """Return the active runs that count for `overlap`, oldest first: all but actions and those of backfills."""
        return [run for run in self.active(task) if not run.action and not run.backfill]

    def end(
        self, run: Run, state: RunState, at_us: int, error: str | None = None, result: dict[str, Any] | None = None
    ) -> None:
        """End a run: move it from the state to the history, and keep its outcome in the task's row."""
        self.drop_run(run)
        error = error and error[:ERROR_CHARS_MAX]
        self.ended.append(EndedRun(replace(run, state=state), state, at_us, result, error))
        if (self.children or run.generation or run.member) and run.cancelling != "deleted":
            occurrence = run.occurrence
            if occurrence is not None and run.member:
                self.end_on_member(run, occurrence, None if run.cancelling == MEMBER_REMOVED else end_of(state))
            elif occurrence is not None:
                self.end_occurrence(run.task, occurrence, end_of(state), run.run_id)
        row = self.tasks.get(run.task)
        if run.action or run.backfill:
            return  # the outcome of an action, or of a past time, does not show whether the task works
        if row is not None and run.cancelling != "deleted":
            last = Outcome(run.run_id, state, run.fire_at_us, at_us, error)
            row = replace(row, last=last, since_us=_since_us(row, run, at_us))
            timed = took_us if self.lead.rules >= RULES_TOOK else latest_took_us
            row = self._counted(row, timed(run, at_us), state) if self.endings else row
            self.tasks = self.tasks.set(run.task, row)
            if run.member and (part := self.part(run)) is not None:
                succeeded_at_us = at_us if state == "succeeded" else part.succeeded_at_us
                self.put_part(run.task, replace(part, last=row.last, succeeded_at_us=succeeded_at_us))
        if self.endings:
            self.endings = _one_more(self.endings, state, len(self.endings))

    def drop_run(self, run: Run) -> None:
        """Remove a run from the active ones, if it is one of them."""
        if (held := self.runs.get(run.run_id)) is not None:
            self.runs_bytes -= run_bytes(held)
            self.runs = self.runs.delete(run.run_id)
            if (gathered := self._gathered) is not None and gathered.task == run.task:
                gathered.drop(run.run_id)
            else:
                left = tuple(run_id for run_id in self.runs_of[run.task] if run_id != run.run_id)
                self.runs_of = self.runs_of.set(run.task, left) if left else self.runs_of.delete(run.task)
        self.touched.add(run.task)

    def part(self, run: Run) -> MemberPart | None:
        """Return how the task of a run fares on the run's member; None: it has no `each`."""
        if run.member and (gathered := self._gathered) is not None and gathered.task == run.task:
            return gathered.parts.get(run.member)
        each = self.each.get(run.task) if run.member else None
        return None if each is None else part_of(each, run.member)

    def put_part(self, task: str, part: MemberPart) -> None:
        """Note how a task with `each` fares on a member; its row is to have the state of the worst member."""
        self.keep_part(task, part)
        if (gathered := self._gathered) is not None and gathered.task == task:
            gathered.summed = False
        else:
            self.tasks = self.tasks.set(task, summed_up(self.tasks[task], self.each[task].parts))

    def keep_part(self, task: str, part: MemberPart) -> None:
        """Keep what a task with `each` has for a member, if the state of the task does not depend on the change."""
        if (gathered := self._gathered) is not None and gathered.task == task:
            gathered.parts[part.member] = part
        else:
            self.each = self.each.set(task, with_part(self.each[task], part))

    def end_on_member(self, run: Run, occurrence: OccurrenceId, end: ParentEnd | None) -> None:
        """Note how an occurrence of a task with `each` ended on one member, whose run is not active any more.

        The tasks after it are told once it has ended on all members. None: this member does not count.
        """
        task = run.task
        each = self.each.get(task, EachRow(task))
        if (gathered := self._gathered) is not None and gathered.task == task:
            others = gathered.active[occurrence] > 0
        else:
            others = any(other.occurrence == occurrence for other in self.active(task))
        known, after = with_end(each, occurrence, end, run.run_id, last=not others)
        if known is not None:
            self.each = self.each.set(task, after)
        elif task in self.each:
            return  # it has ended before
        if not others:
            ended = known or OpenRound(*occurrence, end, run.run_id)
            self.end_occurrence(task, occurrence, ended.end or "skipped", ended.run_id)

    def end_unrun(self, run: Run, at_us: int, error: str) -> None:
        """End an occurrence that gets no run because of the tasks before it. `run` has the state in which it ends."""
        self.pass_over(run, at_us, error=error)
        if run.backfill:
            return
        row = self.tasks[run.task]
        row = replace(row, last=Outcome(run.run_id, run.state, run.fire_at_us, at_us, error))
        self.put_task(self._counted(row, None, run.state) if self.endings else row)
        if self.endings:
            self.endings = _one_more(self.endings, run.state, len(self.endings))

    def end_occurrence(self, task: str, occurrence: OccurrenceId, end: ParentEnd, run_id: str = "") -> None:
        """Note the end of an occurrence of a task, for the tasks after it (`node.state.joins.tell_children`)."""
        if self.lead.rules >= RULES_AFTER and (occurrence.generation or task in self.children):
            ended = OccurrenceEnd(task, *occurrence, end, run_id)
            self.ended_occurrences.append(ended)
            if not occurrence.generation and (known := self.past_ends.get(task)) is not None:
                kept = [one for one in known if one.nominal_us != ended.nominal_us]
                insort(kept, ended, key=attrgetter("nominal_us"))
                self.past_ends = self.past_ends.set(task, tuple(kept[-PAST_ENDS_MAX:]))

    def count_all(self) -> None:
        """Begin to count the final states of runs, or those that were added to `COUNTED`, by the present rules."""
        rules = self.lead.rules
        width = len(COUNTED) if rules >= RULES_AT_TIMES else _COUNTED_AFTER if rules >= RULES_AFTER else _COUNTED_BEFORE
        self.endings += (0,) * (width - len(self.endings))

    def _counted(self, row: TaskRow, took_us: int | None, state: RunState) -> TaskRow:
        """Return the row with its last outcome counted, and with the duration of that run."""
        assert row.last is not None
        last = replace(row.last, took_us=took_us)
        succeeded_at_us = last.finished_at_us if state == "succeeded" else row.succeeded_at_us
        counts = _one_more(row.endings, state, len(self.endings))
        return replace(row, last=last, succeeded_at_us=succeeded_at_us, endings=counts)

    def breach(self, row: TaskRow, breach: Breach, at_us: int) -> None:
        """Note that a deadline of a task is breached from now on."""
        self.put_task(replace(row, breaches=(*row.breaches, breach)))
        self.deadlines.append(DeadlineEvent(row.placing.name, breach, "breached", at_us))

    def recover(self, task: str, breach: Breach, change: DeadlineChange, at_us: int) -> None:
        """Note that a deadline of a task is no longer breached; the task may have been deleted."""
        if (row := self.tasks.get(task)) is not None:
            self.put_task(replace(row, breaches=tuple(one for one in row.breaches if one is not breach)))
        self.deadlines.append(DeadlineEvent(task, breach, change, at_us))

    def pass_over(self, run: Run, at_us: int, series: Series | None = None, error: str | None = None) -> None:
        """Record occurrences that were passed over, in history only. `run` is the first of them."""
        self.ended.append(EndedRun(run, run.state, at_us, error=error, series=series))


def _one_more(counts: tuple[int, ...], state: RunState, width: int) -> tuple[int, ...]:
    """Return the counts with one more of `state`. `width`: how many states are counted."""
    counts += (0,) * (width - len(counts))
    place = _PLACE_OF.get(state, width)
    return counts if place >= width else (*counts[:place], counts[place] + 1, *counts[place + 1 :])


def _since_us(row: TaskRow, run: Run, at_us: int) -> int:
    """Return the new `since_us` of a task after its `run` has ended.

    For a continuous task it is the present time, at which its next run is due. It must differ from the times of all
    earlier runs, since it becomes a part of a run's id. For any other task, it stays as it is.
    """
    if run.trigger == "schedule" and row.through_us >= row.since_us and row.spec.continuous:
        return max(at_us, row.through_us + 1)
    return row.since_us


def stem(task: str, fire_at_us: int) -> str:
    """Return the beginning of a run's id: its task and its due time.

    >>> stem("nightly", 1_795_240_500_000_000)
    'nightly~20261121T055500.000000Z'
    """
    at = (_EPOCH + timedelta(microseconds=fire_at_us)).isoformat(timespec="microseconds")
    return f"{task}~{at.replace('-', '').replace(':', '')}Z"  # half the time of a format


def free_moment(draft: Draft, row: TaskRow, fire_at_us: int) -> int:
    """Return the first free time from `fire_at_us` on: no active run and no kept start by hand of the task has it."""
    task = row.placing.name
    taken = {run.fire_at_us for run in draft.active(task)}
    stems = {run_id[: len(task) + 24] for _, run_id in row.requests}
    while fire_at_us in taken or (stems and stem(task, fire_at_us) in stems):
        fire_at_us += 1
    return fire_at_us


def refused(code: str, detail: str) -> Result:
    """Make a refusal from a code and a sentence that explains it to people."""
    return Result(code, detail=detail)


DONE: Final = Result("ok")
