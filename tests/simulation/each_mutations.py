"""The rules about tasks that run on each member, switched off (`tests.simulation.mutants`)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final
from unittest import mock

from node.duty import decide
from node.duty.decide import Wanting
from node.duty.duty import Duty
from node.state import claims, draft, each, fan_out, members, parts
from node.state.claims import Claim
from node.state.draft import Draft
from node.state.entries import HANDLERS
from node.state.value import EachRow, Member, OccurrenceId, OpenRound, Result, Run, State, TaskRow
from tasks.definition.after import ParentEnd
from tests.simulation.rules import Rules, instead

_FAN_OUT: Final = each.members_of
_CLAIM: Final = claims.claim
_ON_EACH: Final = decide._on_each
_WITH_END: Final = parts.with_end


def claims_for_others(state: Draft, entry: Claim) -> Result:
    """A run that waits for one member is given to any."""
    run = state.runs.get(entry.run_id or "")
    if run is not None and run.member not in ("", entry.member):
        state.runs = state.runs.set(run.run_id, replace(run, member=entry.member))
    return _CLAIM(state, entry)


def the_owner_claims_all(state: State, row: TaskRow, me: Member, now_us: int, *, owner: bool) -> Wanting:
    """The owner takes the runs of all members for its own."""
    mine = {one: replace(state.runs[one], member=me.id) for one in state.runs_of.get(row.placing.name, ())}
    return _ON_EACH(replace(state, runs=state.runs.update(mine)) if owner else state, row, me, now_us, owner=owner)


@contextmanager
def _for_anybody() -> Iterator[None]:
    with (
        mock.patch.dict(HANDLERS, {Claim: claims_for_others}),
        mock.patch.object(decide, "_on_each", the_owner_claims_all),
    ):
        yield


def only_those_that_are_up(state: Draft, row: TaskRow) -> list[Member]:
    """A member that is down gets no run."""
    return [member for member in _FAN_OUT(state, row) if member.status == "up"]


def nobody_is_forgotten(_draft: Draft, _member: str, _at_us: int) -> None:
    """What waits for a member that was removed goes on waiting."""


def nothing_obsolete(_run: Run) -> bool:
    """A run that has not begun is like any other: the next occurrence is skipped for it."""
    return False


def as_the_last_one(
    row: EachRow, occurrence: OccurrenceId, end: ParentEnd | None, run_id: str, *, last: bool
) -> tuple[OpenRound | None, EachRow]:
    """How the last member ended is how all did."""
    known, after = _WITH_END(row, occurrence, end, run_id, last=last)
    return (None if known is None else replace(known, end=end)), after


def the_latest_counts(row: TaskRow, _parts: tuple[Any, ...]) -> TaskRow:
    """A task's state is that of the member whose run has ended last."""
    return row


def decides_only_as_the_owner(duty: Duty, count: int) -> list[str]:
    """A member decides on what it owns, and on nothing else."""
    tasks: list[str] = []
    while duty._ready and len(tasks) < count:
        task = duty._ready.popitem()[0]
        if duty._owns(task):
            tasks.append(task)
        else:
            duty._others[task] = None
    return tasks


EACH_MUTANTS: Final[dict[str, Rules]] = {
    "each-alone": Rules(without=_for_anybody),
    "each-down": instead(fan_out, "members_of", only_those_that_are_up),
    "each-removed": instead(members, "forget_member", nobody_is_forgotten),
    "each-obsolete": instead(each, "is_unbegun", nothing_obsolete),
    "each-worst-end": instead(draft, "with_end", as_the_last_one),
    "each-worst-state": instead(draft, "summed_up", the_latest_counts),
    "each-claims-its-own": instead(Duty, "_mine", decides_only_as_the_owner),
}
"""By name."""

EACH_SHOWN_BY: Final[dict[str, int]] = {
    "each-alone": 7,
    "each-down": 7,
    "each-removed": 57,
    "each-obsolete": 7,
    "each-worst-end": 7,
    "each-worst-state": 7,
    "each-claims-its-own": 7,
}
"""A seed whose history shows it (`tests.simulation.mutants`)."""
