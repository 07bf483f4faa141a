"""Decides for the owner of a task what to do now: claim, queue or skip occurrences, and claim runs without a holder."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from node.duty.agenda import UNCLAIMED, next_occurrence_us
from node.state.attempts import Cancel
from node.state.bounds import no_room
from node.state.claims import Claim
from node.state.entries import Entry
from node.state.occurrences import Enqueue, SkipOccurrences
from node.state.run_times import due_us
from node.state.value import Member, PassedOver, Run, State, TaskRow
from tasks.definition.policy import DuePlan, lateness_s, room_for_another, settle
from tasks.definition.run import HELD
from tasks.definition.schedule import occurrences

WINDOW: Final = 1000
"""How many due occurrences of a task are decided on at once, oldest first. The others follow in the next entry."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A claim that is allowed now, if there is room. `failover`: its run was lost with another member.

    `queue_us`: if there is no room by this time, the occurrence must be queued; else it would be late and so be skipped
    (`catch_up: skip`).
    """

    claim: Claim
    due_us: int
    failover: bool
    queue_us: int | None = None

    @property
    def rank(self) -> tuple[bool, int, str]:
        """The sort key: failovers first, then the claims that have been due the longest."""
        return (not self.failover, self.due_us, self.claim.task)


@dataclass(frozen=True, slots=True)
class Wanting:
    """The needs of a task: `entries` to propose now, `wishes` for when there is room, next decision at `look_us`."""

    entries: tuple[Entry, ...] = ()
    wishes: tuple[Wish, ...] = ()
    look_us: int | None = None


def needs(state: State, task: str, me: Member, now_us: int) -> Wanting:
    """Return what `me`, the owner of `task`, should propose for it at `now_us`.

    `look_us` of the result is the next time at which the result changes without a change of the task or its runs.
    """
    row = state.tasks.get(task)
    if row is None:
        return Wanting()
    active = [state.runs[run_id] for run_id in state.runs_of.get(task, ())]
    actions = [run for run in active if run.action]
    active = [run for run in active if not run.action]
    ready = [*_claimable(row, active), *_free(actions)]
    wishes = [_wish(run, me, now_us) for run in ready if due_us(run, now_us) <= now_us]
    times = [due for run in ready if (due := due_us(run, now_us)) > now_us]
    late_s = lateness_s(state.settings.window_s + state.settings.lease_s + state.settings.margin_s)
    room = not active or row.spec.overlap != "allow" or no_room(state, row, active) is None
    told = task in state.children
    entries, claim_us, look_us = _schedule(row, task, active, now_us, round(late_s * 1_000_000), room=room, told=told)
    if any(isinstance(entry, Cancel) for entry in entries):
        # A run that is being replaced is not claimed again.
        wishes = [wish for wish in wishes if any(wish.claim.run_id == run.run_id for run in actions)]
    if claim_us is not None:
        claim = Claim(now_us, task, claim_us, me.id, me.incarnation)
        skips = row.spec.catch_up == "skip" and not row.spec.continuous
        queue_us = claim_us + round(late_s * 500_000) if skips else None
        wishes.append(Wish(claim, claim_us, failover=False, queue_us=queue_us))
    if look_us is not None:
        times.append(look_us)
    return Wanting(tuple(entries), tuple(wishes), min(times, default=None))


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


def _free(active: list[Run]) -> list[Run]:
    return [run for run in active if run.state in UNCLAIMED and run.cancelling is None]


def _wish(run: Run, me: Member, now_us: int) -> Wish:
    claim = Claim(
        at_us=now_us,
        task=run.task,
        fire_at_us=run.fire_at_us,
        member=me.id,
        incarnation=me.incarnation,
        run_id=run.run_id,
    )
    return Wish(claim, run.due_us or run.created_at_us, failover=run.state == "orphaned")


def _schedule(
    row: TaskRow, task: str, active: list[Run], now_us: int, lateness_us: int, *, room: bool, told: bool
) -> tuple[list[Entry], int | None, int | None]:
    """Return what the schedule requires: entries, the occurrence to claim, and when to decide again."""
    next_us = next_occurrence_us(row, row.through_us)
    if next_us is None:
        return [], None, None
    if next_us > now_us:
        return [], None, next_us
    spec = row.spec
    if spec.continuous:
        # A continuous task's occurrence is never skipped or missed: it is due until it is claimed.
        return [], (None if active else row.since_us), None
    due_us, following_us = _due(row, now_us)
    verdict = settle(
        spec.overlap,
        spec.catch_up,
        due_us,
        more=following_us is not None and following_us <= now_us,
        active=len(active),
        waiting=sum(run.state == "waiting" for run in active),
        late_us=0 if _makes_room(row, active, now_us - lateness_us) else now_us - lateness_us,
        lost=any(run.state == "orphaned" for run in active),
    )
    if verdict.claim is not None and not verdict.replace and not room:
        # The state may hold no more runs of this task, so the occurrence is skipped, as it is beside an active run.
        verdict = DuePlan(skipped=(verdict.claim,))
    return _entries(verdict, task, active, now_us, each=told), _claim_us(verdict, active), following_us


def _makes_room(row: TaskRow, active: list[Run], since_us: int) -> bool:
    """Whether an occurrence has had to wait for the end of the run that it replaces."""
    if row.spec.overlap != "replace":
        return False
    if active:
        return any(run.cancelling is not None for run in active)
    return row.last is not None and row.last.finished_at_us >= since_us  # because of the cancellation, or before it


def _due(row: TaskRow, now_us: int) -> tuple[list[int], int | None]:
    """Return the due occurrences, `WINDOW` at most, and the next one after them.

    No further ones are computed, because computing the times of a cron line takes processor time.
    """
    due_us: list[int] = []
    for fire_at_us in occurrences(row.spec.schedule, row.since_us, row.through_us):
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
