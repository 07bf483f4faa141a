"""Finds why a due task does not begin, as only its owner knows: no lease, no room, a missing secret and so on. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from node.duty.room import NO_TERMS, KindTerms
from node.duty.step import Held, WaitsForRoom

RUNS_MAX: Final = 20
"""The most runs that are named of those that occupy the member's places."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Why the owner of a task has not begun its due run: a code, a sentence, and the runs that occupy the places.

    `code` is one of stopping, no_lease, aside, unreadable, undecided, bound, max_runs and secret.
    """

    code: str
    detail: str
    runs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OwnerSelf:
    """The facts about itself that the owner of a task knows, and other members do not."""

    #: The owner's id.
    member: str
    #: Whether it holds a lease.
    lease: bool
    #: How many attempts it runs at once, at most.
    max_runs: int
    #: Whether it is stopping.
    stopping: bool = False
    #: Why it takes on no new work; "": it takes on work.
    aside: str = ""
    #: Why the task's schedule cannot be computed there; "": it can be.
    unreadable: str = ""
    #: Whether the last decision on the task failed, which is a bug in Rota.
    undecided: bool = False
    #: The run or occurrence of the task that waits for room there; None: it does not wait for room.
    waits: WaitsForRoom | None = None
    #: The bounds of kinds that are used up.
    full: frozenset[str] = frozenset()
    #: The owner's terms of each kind; None: not given.
    terms: Mapping[str, KindTerms] | None = None
    #: The attempts that occupy the places; None: not given.
    attempts: Held | None = None
    #: Why it lacks secrets: a sentence for each one that the task names and the member lacks.
    lacking: Sequence[str] = ()


def hold_of(owner: OwnerSelf) -> Hold | None:
    """Return the first obstacle of a due task; None: there is no obstacle, and the owner is about to claim the task."""
    member = owner.member
    if owner.stopping:
        return Hold("stopping", f"{member} is stopping, and begins nothing new")
    if not owner.lease:
        return Hold("no_lease", f"{member} has no lease, and begins nothing without one")
    if owner.aside:
        return Hold("aside", f"{member} takes on nothing new: {owner.aside}")
    if owner.unreadable:
        return Hold("unreadable", f"{member} cannot evaluate its schedule: {owner.unreadable}")
    if owner.undecided:
        return Hold("undecided", f"{member} cannot decide on it, which is a bug in Rota: its log says more")
    if owner.waits is not None:
        return _room(owner, owner.waits)
    if owner.lacking:
        return Hold("secret", f"{member} lacks secrets that the task names: {'; '.join(owner.lacking)}")
    return None


def _room(owner: OwnerSelf, waits: WaitsForRoom) -> Hold:
    attempts, terms = owner.attempts or {}, owner.terms or {}
    if waits.bound and waits.bound in owner.full:
        most = next(each.most for each in terms.values() if each.bound == waits.bound)
        taken = (run_id for run_id, one in attempts.items() if terms.get(one.kind, NO_TERMS).bound == waits.bound)
        text = f"{owner.member} has room for {_attempts(most)} of such kinds at once ({waits.bound})"
        return Hold("bound", text, _named(taken))
    if waits.backfill and len(attempts) < owner.max_runs:
        half = _attempts((owner.max_runs + 1) // 2)
        return Hold("max_runs", f"{owner.member} runs {half} of backfills already (half of ROTA_MAX_RUNS)")
    text = f"{owner.member} runs {_attempts(owner.max_runs)} already (ROTA_MAX_RUNS)"
    return Hold("max_runs", text, _named(attempts))


def _attempts(count: int) -> str:
    return "1 attempt" if count == 1 else f"{count} attempts"


def _named(run_ids: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(run_ids)[:RUNS_MAX])
