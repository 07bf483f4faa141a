"""Decides for the owner of a task what to do now: claim, queue or skip occurrences, and claim runs without a holder."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from node.duty.agenda import UNCLAIMED, next_occurrence_us
from node.duty.latest import latest_times, unreadable_parent
from node.duty.occurrence_params import made_params
from node.duty.sharing import DECLINED_US, OFFER_US, offer_holds
from node.duty.turns import MY_TURN, Turn, turn_of
from node.state.attempts import Cancel
from node.state.awaiting import AwaitParents
from node.state.blackout import blackout_of
from node.state.blackouts import is_exempt
from node.state.bounds import no_room
from node.state.calendar import days_of
from node.state.claims import Claim, held_by_backfill
from node.state.entries import Entry
from node.state.fan_out import FanOut, MissRun, missed_from_us
from node.state.occurrences import Enqueue, SkipOccurrences
from node.state.offers import may_be_offered
from node.state.run_times import due_us
from node.state.value import Member, PassedOver, Run, State, TaskRow
from tasks.definition.policy import DuePlan, lateness_s, room_for_another, settle
from tasks.definition.run import HELD
from tasks.definition.schedule import occurrences

WINDOW: Final = 1000
"""How many due occurrences of a task are decided on at once, oldest first. The others follow in the next entry."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A claim that is allowed now, if there is room."""

    #: The claim.
    claim: Claim
    #: Since when it is due, in microseconds since the epoch.
    due_us: int
    #: Whether its run was lost with another member.
    failover: bool
    #: If there is no room by this time, the occurrence must be queued: else it would be late, and so be skipped
    #: (`catch_up: skip`). In microseconds since the epoch; None: it need not be.
    queue_us: int | None = None
    #: Whether its run is of a backfill, and goes after all others.
    backfill: bool = False
    #: Whether its task is continuous.
    continuous: bool = False
    #: Whether it may be offered to another member.
    shared: bool = False
    #: The member that it was lately offered to and that did not begin it; "": none.
    declined: str = ""
    #: Whether it was offered to this member, so that the member's load has it already.
    counted: bool = False

    @property
    def batch(self) -> bool:
        """Whether it may have no place that is kept for continuous work and failovers."""
        return not (self.failover or self.continuous)

    @property
    def rank(self) -> tuple[bool, bool, int, str]:
        """The sort key: failovers first, then the claims that have been due the longest; those of backfills last."""
        return (self.backfill, not self.failover, self.due_us, self.claim.task)


@dataclass(frozen=True, slots=True)
class Wanting:
    """The needs of a task: `entries` to propose now, `wishes` for when there is room, next decision at `look_us`.

    `held`: a blackout holds it until then, so that nothing new of it begins.
    """

    entries: tuple[Entry, ...] = ()
    wishes: tuple[Wish, ...] = ()
    look_us: int | None = None
    held: bool = False


def needs(state: State, task: str, me: Member, now_us: int, *, owner: bool = True) -> Wanting:
    """Return what `me`, the owner of `task`, should propose for it at `now_us`. `owner`: whether it is the owner.

    Others than the owner have something to do of a task with `each`, of which each member claims its own runs, and of
    runs that they were offered.

    `look_us` of the result is the next time at which the result changes without a change of the task or its runs.
    """
    row = state.tasks.get(task)
    if row is None:
        return Wanting()
    if task in state.each:
        return _on_each(state, row, me, now_us, owner=owner)
    if not owner:
        return _of_offers(state, row, me, now_us)
    active = [state.runs[run_id] for run_id in state.runs_of.get(task, ())]
    actions = [run for run in active if run.action]
    backfilled = [run for run in active if run.backfill]
    active = [run for run in active if not run.action and not run.backfill]
    behind = held_by_backfill(row, backfilled) is not None
    ready = [*(() if behind else _claimable(row, active)), *_free(actions)]
    blackout = blackout_of(state.blackouts, row.spec_packed, now_us) if state.blackouts else None
    if blackout is not None:
        ready = [run for run in ready if is_exempt(run)]
    wishes, times = _wishes(state, row, me, ready, now_us, shared=may_be_offered(row))
    room = not active or row.spec.overlap != "allow" or no_room(state, row, active) is None
    told = task in state.children
    late_us = lateness_us(state)
    held = blackout is not None and not row.timing.continuous
    entries, claim_us, look_us = (
        ([], None, None) if held else _schedule(state, row, task, active, now_us, late_us, room=room, told=told)
    )
    if any(isinstance(entry, Cancel) for entry in entries):
        # A run that is being replaced is not claimed again.
        wishes = [wish for wish in wishes if any(wish.claim.run_id == run.run_id for run in actions)]
    if claim_us is not None and row.spec.after:
        entries.append(AwaitParents(now_us, task, claim_us, latest_times(state, row, claim_us)))
    elif claim_us is not None and (behind or not turn_of(state, task, row.spec_packed, now_us).mine):
        # It waits for a pool, or for a backfill's run, as a run: this has a place in the pool's queue, and
        # `catch_up` does not judge it later.
        entries = entries or [Enqueue(now_us, task, (claim_us,))]
    elif claim_us is not None:
        wishes.append(_wish_for_time(state, row, claim_us, me, now_us, late_us))
    if claim_us is None:
        filling = [run for run in _backfilling(row, active, backfilled) if blackout is None or is_exempt(run)]
        more_wishes, more_times = _wishes(state, row, me, filling, now_us)
        wishes += more_wishes
        times += more_times
    if look_us is not None:
        times.append(look_us)
    if blackout is not None:
        times.append(blackout.until_us)
    return Wanting(tuple(entries), tuple(wishes), min(times, default=None), held=held)


def _on_each(state: State, row: TaskRow, me: Member, now_us: int, *, owner: bool) -> Wanting:
    """As `needs`, for a task with `each`: its owner makes the runs of all members, and each member claims its own.

    Runs that their members were not up for in time are missed, as the owner finds, or the member once it is back.
    """
    task = row.placing.name
    runs = [state.runs[run_id] for run_id in state.runs_of.get(task, ())]
    entries: list[Entry] = []
    times: list[int] = []
    mine: list[Run] = []
    for run in runs:
        if not owner and run.member != me.id:
            continue
        from_us = missed_from_us(state.settings, row, run, state.members.get(run.member))
        if from_us is not None and from_us <= now_us:
            entries.append(MissRun(now_us, task, run.run_id))
            continue
        if from_us is not None:
            times.append(from_us)
        if run.member == me.id:
            mine.append(run)
    ready = [*_claimable(row, [run for run in mine if not run.action]), *_free([run for run in mine if run.action])]
    blackout = blackout_of(state.blackouts, row.spec_packed, now_us) if state.blackouts else None
    if blackout is not None:
        ready = [run for run in ready if is_exempt(run)]
        times.append(blackout.until_us)
    wishes, more_times = _wishes(state, row, me, ready, now_us)
    times += more_times
    if owner and blackout is None:
        told = task in state.children
        late_us = lateness_us(state)
        scheduled, claim_us, look_us = _schedule(state, row, task, [], now_us, late_us, room=True, told=told)
        entries += scheduled
        if claim_us is not None and row.spec.after:
            entries.append(AwaitParents(now_us, task, claim_us, latest_times(state, row, claim_us)))
        elif claim_us is not None:
            entries.append(FanOut(now_us, task, claim_us))
        if look_us is not None:
            times.append(look_us)
    return Wanting(tuple(entries), tuple(wishes), min(times, default=None), held=blackout is not None)


def lateness_us(state: State) -> int:
    """Return how late an occurrence may begin under `catch_up: skip`, in microseconds."""
    settings = state.settings
    return round(lateness_s(settings.window_s + settings.lease_s + settings.margin_s) * 1_000_000)


def _of_offers(state: State, row: TaskRow, me: Member, now_us: int) -> Wanting:
    """Return what `me`, which does not own the task, should claim of it: the runs that it was offered."""
    task = row.placing.name
    if state.blackouts and blackout_of(state.blackouts, row.spec_packed, now_us) is not None:
        return Wanting()
    active = [state.runs[run_id] for run_id in state.runs_of.get(task, ())]
    if held_by_backfill(row, [run for run in active if run.backfill]) is not None:
        return Wanting()
    free = _claimable(row, [run for run in active if not run.action and not run.backfill])
    offered = [run for run in free if run.offered == me.id and offer_holds(state, run, now_us)]
    turn = [run for run in offered if turn_of(state, task, run.spec_packed, now_us, run.run_id).mine]
    return Wanting(wishes=tuple(_wish(state, row, run, me, now_us) for run in turn))


def _claimable(row: TaskRow, active: list[Run]) -> Iterator[Run]:
    """Yield the runs of a task that may be claimed when they are due: all waiting runs, or the first of the queue.

    A run that waits for its retry keeps its place in the queue.
    """
    free = _free(active)
    if row.spec.overlap == "allow":
        yield from free
        return
    orphaned = [run for run in free if run.state == "orphaned"]
    held = sum(run.state in HELD for run in active)
    if room_for_another(row.spec.overlap, held):
        yield from (orphaned or free)[:1]


def _backfilling(row: TaskRow, live: list[Run], backfilled: list[Run]) -> Iterable[Run]:
    """Return the runs of backfills that may be claimed when they are due: beside others only where `overlap` allows."""
    if row.spec.overlap != "allow" and live:
        return ()
    return _claimable(row, backfilled)


def _free(active: list[Run]) -> list[Run]:
    return [run for run in active if run.state in UNCLAIMED and run.cancelling is None]


def _wishes(
    state: State, row: TaskRow, me: Member, ready: Iterable[Run], now_us: int, *, shared: bool = False
) -> tuple[list[Wish], list[int]]:
    """Return the claims of those of the `ready` runs whose turn it is, and when to look at the others again."""
    wishes: list[Wish] = []
    times: list[int] = []
    for run in ready:
        turn = MY_TURN
        if run.offered not in ("", me.id) and offer_holds(state, run, now_us):
            turn = Turn(mine=False, look_us=run.offered_us + OFFER_US)
        elif (due := due_us(run, now_us)) > now_us:
            turn = Turn(mine=False, look_us=due)
        elif not run.action:
            turn = turn_of(state, run.task, run.spec_packed, now_us, run.run_id)
        if turn.mine:
            wishes.append(_wish(state, row, run, me, now_us, shared=shared))
        elif turn.look_us is not None:
            times.append(turn.look_us)
    return wishes, times


def _wish(state: State, row: TaskRow, run: Run, me: Member, now_us: int, *, shared: bool = False) -> Wish:
    made = made_params(state, row, run.fire_at_us, run)
    claim = Claim(
        at_us=now_us,
        task=run.task,
        fire_at_us=run.fire_at_us,
        member=me.id,
        incarnation=me.incarnation,
        run_id=run.run_id,
        params=made.params,
        fault=made.fault,
    )
    failover = run.state == "orphaned"
    return Wish(
        claim=claim,
        due_us=run.due_us or run.created_at_us,
        failover=failover,
        backfill=run.backfill != 0,
        continuous=run.spec.continuous and not run.action,
        shared=shared and not failover and not run.action,
        declined=run.offered if abs(now_us - run.offered_us) < DECLINED_US else "",
        counted=run.offered == me.id,
    )


def _wish_for_time(state: State, row: TaskRow, fire_at_us: int, me: Member, now_us: int, late_us: int) -> Wish:
    """Return the claim of an occurrence that is no run yet."""
    made = made_params(state, row, fire_at_us)
    claim = Claim(
        at_us=now_us,
        task=row.placing.name,
        fire_at_us=fire_at_us,
        member=me.id,
        incarnation=me.incarnation,
        params=made.params,
        fault=made.fault,
        version=made.version,
    )
    return Wish(
        claim=claim,
        due_us=fire_at_us,
        failover=False,
        queue_us=fire_at_us + late_us // 2 if row.spec.catch_up == "skip" and not row.spec.continuous else None,
        continuous=row.spec.continuous,
        shared=may_be_offered(row),
    )


def _schedule(
    state: State, row: TaskRow, task: str, active: list[Run], now_us: int, lateness_us: int, *, room: bool, told: bool
) -> tuple[list[Entry], int | None, int | None]:
    """Return what the schedule requires: entries, the occurrence to claim, and when to decide again.

    The occurrence of a task that comes after others is not claimed, but waits for these.
    """
    next_us = next_occurrence_us(state.calendars, row, row.through_us)
    if next_us is None:
        return [], None, None
    if next_us > now_us:
        return [], None, next_us
    spec = row.spec
    if spec.continuous:
        # A continuous task's occurrence is never skipped or missed: it is due until it is claimed.
        return [], (None if active else row.since_us), None
    if unreadable_parent(state, row) is not None:
        return [], None, None  # another member may know that time zone
    due_us, following_us = _due(state, row, now_us)
    if spec.after:
        # What waits for its parents, or runs on each member, is judged by `overlap` later, so here only `catch_up`
        # counts.
        active, room = [], True
    overlap = "allow" if spec.after or spec.each else spec.overlap
    verdict = settle(
        overlap,
        spec.catch_up,
        due_us,
        more=following_us is not None and following_us <= now_us,
        active=len(active),
        waiting=sum(run.state == "waiting" for run in active),
        late_us=0 if not spec.each and _makes_room(row, active, now_us - lateness_us) else now_us - lateness_us,
        lost=any(run.state == "orphaned" for run in active),
    )
    if verdict.claim is not None and not verdict.replace and not room:
        # The state may hold no more runs of this task, so the occurrence is skipped, as it is beside an active run.
        verdict = DuePlan(skipped=(verdict.claim,))
    if (spec.after or spec.each) and verdict.enqueue:
        return [], verdict.enqueue[0], following_us
    return _entries(verdict, task, active, now_us, each=told), _claim_us(verdict, active), following_us


def _makes_room(row: TaskRow, active: list[Run], since_us: int) -> bool:
    """Whether an occurrence has had to wait for the end of the run that it replaces."""
    if row.spec.overlap != "replace":
        return False
    if active:
        return any(run.cancelling is not None for run in active)
    return row.last is not None and row.last.finished_at_us >= since_us  # because of the cancellation, or before it


def _due(state: State, row: TaskRow, now_us: int) -> tuple[list[int], int | None]:
    """Return the due occurrences, `WINDOW` at most, and the next one after them.

    No further ones are computed, because computing the times of a cron line takes processor time.
    """
    due_us: list[int] = []
    timing = row.timing
    for fire_at_us in occurrences(timing.schedule, days_of(state.calendars, timing), row.since_us, row.through_us):
        if fire_at_us > now_us or len(due_us) == WINDOW:
            return due_us, fire_at_us
        due_us.append(fire_at_us)
    return due_us, None


def _claim_us(verdict: DuePlan, active: list[Run]) -> int | None:
    return None if verdict.replace and active else verdict.claim


def _passed_over(now_us: int, task: str, state: PassedOver, times: tuple[int, ...], *, each: bool) -> SkipOccurrences:
    if each:
        return SkipOccurrences(now_us, task, state, times)
    return SkipOccurrences(now_us, task, state, (times[0], times[-1]), len(times))


def _entries(verdict: DuePlan, task: str, active: list[Run], now_us: int, *, each: bool) -> list[Entry]:
    """Return the entries of a plan. `each`: name each occurrence that is passed over, for the tasks after this one."""
    if verdict.missed:
        return [_passed_over(now_us, task, "missed", verdict.missed, each=each)]
    if verdict.skipped:
        return [_passed_over(now_us, task, "skipped", verdict.skipped, each=each)]
    if verdict.enqueue:
        return [Enqueue(now_us, task, verdict.enqueue)]
    if verdict.replace:
        return [Cancel(now_us, run.run_id, "replaced") for run in active if run.cancelling is None]
    return []
