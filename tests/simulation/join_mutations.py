"""The rules about tasks that come after others, switched off (`tests.simulation.mutants`)."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

from immutables import Map

from node.control import leader_watch
from node.duty import deadlines as judging
from node.duty import decide
from node.duty import joins as keeping
from node.duty.joins import JoinKeeper
from node.state import awaiting, deadlines, descent, joins
from node.state.awaiting import AwaitParents, SettleLate
from node.state.copying import replace
from node.state.draft import Draft
from node.state.entries import HANDLERS, Entry
from node.state.joins import PassOn, SettleJoin
from node.state.value import OccurrenceEnd, OccurrenceId, PendingJoin, Result, Run, State, TaskRow
from tasks.definition.after import Consequence, ParentEnd, consequence
from tasks.definition.deadlines import DeadlineName
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


_PUT: Final = joins.put_join


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
    with mock.patch.object(joins, "may_end", may_end_never):
        yield


def at_its_own_time(_state: State, row: TaskRow, nominal_us: int) -> tuple[tuple[str, int], ...]:
    """A task with a schedule waits for what its parents have due at the very same time."""
    return tuple((one.task, nominal_us) for one in row.spec.after)


def nothing_was_before(_past_ends: joins.PastEnds, _join: PendingJoin, _parent: str) -> None:
    """How a parent ended is not known any more once it has been told."""


def any_time_will_do(draft: Draft, row: TaskRow, end: OccurrenceEnd, at_us: int, most: int) -> int:
    """A task with a schedule takes any end of a parent for that which it waits for."""
    for join in draft.joins.get(row.placing.name, ()):
        if join.times:
            times = tuple((name, end.nominal_us if name == end.task else time_us) for name, time_us in join.times)
            joins.put_join(draft, join, replace(join, times=times))
    return _TAKE_AT_TIMES(draft, row, end, at_us, most)


_TAKE_AT_TIMES: Final[Callable[..., int]] = joins._take_at_times


def awaited_again(draft: Draft, entry: AwaitParents) -> Result:
    """What two owners let wait, waits twice, and what has been decided is decided again."""
    if (row := draft.tasks.get(entry.task)) is not None and entry.nominal_us <= row.through_us:
        draft.put_task(replace(row, through_us=entry.nominal_us - 1))
    return awaiting.await_parents(draft, entry)


def late_on_request(draft: Draft, entry: SettleLate) -> Result:
    """What the leader takes for late is late, however long it has waited."""
    for join in draft.joins.get(entry.task, ()):
        if join.nominal_us == entry.nominal_us and join.times:
            joins.put_join(draft, join, replace(join, until_us=0))
    return awaiting.settle_late(draft, entry)


@contextmanager
def late_at_once() -> Iterator[None]:
    """The leader takes whatever waits at times of its own for late, and the state takes its word."""
    with (
        mock.patch.object(keeping, "is_late", lambda _state, join, _now_us: bool(join.times)),
        mock.patch.dict(HANDLERS, {SettleLate: late_on_request}),
    ):
        yield


def never_late(_state: State, _join: PendingJoin, _now_us: int) -> bool:
    """The leader finds nothing that has waited for long enough."""
    return False


_OPEN_US: Final = deadlines.open_us


def only_of_what_runs(
    row: TaskRow, runs: Iterable[Run], deadline: DeadlineName, _joins: Iterable[PendingJoin] = ()
) -> Iterator[int]:
    """What waits for its parents at a time of its own is not late, however long that takes."""
    return _OPEN_US(row, runs, deadline)


@contextmanager
def late_only_when_it_runs() -> Iterator[None]:
    """Neither the leader nor the state counts it."""
    with (
        mock.patch.object(deadlines, "open_us", only_of_what_runs),
        mock.patch.object(judging, "open_us", only_of_what_runs),
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
    "join-all-ends": instead(joins, "put_join", forgets_the_first),
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
    "times-latest": instead(decide, "latest_times", at_its_own_time),
    "times-kept": instead(joins, "past_end", nothing_was_before),
    "times-told": instead(joins, "_take_at_times", any_time_will_do),
    "times-once": handler(AwaitParents, awaited_again),
    "times-in-time": Rules(without=late_at_once),
    "times-late": instead(keeping, "is_late", never_late),
    "times-deadline": Rules(without=late_only_when_it_runs),
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
    "times-latest": 11,
    "times-kept": 41,
    "times-told": 66,
    "times-once": 166,
    "times-in-time": 11,
    "times-late": 566,
    "times-deadline": 161,
}
"""A seed whose history shows it (`tests.simulation.mutants`)."""
