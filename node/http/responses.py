"""What is answered: the shapes that /openapi.json describes. `views` makes them out of the state."""

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypedDict

from hashing.preference import Verdict
from tasks.run import RunState

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"}, description="RFC 3339, UTC")]
Cursor = Annotated[str | None, Field(description="Give it as `after` for the next ones; null: these are the last")]


class FieldProblem(TypedDict):
    """One field that is not right."""

    field: str
    message: str


class ProblemDocument(TypedDict, total=False):
    """RFC 9457: what went wrong, and what to do about it."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldProblem]


class HealthView(TypedDict):
    """The process serves."""

    status: Literal["ok"]


class ReadyView(TypedDict):
    """The member has caught up, and has a leader and a lease."""

    status: Literal["ready"]
    leader: str


class SettingsView(TypedDict):
    """The cluster's settings. `balance_slack` null: room is off."""

    balance_slack: float | None
    lease_s: float
    window_s: float
    margin_s: float
    refusal_is_death: bool
    history_days: int


class MemberView(TypedDict):
    """A member. `reason` says why it is down, `aside` why it takes on nothing new, by its own word. `load` is the
    weight it is given, `running` its attempts.
    """

    id: str
    slot: int
    status: Literal["up", "down", "draining"]
    reason: Literal["silent", "gone", "stopped", "new"] | None
    aside: str | None
    incarnation: int
    labels: dict[str, str]
    capacity: int
    kinds: list[str]
    url: str
    since: Time | None
    load: int
    running: int


class MemberPage(TypedDict):
    """Members, by slot."""

    items: list[MemberView]
    next: Cursor


class ClusterView(TypedDict):
    """The cluster as `node` sees it. `quorum` false: what is told may be old, and nothing can be changed.

    `waiting_for`: what the node waits for while it is of no cluster (`id` is empty then); null once it is of one.
    """

    id: str
    node: str
    leader: str | None
    term: int
    index: int
    epoch: int
    quorum: bool
    waiting_for: str | None
    settings: SettingsView
    members: list[MemberView]


class FoundingView(TypedDict):
    """A cluster is to be founded without some members; `waiting_for` says what is still lacking."""

    without: list[str]
    waiting_for: str | None


class KindView(TypedDict):
    """A kind of task: who offers it, and the JSON schema of its params (null: who knows it does not answer)."""

    kind: str
    members: list[str]
    params: dict[str, Any] | None


class KindPage(TypedDict):
    """Kinds, by name."""

    items: list[KindView]
    next: Cursor


class LastView(TypedDict):
    """How a task's last run ended."""

    run_id: str
    state: RunState
    fire_at: Time
    finished_at: Time
    error: str | None


class RegisteredView(TypedDict):
    """A task as it is registered: its definition, complete, and what became of it so far."""

    name: str
    kind: str
    params: dict[str, Any]
    schedule: dict[str, Any] | None
    key: str | None
    group: dict[str, str]
    pin: str | None
    sticky: bool
    weight: int
    standbys: int
    overlap: str
    catch_up: str
    timeout_s: float | None
    retry: dict[str, Any]
    failover: dict[str, Any]
    enabled: bool
    version: int
    paused: bool
    registered_at: Time
    next_fire_at: Time | None
    skipped: int
    missed: int
    last: LastView | None


class TaskView(RegisteredView):
    """A task, and who owns it."""

    owner: str | None


class ChangedTaskView(RegisteredView):
    """A task that has just been registered or changed. `warnings`: why no member can run it as things are, and what
    the node that answers would refuse to open for it.
    """

    warnings: list[str]


class TaskPage(TypedDict):
    """Tasks, by name."""

    items: list[TaskView]
    next: Cursor


class FieldChangeView(TypedDict):
    """A field of a definition, as a dotted name, and its values; null: it is not given."""

    field: str
    before: Any
    after: Any


class PutView(TypedDict):
    """What became of one task of a list (or would, in a dry run), and its version after that.

    `changes`: the fields that differ from the definition before, in a dry run only. `warnings` as in
    `ChangedTaskView`.
    """

    name: str
    version: int
    change: Literal["created", "changed", "unchanged"]
    changes: list[FieldChangeView]
    warnings: list[str]


class PutPage(TypedDict):
    """What became of a list of tasks, in its order."""

    items: list[PutView]
    next: Cursor


class RunningOn(TypedDict):
    """A member that holds a run of the task."""

    node: str
    run_id: str


class Because(TypedDict):
    """One step of the way to the owner; node null: the slot is vacant."""

    node: str | None
    verdict: Verdict


class StandingView(TypedDict):
    """Something that is to be said of how a task stands.

    `code` is one of no_owner, paused, disabled, running, backing_off, behind (another run of it), due (and not begun),
    not_due, by_hand, over (no times to come), unreadable (its schedule, on this member) and more (runs than are told).
    """

    code: str
    detail: str
    until: Time | None
    run_id: str | None


class OwnerView(TypedDict):
    """Who owns a task, and why. `waiting` is a sentence where something is due and has not begun."""

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
"""A task that would go elsewhere."""


class LoadView(TypedDict):
    """The weight that a member is given, now and then."""

    now: int
    then: int


class PlanView(TypedDict):
    """What would move, were some members down."""

    moves: list[MoveView]
    load: dict[str, LoadView]


class ProgressView(TypedDict):
    """How far an attempt is."""

    done: float
    total: float | None
    unit: str


class AttemptView(TypedDict):
    """One try at a run. `log_truncated`: its log reached ROTA_LOG_BYTES, or could not be written to its end."""

    attempt: int
    node: str
    token: int
    state: RunState
    started_at: Time | None
    finished_at: Time | None
    error: str | None
    log_truncated: bool


class RunView(TypedDict):
    """A run. `attempt`, `token`, `node`, `claimed_at` and `started_at` are those of the present or latest attempt.

    What is skipped or missed one after another for one reason is told as one, of `count` occurrences from `fire_at` to
    `last_fire_at`; `blocked_by` is the run that was active meanwhile. Of any other run, `count` is 1.

    `progress` and `frozen_since` are asked of the member that runs it, and null where that does not answer. A run is
    frozen while its member has no lease: it goes on when the lease is back, or is taken over by another member.
    """

    run_id: str
    task: str
    kind: str
    trigger: Literal["schedule", "manual"]
    fire_at: Time
    attempt: int | None
    token: int | None
    node: str | None
    state: RunState
    claimed_at: Time | None
    started_at: Time | None
    finished_at: Time | None
    progress: ProgressView | None
    frozen_since: Time | None
    checkpoint: Any
    result: dict[str, Any] | None
    error: str | None
    attempts: list[AttemptView]
    cancelling: str | None
    count: int
    last_fire_at: Time
    blocked_by: str | None


class RunPage(TypedDict):
    """Runs, newest first."""

    items: list[RunView]
    next: Cursor


class StartedView(TypedDict):
    """The run that was made; it waits for the task's owner to claim it."""

    run_id: str
