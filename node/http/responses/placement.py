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


class MajorityView(TypedDict):
    """How many of `members` can vote now and then; `left`: those then are `needed` or more, so that work goes on."""

    members: int
    needed: int
    now: int
    then: int
    left: bool


class UnownedView(TypedDict):
    """A task that nobody could run: a code and a sentence, as `GET /v1/tasks/{name}/why` says them.

    `now`: nobody can run it now either.
    """

    task: str
    code: str
    detail: str
    now: bool


InterruptedView = TypedDict("InterruptedView", {"run_id": str, "task": str, "from": str, "to": str | None})
"""A run that its member would lose, and the member that would go on with it; `to` null: nobody could."""


class MovesView(TypedDict):
    """The tasks that would change their owner: how many, and the first of them. `GET /v1/plan` has all."""

    count: int
    items: list[MoveView]


class UnownedPageView(TypedDict):
    """The tasks that nobody could run: how many, and the first of them. What somebody can run now is before others."""

    count: int
    items: list[UnownedView]


class InterruptedPageView(TypedDict):
    """The runs that would be lost and go on elsewhere: how many, and the first of them."""

    count: int
    items: list[InterruptedView]


class MemberAheadView(TypedDict):
    """How much a member begins in all and in each step, and how much of that another member has now."""

    count: int
    starts: list[int]
    moved: list[int]


PlannedView = TypedDict(
    "PlannedView", {"at": Time, "task": str, "node": str | None, "from": str | None, "took_s": float | None}
)
"""An occurrence ahead: the member that begins it (null: nobody may), the one that would at present, and how long the
task's last run took (null: not known)."""


class AheadView(TypedDict):
    """What is due between two times, by schedules alone: policies such as `overlap` are applied when it is due.

    `members` has each member with what it begins in steps of `step_s`; `unowned` is what nobody may begin. `items`
    names occurrences in their order, those of members that have few; `unlisted` are counted only. `cut` tasks are due
    more often than is counted.
    """

    begins: Time
    ends: Time
    step_s: float
    members: dict[str, MemberAheadView]
    unowned: MemberAheadView | None
    items: list[PlannedView]
    unlisted: int
    cut: int


class WhatIfView(TypedDict):
    """What would be if the members `without` were down, and those of `back` were up."""

    without: list[str]
    back: list[str]
    index: int
    epoch: int
    majority: MajorityView
    moves: MovesView
    unowned: UnownedPageView
    interrupted: InterruptedPageView
    load: dict[str, LoadView]
    ahead: AheadView
