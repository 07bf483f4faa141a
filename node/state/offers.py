"""Entries by which work goes to a member that has room for it: what its places are, and what it is offered.

An offer gives nothing: the member that it is made to claims the run, as any claim is made. So the worst that a wrong or
late offer does is that a run begins a little later.
"""

from dataclasses import dataclass
from typing import Final

from node.state.claims import to_begin
from node.state.copying import replace
from node.state.draft import DONE, Draft, refused
from node.state.entries import Entry, applies
from node.state.places import Places
from node.state.registry import no_such_task
from node.state.value import Result, TaskRow

RULES_OFFERS: Final = 10
"""From these rules on (`Lead.rules`), members tell their places and offer work to one another."""

RUNS_MAX: Final = 10_000
_PAIRS_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class TellPlaces(Entry):
    """A member tells how many attempts it runs at once, in its present incarnation."""

    member: str
    incarnation: int
    places: Places


@applies(TellPlaces, code=44)
def tell_places(draft: Draft, entry: TellPlaces) -> Result:
    """Note the places of a member. Refused if it is in another incarnation."""
    member = draft.members.get(entry.member)
    if draft.lead.rules < RULES_OFFERS:
        return refused("invalid", "places are told once the leader is of this version")
    if member is None:
        return refused("no-such-member", f"there is no member {entry.member!r}")
    if entry.incarnation != member.incarnation:
        return refused("incarnation", f"{member.id} is in incarnation {member.incarnation}, not {entry.incarnation}")
    told = entry.places
    if not 0 <= told.runs <= RUNS_MAX or max(len(told.bounds), len(told.most)) > _PAIRS_MAX:
        return refused("invalid", f"a member runs up to {RUNS_MAX} attempts, of up to {_PAIRS_MAX} kinds with a bound")
    draft.put_member(replace(member, places=told))
    return DONE


def may_be_offered(row: TaskRow) -> bool:
    """Whether runs of a task may begin on a member that does not own it."""
    spec = row.spec
    return not (spec.pin is not None or spec.key is not None or spec.sticky or spec.continuous or spec.each)


@dataclass(frozen=True, slots=True)
class Offer(Entry):
    """Offer a due occurrence, or a waiting run, to a member that has room for it. The run waits for its claim."""

    #: The task's name.
    task: str
    #: The time of a scheduled occurrence, in microseconds since the epoch. Ignored if `run_id` names a run.
    fire_at_us: int
    #: The member that is to begin it.
    member: str
    #: The waiting run; None: a scheduled occurrence that is not a run yet.
    run_id: str | None = None


@applies(Offer, code=43)
def offer(draft: Draft, entry: Offer) -> Result:
    """Offer a run to a member. Result: `{"run_id"}`."""
    member = draft.members.get(entry.member)
    if member is None or member.status != "up" or not member.places.runs:
        return refused("not-up", f"{entry.member!r} is no member that is up and has told its places")
    row = draft.tasks.get(entry.task)
    if row is None:
        return no_such_task(entry.task)
    if not may_be_offered(row):
        return refused("kept", f"{entry.task} is kept on one member, by its pin, key or sticky, or is continuous")
    run = to_begin(draft, row, entry.member, entry.run_id, entry.fire_at_us, entry.at_us)
    if isinstance(run, Result):
        return run
    if run.state != "waiting" or run.cancelling is not None or run.backfill:
        return refused("not-due", f"{run.run_id} is {run.state}: only what waits, and is of no backfill, is offered")
    draft.put_run(replace(run, offered=entry.member, offered_us=entry.at_us))
    return Result("ok", {"run_id": run.run_id})
