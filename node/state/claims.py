"""The claim: the one entry that gives an attempt to a member (docs/explanation/leases-and-claims.md).

Ownership is not checked. Two members that disagree for a moment propose two claims, and the second one is refused.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from node.state.blackout import blackout_of
from node.state.blackouts import is_exempt
from node.state.bounds import PARAMS_BYTES_MAX, RUNS_BYTES_MAX, no_room, params_bytes
from node.state.copying import replace
from node.state.draft import ATTEMPTS_KEPT, Draft, refused
from node.state.entries import Entry, applies
from node.state.occurrences import due_fault, occurrence
from node.state.pacing import note_start, pace_shortage
from node.state.pools import pool_shortage
from node.state.registry import no_such_task
from node.state.run_times import due_us
from node.state.times import rfc3339
from node.state.value import Attempt, Result, Run, TaskRow
from tasks.definition.policy import room_for_another
from tasks.definition.pools import pool_needs
from tasks.definition.run import HELD
from tasks.definition.template import template_of


@dataclass(frozen=True, slots=True)
class Claim(Entry):
    """Give an attempt to a member: of a new occurrence, or of a waiting or orphaned run.

    Accepted only if the member is up in that incarnation, the occurrence has not been claimed before, overlap allows
    it, the pools that it uses have enough left, and its rate lets a run start at the time of the entry.
    Result: `{"run_id", "token", "attempt"}`; with a `fault`: `{"run_id", "state"}`.
    """

    #: The task's name.
    task: str
    #: The time of a scheduled occurrence, in microseconds since the epoch. Ignored if `run_id` names a run.
    fire_at_us: int
    #: The member that gets the attempt.
    member: str
    #: The member's incarnation.
    incarnation: int
    #: The waiting or orphaned run; None: a scheduled occurrence that is not a run yet.
    run_id: str | None = None
    #: The params of the occurrence, at the first claim of a run whose task has a template; None: they are made already.
    params: dict[str, Any] | None = None
    #: Why the params cannot be made, so that the run ends as failed; None: they can.
    fault: str | None = None
    #: The version of the definition by which the params of a new occurrence were made; 0: of a run, which has its own.
    version: int = 0


@applies(Claim, code=15)
def claim(draft: Draft, entry: Claim) -> Result:
    """Give a new occurrence, or a run without a holder, to a member. Result: `{"run_id", "token", "attempt"}`."""
    if (refusal := _not_fit(draft, entry)) is not None:
        return refusal
    row = draft.tasks.get(entry.task)
    if row is None:
        return no_such_task(entry.task)
    run = to_begin(draft, row, entry.member, entry.run_id, entry.fire_at_us, entry.at_us)
    if isinstance(run, Result):
        return run
    if draft.blackouts and not is_exempt(run):
        blackout = blackout_of(draft.blackouts, row.spec_packed, entry.at_us)
        if blackout is not None:
            return refused(
                "blackout", f"the blackout {blackout.name} holds {entry.task} until {rfc3339(blackout.until_us)}"
            )
    if run.params is None and template_of(run.spec_packed) is not None:
        if made_by_another(row, entry):
            return refused("stale", f"{entry.task} is in version {row.version}, and its params are of another one")
        if entry.fault is not None:
            draft.end(run, "failed", entry.at_us, entry.fault)
            return Result("ok", {"run_id": run.run_id, "state": "failed"})
        run = _with_params(draft, run, entry.params)
        if isinstance(run, Result):
            return run
    needs = None if run.action else pool_needs(run.spec_packed)
    if needs is not None and (why := pool_shortage(draft.pools, needs, run.backfill)) is not None:
        return refused("pool", why)
    if needs is not None and needs.pace is not None:
        if (why := pace_shortage(draft.pools, needs.pace, entry.at_us)) is not None:
            return refused("rate", why)
        note_start(draft, needs.pace, entry.at_us)
    return _give(draft, run, entry)


def _not_fit(draft: Draft, entry: Claim) -> Result | None:
    """Return the refusal if the member may not claim anything, else None."""
    member = draft.members.get(entry.member)
    if member is None:
        return refused("no-such-member", f"there is no member {entry.member!r}")
    if member.incarnation != entry.incarnation:
        return refused("incarnation", f"{member.id} is in incarnation {member.incarnation}, not {entry.incarnation}")
    if member.status != "up":
        return refused("not-up", f"{member.id} is {member.status}")
    return None


def to_begin(draft: Draft, row: TaskRow, member: str, run_id: str | None, fire_at_us: int, at_us: int) -> Run | Result:
    """Return the run that `member` may begin: the waiting or orphaned run `run_id`, or a new occurrence.

    Or the refusal. All occurrences up to the new one then count as decided.
    """
    return _due(draft, row, fire_at_us, at_us) if run_id is None else _unheld(draft, row, member, run_id, at_us)


def _due(draft: Draft, row: TaskRow, fire_at_us: int, at_us: int) -> Run | Result:
    spec, task = row.spec, row.placing.name
    if fire_at_us <= row.through_us:
        return refused("occurrence-taken", "this occurrence, or a later one, has been claimed or passed over")
    if (refusal := due_fault(row, spec, (fire_at_us,), at_us)) is not None:
        return refusal
    if spec.continuous and fire_at_us != row.since_us:
        return refused("not-due", f"the next occurrence of {task} is that of {row.since_us}")
    others = draft.overlapping(task)
    # A continuous task is due once its run has ended, not beside it; and waiting runs go before new ones.
    if others and (spec.continuous or spec.overlap != "allow"):
        return refused("overlap", f"{others[0].run_id} is active")
    if (held := held_by_backfill(row, draft.active(task))) is not None:
        return refused("overlap", f"{held.run_id} of a backfill is active")
    if others and (why := no_room(draft, row, draft.active(task))) is not None:
        return refused("full", why)
    run = occurrence(draft, row, fire_at_us, at_us)
    draft.put_task(replace(row, through_us=run.fire_at_us, series=None))
    return run


def _unheld(draft: Draft, row: TaskRow, member: str, run_id: str, at_us: int) -> Run | Result:
    """Return the waiting or orphaned run, or the refusal if it is not due or overlap forbids it."""
    task, run = row.placing.name, draft.runs.get(run_id)
    if run is None or run.task != task:
        return refused("no-such-run", f"no run {run_id!r} of {task} is active: it has ended, or never was")
    if run.state in HELD:
        return refused("held", f"{run.node} holds {run_id}")
    if run.member not in ("", member):
        return refused("held", f"{run_id} is for {run.member} alone, and waits for it")
    if (due := due_us(run, at_us)) > at_us:
        return refused("not-due", f"{run_id} is not due before {due}")
    if run.action:
        return run
    # Orphaned runs do not block one another from being claimed; they do block new ones.
    blocking = HELD if run.state == "orphaned" else HELD | {"orphaned"}
    active = draft.active(task)
    live = [one for one in active if not (one.action or one.backfill) and one.member == run.member]
    others = len(live) if run.backfill else sum(one.state in blocking for one in live if one.run_id != run_id)
    if not room_for_another(row.spec.overlap, others):
        return refused("overlap", f"another run of {task} is active")
    if (held := held_by_backfill(row, active)) is not None:
        return refused("overlap", f"{held.run_id} of a backfill is active")
    return run


def held_by_backfill(row: TaskRow, active: Iterable[Run]) -> Run | None:
    """Return the run of a backfill beside which no other run of the task may begin; None: there is none.

    Such runs count for `overlap` only while a member holds them: they neither queue, skip nor replace others.
    """
    held = (run for run in active if run.backfill and run.state in HELD and not run.action)
    return next(held, None) if row.spec.overlap != "allow" else None


def made_by_another(row: TaskRow, entry: Claim) -> bool:
    """Whether the params of a new occurrence were made by another version of the definition than the present one."""
    return entry.run_id is None and entry.version != row.version


def _with_params(draft: Draft, run: Run, params: dict[str, Any] | None) -> Run | Result:
    """Return the run with its own params, which it keeps from its first claim on; or the refusal."""
    if params is None:
        return refused("stale", f"the params of {run.run_id} depend on its occurrence, and this claim has none")
    size = params_bytes(params)
    if size > PARAMS_BYTES_MAX:
        return refused("too-large", f"the params of a run hold {PARAMS_BYTES_MAX} bytes at most, not {size}")
    if draft.runs_bytes + size > RUNS_BYTES_MAX:
        return refused("full", "the active runs of all tasks leave no room for the params of this one")
    return replace(run, params=params, params_bytes=size, fields=None)


def _give(draft: Draft, run: Run, entry: Claim) -> Result:
    draft.token += 1
    number = run.attempts[-1].attempt + 1 if run.attempts else 1
    attempt = Attempt(
        attempt=number,
        node=entry.member,
        incarnation=entry.incarnation,
        token=draft.token,
        state="claimed",
        claimed_at_us=entry.at_us,
    )
    draft.put_run(
        replace(
            run,
            state="claimed",
            node=entry.member,
            incarnation=entry.incarnation,
            token=draft.token,
            attempts=(*run.attempts, attempt)[-ATTEMPTS_KEPT:],
            offered="",
            offered_us=0,
        )
    )
    _make_incumbent(draft, draft.tasks[run.task], entry.member)
    return Result("ok", {"run_id": run.run_id, "token": draft.token, "attempt": number})


def _make_incumbent(draft: Draft, row: TaskRow, member: str) -> None:
    """Keep a sticky task on the member that claimed last."""
    if row.placing.incumbent != member and row.spec.sticky:
        draft.put_task(replace(row, placing=row.placing._replace(incumbent=member)))
        draft.placing_changed = True
