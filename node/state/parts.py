"""How a task with `each` fares on its members. The task's own state is that of its worst member (pure)."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from node.state.copying import replace
from node.state.value import EachRow, Member, MemberPart, OccurrenceId, OpenRound, Outcome, Run, TaskRow
from tasks.definition.after import ParentEnd, end_of

_MEMBER: Final = attrgetter("member")
_WORSE: Final[dict[ParentEnd | None, int]] = {None: 0, "succeeded": 1, "skipped": 2, "failed": 3}


def takes_part(row: TaskRow, member: Member) -> bool:
    """Whether a member gets a run of each occurrence of a task with `each`: it has the labels, and offers the kind.

    It need not be up: what it misses meanwhile waits for it. One that has never joined, or is being removed, does not.
    """
    placing = row.placing
    fits = placing.kind in member.kinds and set(placing.group) <= set(member.labels)
    return fits and member.incarnation > 0 and not member.leaving


def part_of(each: EachRow, member: str) -> MemberPart | None:
    """Return how a task fares on a member; None: it takes no part."""
    at = bisect_left(each.parts, member, key=_MEMBER)
    return each.parts[at] if at < len(each.parts) and each.parts[at].member == member else None


def with_part(each: EachRow, part: MemberPart) -> EachRow:
    """Return the row with this part in place of the member's earlier one."""
    at = bisect_left(each.parts, part.member, key=_MEMBER)
    known = at < len(each.parts) and each.parts[at].member == part.member
    return replace(each, parts=(*each.parts[:at], part, *each.parts[at + known :]))


class GatheredRuns:
    """The active runs of a task with `each`, and its parts, while one entry changes many of them (`Draft.gathered`).

    Tuples in the state are made anew for each change. Of a thousand changes, each would cost a walk over a thousand.
    """

    def __init__(self, task: str, runs: Iterable[Run], parts: Iterable[MemberPart]) -> None:
        self.task = task
        self.runs = {run.run_id: run.occurrence for run in runs}
        """The occurrence of each active run, by the run's id, oldest first."""
        self.active = Counter(self.runs.values())
        """How many runs of each occurrence are active."""
        self.parts = {part.member: part for part in parts}
        """How the task fares on each member."""
        self.summed = True
        """Whether the task's row has the state of these parts."""

    def add(self, run: Run) -> None:
        """Add an active run, as the newest."""
        self.runs[run.run_id] = run.occurrence
        self.active[run.occurrence] += 1

    def drop(self, run_id: str) -> None:
        """Remove a run, which is one of these."""
        self.active[self.runs.pop(run_id)] -= 1

    def sorted_parts(self) -> tuple[MemberPart, ...]:
        """Return the parts as `EachRow` has them: sorted by member."""
        return tuple(sorted(self.parts.values(), key=_MEMBER))


def with_end(
    each: EachRow, occurrence: OccurrenceId, end: ParentEnd | None, run_id: str, *, last: bool
) -> tuple[OpenRound | None, EachRow]:
    """Return the round of an occurrence with this end of one run, and the row with it; None: no such round is open.

    `last`: no other run of the occurrence is active, so that the round is not open any more.
    """
    known = next((one for one in each.rounds if (one.nominal_us, one.generation) == occurrence), None)
    if known is None:
        return None, each
    after = replace(known, end=end, run_id=run_id) if _WORSE[end] > _WORSE[known.end] else known
    rounds = (after if one is known else one for one in each.rounds)
    return after, replace(each, rounds=tuple(one for one in rounds if one is not after or not last))


def summed_up(row: TaskRow, parts: tuple[MemberPart, ...]) -> TaskRow:
    """Return the row of a task with the state of its worst member. Its work grows with the number of members.

    The last outcome is that of a member that failed, if one did; and the last success is the time since when all
    members that take part have succeeded.
    """
    if not parts:
        return row
    succeeded = [part.succeeded_at_us for part in parts if part.succeeded_at_us is not None]
    all_since_us = min(part.since_us if part.succeeded_at_us is None else part.succeeded_at_us for part in parts)
    return replace(
        row,
        last=max((part.last for part in parts if part.last is not None), key=_badness, default=row.last),
        succeeded_at_us=all_since_us if succeeded else row.succeeded_at_us,
        failing=any(part.failing for part in parts),
        unmet_us=min((part.unmet_us for part in parts if part.unmet_us is not None and row.judged_us), default=None),
        degraded=next((f"{part.member}: {part.degraded}" for part in parts if part.degraded), ""),
    )


def _badness(last: Outcome) -> tuple[int, int]:
    return _WORSE[end_of(last.state)], last.finished_at_us
