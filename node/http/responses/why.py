"""Why a task does not run."""

from typing_extensions import TypedDict

from node.duty.why_values import Place
from node.http.responses.common import Time
from node.http.responses.tasks import LateView


class WhyStepView(TypedDict):
    """A step of the walk: where it was, what it found, and whether the walk ended there."""

    place: Place
    found: str
    ends: bool


class WhyView(TypedDict):
    """What holds a task, or where it runs: in one `sentence`, and as data.

    `code` is running, or what holds it: no_quorum, disabled, paused, unreadable (its schedule cannot be evaluated),
    over (no further times), no_label, no_kind, members_down, members_draining, no_owner, by_hand, not_due, behind
    (another run, see `runs`), backing_off, owner_away, stopping, no_lease, aside, undecided, bound or max_runs (no
    place on its owner; `runs` have them), waits (the same, of an owner of an earlier version), secret (missing on its
    owner) or due (and about to be claimed). `until` is when that ends, if that is known; `run_id` the run that is held;
    `member` the one that holds or runs it. `detail` is what was found, `remedy` what to do. `late` are the
    task's deadlines that are breached.
    """

    task: str
    code: str
    sentence: str
    detail: str
    remedy: str
    until: Time | None
    run_id: str | None
    member: str | None
    runs: list[str]
    late: list[LateView]
    steps: list[WhyStepView]
