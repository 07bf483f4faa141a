"""Who owns a task and why, and what would move if members were down."""

from typing_extensions import TypedDict

from hashing.preference import Verdict
from node.http.responses.common import Time


class RunningOn(TypedDict):
    """A member that holds a run of the task; for `bootstrap/MEMBER`, which has no runs, `run_id` is the task itself."""

    node: str
    run_id: str


class Because(TypedDict):
    """One step of the search for the owner: a member and why it was passed over or chosen; node null: a vacant slot."""

    node: str | None
    verdict: Verdict


class StandingView(TypedDict):
    """One statement about a task's status.

    `code` is one of no_owner, paused, disabled, running, backing_off, behind (waits for another run), due (and not
    begun), not_due, by_hand, over (the schedule has no further times), unreadable (this member cannot evaluate the
    schedule) and more (further active runs, not listed).
    """

    code: str
    detail: str
    until: Time | None
    run_id: str | None


class OwnerView(TypedDict):
    """Who owns a task, and why. `waiting` is a sentence if something is due and has not begun."""

    task: str
    owner: str | None
    running_on: list[RunningOn]
    preference: list[str]
    standbys: list[str]
    epoch: int
    index: int
    because: list[Because]
    next_fire_at: Time | None
    waiting: str | None
    standing: list[StandingView]


MoveView = TypedDict("MoveView", {"task": str, "from": str | None, "to": str | None})
"""A task that would change its owner."""


class LoadView(TypedDict):
    """A member's load now, and with the supposed placement."""

    now: int
    then: int


class PlanView(TypedDict):
    """What would move if some members were down."""

    moves: list[MoveView]
    load: dict[str, LoadView]
