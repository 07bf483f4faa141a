"""The rules about tasks that come after others, switched off (`tests.simulation.mutants`)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

from immutables import Map

from node.control import leader_watch
from node.duty import joins as keeping
from node.duty.joins import JoinKeeper
from node.state import descent, joins
from node.state.copying import replace
from node.state.draft import Draft
from node.state.entries import Entry
from node.state.joins import PassOn, SettleJoin
from node.state.value import OccurrenceEnd, OccurrenceId, PendingJoin, Result, State, TaskRow
from tasks.definition.after import Consequence, ParentEnd, consequence
from tasks.definition.spec import After
from tests.simulation.rules import Rules, handler, instead

_AWAITED: Final[Callable[..., list[After]]] = joins._awaited
_END_OCCURRENCE: Final = Draft.end_occurrence
_END_PENDING: Final = joins.end_pending
_TELL: Final[Callable[..., int]] = joins._tell


def after_the_first(state: Any, row: TaskRow, join: PendingJoin) -> list[After]:
    """A task is due once one of its parents has ended."""
    known = {one.task for one in join.ends}
    return [one for one in _AWAITED(state, row, join) if one.task in known]


def whole_families(_state: Any, row: TaskRow, _join: PendingJoin) -> list[After]:
    """A task that is rerun waits for all its parents, rerun or not."""
    return list(row.spec.after)


def failed_is_done(after: list[After], ends: dict[str, ParentEnd]) -> Consequence:
    """A parent that has failed counts as one that has succeeded."""
    return consequence(after, {task: "succeeded" if end == "failed" else end for task, end in ends.items()})


def runs_after_any_end(after: list[After], ends: dict[str, ParentEnd]) -> Consequence:
    """What waits for a failure is due whatever its parents come to."""
    found = consequence(after, ends)
    return "due" if found == "not_needed" else found


def only_of_runs(draft: Draft, task: str, occurrence: OccurrenceId, end: ParentEnd, run_id: str = "") -> None:
    """The tasks after one are told of its runs, and not of what it has skipped or missed."""
    if run_id:
        _END_OCCURRENCE(draft, task, occurrence, end, run_id)


def of_no_rerun(draft: Draft, task: str, occurrence: OccurrenceId, end: ParentEnd, run_id: str = "") -> None:
    """The ends of a rerun are those of the occurrence of its time."""
    _END_OCCURRENCE(draft, task, occurrence._replace(generation=0), end, run_id)


def any_occurrence(_draft: Draft, _row: TaskRow, _occurrence: OccurrenceId) -> bool:
    """A task takes part in all that its parents end, also in what was due before it was there."""
    return True


def may_end_never(*_: Any) -> bool:
    """Whatever may still come, a join is settled."""
    return False


def settled_is_forgotten(draft: Draft, entry: SettleJoin) -> Result:
    """A join that was decided without some parents is not kept: if they end after all, it is decided anew."""
    result = joins.settle_join(draft, entry)
    left = tuple(one for one in draft.joins.get(entry.task, ()) if not one.decided)
    if result.ok and entry.task in draft.joins:
        draft.joins = draft.joins.set(entry.task, left) if left else draft.joins.delete(entry.task)
    return result


def passed_on_again(draft: Draft, entry: PassOn) -> Result:
    """An end that has been passed on is passed on by a second entry, too."""
    ends = draft.ends
    result = joins.pass_on(draft, entry)
    if result.ok and len(ends) > 1:
        draft.ends = draft.ends.set(draft.next_end, ends[entry.first])
        draft.next_end += 1
    return result


def a_portion_and_no_more(draft: Draft, entry: PassOn) -> Result:
    """What does not fit into one portion is dropped."""
    last = draft.next_end
    result = joins.pass_on(draft, entry)
    for number in [number for number in draft.ends if result.ok and number < last]:
        draft.ends = draft.ends.delete(number)
    return result


def told_all_at_once(draft: Draft, at_us: int) -> None:
    """What follows from ends is told in the same entry, however much it is."""
    while draft.ended_occurrences:
        ended, draft.ended_occurrences = draft.ended_occurrences, []
        for one in ended:
            _TELL(draft, one, at_us)


def nothing_follows(_draft: Draft, _end: OccurrenceEnd) -> None:
    """The ends that follow from others are not kept."""


def forgets_the_first(draft: Draft, before: PendingJoin, after: PendingJoin | None) -> None:
    """Of a join only the last end is kept."""
    _PUT(draft, before, None if after is None else replace(after, ends=after.ends[-1:]))


_PUT: Final = joins._put


def waits_through_a_pause(draft: Draft, task: str, why: str, at_us: int) -> None:
    """What waits for the parents of a task goes on waiting while it is paused."""
    if why != "paused":
        _END_PENDING(draft, task, why, at_us)


def children_alone(children: descent.Children, tasks: list[str], _most: int) -> list[str]:
    """A task is rerun with those directly after it, and not with those after these."""
    return sorted({*tasks, *(child for task in tasks for child in children.get(task, ()))})


class NeverPassesOn(JoinKeeper):
    """The leader lets the ends lie that are left over."""

    def _pass_on(self, now_us: int) -> tuple[list[Entry], int]:
        return [], now_us + 1_000_000


def never_settled(_state: State, _join: PendingJoin) -> bool:
    """The leader finds nothing that waits in vain."""
    return False


def settled_on_request(draft: Draft, entry: SettleJoin) -> Result:
    """What the leader has found to wait in vain is settled, whatever has happened since."""
    ends, draft.ends = draft.ends, Map()
    with mock.patch.object(joins, "may_end", may_end_never):
        result = joins.settle_join(draft, entry)
    draft.ends = ends
    return result


@contextmanager
def settled_at_once() -> Iterator[None]:
    """The leader has whatever waits settled, and the state takes its word."""
    with (
        mock.patch.object(joins, "may_end", may_end_never),
        mock.patch.object(keeping, "may_end", may_end_never),
    ):
        yield


JOIN_MUTANTS: Final[dict[str, Rules]] = {
    "join-of-all": instead(joins, "_awaited", after_the_first),
    "join-in-rerun": instead(joins, "_awaited", whole_families),
    "join-of-failed": instead(joins, "consequence", failed_is_done),
    "join-not-needed": instead(joins, "consequence", runs_after_any_end),
    "join-of-skipped": instead(Draft, "end_occurrence", only_of_runs),
    "join-of-rerun": instead(Draft, "end_occurrence", of_no_rerun),
    "join-of-its-own": instead(joins, "_is_its_own", any_occurrence),
    "join-kept": handler(SettleJoin, settled_is_forgotten),
    "join-all-ends": instead(joins, "_put", forgets_the_first),
    "join-checked": handler(SettleJoin, settled_on_request),
    "join-in-vain": Rules(without=settled_at_once),
    "join-settled": instead(keeping, "can_settle", never_settled),
    "join-paused": instead(joins, "end_pending", waits_through_a_pause),
    "ends-once": handler(PassOn, passed_on_again),
    "ends-in-portions": handler(PassOn, a_portion_and_no_more),
    "ends-bounded": instead(joins, "tell_children", told_all_at_once),
    "ends-kept": instead(joins, "_keep", nothing_follows),
    "ends-passed-on": instead(leader_watch, "JoinKeeper", NeverPassesOn),
    "rerun-of-all": instead(joins, "with_descendants", children_alone),
}
"""By name."""

JOINS_SHOWN_BY: Final[dict[str, int]] = {
    "join-of-all": 1,
    "join-in-rerun": 1,
    "join-of-failed": 1,
    "join-not-needed": 1,
    "join-of-skipped": 1,
    "join-of-rerun": 1,
    "join-of-its-own": 6,
    "join-kept": 696,
    "join-all-ends": 1,
    "join-checked": 96,
    "join-in-vain": 1,
    "join-settled": 6,
    "join-paused": 21,
    "ends-once": 6,
    "ends-in-portions": 551,
    "ends-bounded": 1,
    "ends-kept": 1,
    "ends-passed-on": 1,
    "rerun-of-all": 6,
}
"""A seed whose history shows it (`tests.simulation.mutants`)."""
