"""How a task with `each` fares on its members. The task's own state is that of its worst member (pure)."""

from bisect import insort
from operator import attrgetter
from typing import Final

from node.state.copying import replace
from node.state.value import EachRow, Member, MemberPart, OccurrenceId, OpenRound, Outcome, TaskRow
from tasks.definition.after import ParentEnd, end_of

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
    return next((part for part in each.parts if part.member == member), None)


def with_part(each: EachRow, part: MemberPart) -> EachRow:
    """Return the row with this part in place of the member's earlier one."""
    parts = [one for one in each.parts if one.member != part.member]
    insort(parts, part, key=attrgetter("member"))
    return replace(each, parts=tuple(parts))


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
