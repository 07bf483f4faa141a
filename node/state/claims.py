"""The claim: the one entry that gives an attempt to a member (docs/explanation/leases-and-claims.md).

Ownership is not checked. Two members that disagree for a moment propose two claims, and the second one is refused.
"""

from dataclasses import dataclass

from node.state.bounds import no_room
from node.state.copying import replace
from node.state.draft import ATTEMPTS_KEPT, Draft, refused
from node.state.entries import Entry, applies
from node.state.occurrences import due_fault, occurrence
from node.state.registry import no_such_task
from node.state.run_times import due_us
from node.state.value import Attempt, Result, Run, TaskRow
from tasks.definition.policy import room_for_another
from tasks.definition.run import HELD


@dataclass(frozen=True, slots=True)
class Claim(Entry):
    """Give an attempt to a member: of a new occurrence, or of a waiting or orphaned run.

    Accepted only if the member is up in that incarnation, the occurrence has not been claimed before, and overlap
    allows it. Result: `{"run_id", "token", "attempt"}`.
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


@applies(Claim, code=15)
def claim(draft: Draft, entry: Claim) -> Result:
    """Give a new occurrence, or a run without a holder, to a member. Result: `{"run_id", "token", "attempt"}`."""
    if (refusal := _not_fit(draft, entry)) is not None:
        return refusal
    row = draft.tasks.get(entry.task)
    if row is None:
        return no_such_task(entry.task)
    run = _due(draft, row, entry) if entry.run_id is None else _unheld(draft, row, entry, entry.run_id)
    if isinstance(run, Result):
        return run
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


def _due(draft: Draft, row: TaskRow, entry: Claim) -> Run | Result:
    """Return a run for the scheduled occurrence, with all occurrences up to it counted as decided; or the refusal."""
    spec = row.spec
    if entry.fire_at_us <= row.through_us:
        return refused("occurrence-taken", "this occurrence, or a later one, has been claimed or passed over")
    if (refusal := due_fault(row, spec, (entry.fire_at_us,), entry.at_us)) is not None:
        return refusal
    if spec.continuous and entry.fire_at_us != row.since_us:
        return refused("not-due", f"the next occurrence of {entry.task} is that of {row.since_us}")
    others = draft.overlapping(entry.task)
    # A continuous task is due once its run has ended, not beside it; and waiting runs go before new ones.
    if others and (spec.continuous or spec.overlap != "allow"):
        return refused("overlap", f"{others[0].run_id} is active")
    if others and (why := no_room(draft, row, draft.active(entry.task))) is not None:
        return refused("full", why)
    run = occurrence(draft, row, entry.fire_at_us, entry.at_us)
    draft.put_task(replace(row, through_us=run.fire_at_us, series=None))
    return run


def _unheld(draft: Draft, row: TaskRow, entry: Claim, run_id: str) -> Run | Result:
    """Return the waiting or orphaned run, or the refusal if it is not due or overlap forbids it."""
    run = draft.runs.get(run_id)
    if run is None or run.task != entry.task:
        return refused("no-such-run", f"no run {run_id!r} of {entry.task} is active: it has ended, or never was")
    if run.state in HELD:
        return refused("held", f"{run.node} holds {run_id}")
    if (due := due_us(run, entry.at_us)) > entry.at_us:
        return refused("not-due", f"{run_id} is not due before {due}")
    if run.action:
        return run
    # Orphaned runs do not block one another from being claimed; they do block new ones.
    blocking = HELD if run.state == "orphaned" else HELD | {"orphaned"}
    others = sum(other.state in blocking for other in draft.overlapping(run.task) if other.run_id != run_id)
    if not room_for_another(row.spec.overlap, others):
        return refused("overlap", f"another run of {entry.task} is active")
    return run


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
        )
    )
    _make_incumbent(draft, draft.tasks[run.task], entry.member)
    return Result("ok", {"run_id": run.run_id, "token": draft.token, "attempt": number})


def _make_incumbent(draft: Draft, row: TaskRow, member: str) -> None:
    """Keep a sticky task on the member that claimed last."""
    if row.placing.incumbent != member and row.spec.sticky:
        draft.put_task(replace(row, placing=row.placing._replace(incumbent=member)))
        draft.placing_changed = True
