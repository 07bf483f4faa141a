"""The replicated state, as a value.

Every member holds the same `State` after the same entries. It is immutable: `apply` returns a new one, so any thread
may keep and read the one it has. Times (`*_us`) are microseconds since the Unix epoch, UTC, stamped by the proposer of
the entry.
"""

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from immutables import Map

from hashing.view import Slot, Task
from node.state.outbox import Channels
from node.state.watchdog import Watchdog
from tasks.deadlines import DeadlineName
from tasks.run import RunState
from tasks.spec import Spec, TaskTiming, timing, unpack

MemberStatus = Literal["up", "down", "draining"]
DownReason = Literal["silent", "gone", "stopped", "new"]
"""Why a member is down. `new`: it was added, and has not joined yet."""

COUNTED: Final[tuple[RunState, ...]] = ("succeeded", "failed", "cancelled", "timed_out", "abandoned")
"""The final states of runs, in the order of their counters."""

Trigger = Literal["schedule", "manual"]
PassedOver = Literal["skipped", "missed"]

RULES: Final = 4
"""The rules by which this version applies entries (`Lead.rules`). Since 1: occurrences that are passed over for one
reason form a series; the size of the state is bounded (`node.state.bounds`); final states of runs are counted
(`COUNTED`). Since 2: deadlines are judged (`node.state.deadlines`), and facts are noted for channels
(`node.state.facts`). Since 3: a breach that ends without being met is a fact too, the runs of a deleted task are not
held against one that is registered under its name, and an old notice is tried several times before it is given up.
Since 4: how long a run took counts from its first claim (`node.state.took`), and no occurrence is late that is one of
a schedule that was changed or resumed since."""
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Settings:
    """The cluster's settings. `balance_slack_milli` is `balance_slack` in thousandths; None turns balancing off."""

    balance_slack_milli: int | None = 0
    lease_s: float = 2.0
    window_s: float = 1.0
    margin_s: float = 0.5
    refusal_is_death: bool = True
    history_days: int = 30
    watchdog: Watchdog | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """A node of the cluster. `incarnation` is 0 until it joins for the first time; then it counts joins.

    `heartbeat_port` is where it listens for heartbeats, on `host`. `since_us` is when its status or incarnation last
    changed. `drained`: a client has drained it. That survives a restart: a member that joins again stays `draining`
    until it is undrained. `leaving`: it is removed as soon as it is down. `aside`: the reason that the member itself
    gives for taking on nothing new, for which it is `draining`; "" for none.
    """

    id: str
    slot: int
    host: str
    raft_port: int
    http_port: int
    status: MemberStatus = "down"
    reason: DownReason | None = "new"
    incarnation: int = 0
    heartbeat_port: int = 0
    labels: Labels = ()
    capacity: int = 1
    kinds: frozenset[str] = frozenset()
    since_us: int = 0
    drained: bool = False
    leaving: bool = False
    aside: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a task's last ended run, kept after the run has left the state.

    `took_us` is how long it took, from its first claim to its end; None if no member claimed it, or if an earlier
    version wrote this.
    """

    run_id: str
    state: RunState
    fire_at_us: int
    finished_at_us: int
    error: str | None = None
    took_us: int | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """Consecutive occurrences of a task that were passed over for one reason: one record with a count.

    `fire_at_us` is the first, `last_fire_at_us` the last, `created_at_us` when the first was passed over. `blocked_by`
    is the run that blocked them; "" for missed ones.
    """

    state: PassedOver
    created_at_us: int
    fire_at_us: int
    last_fire_at_us: int
    count: int
    blocked_by: str = ""


@dataclass(frozen=True, slots=True)
class Breach:
    """A deadline of a task that is breached, since `since_us`.

    `due_us` is when the oldest occurrence was due that has not begun, or succeeded, in time; for `success_every` the
    time that is counted from (`node.state.deadlines`). `undecided`: no run stood for that occurrence then.
    """

    deadline: DeadlineName
    due_us: int
    since_us: int
    undecided: bool = False


DeadlineChange = Literal["breached", "met", "dropped"]
"""What became of a deadline. `dropped`: what was late was skipped, missed or cancelled; or it is not judged any more,
or anew, since the task was paused, deleted or changed."""


@dataclass(frozen=True, slots=True)
class DeadlineEvent:
    """A deadline was breached at `at_us`, or is not any more. Emitted by `apply` once for each; not in the state."""

    task: str
    breach: Breach
    change: DeadlineChange
    at_us: int


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A registered task.

    `spec_packed` is `Spec.pack()`; `placing` is the part of it that placement needs; `order` is the number of the
    registration and never changes. `since_us` is the time that the schedule counts from: the registration, the last
    change or the resumption (for a continuous task also the end of its last run). `through_us` is the last occurrence
    that was decided: claimed, queued, skipped or missed. Those due after it, and after `since_us`, are undecided. It
    never goes back, so that an occurrence is claimed once. A continuous task's only occurrence is `since_us`; it is due
    while `through_us` is less. `skipped` and `missed` count such occurrences. `requests` holds the latest runs started
    by hand as (Idempotency-Key or "", run_id), oldest first, 200 at most. `series` is the latest series of occurrences
    that were passed over; the next one may extend it. `succeeded_at_us` is when a run last succeeded, `endings` how
    many runs have ended in each of `COUNTED`; empty while none has been counted. `failing`: of its runs that succeeded
    or failed for good, the last one failed. `judged_us` is since when its deadlines are judged; 0 while they are not.
    `unmet_us` is when the oldest of the runs was due that have failed for good; None once a run succeeds that was due
    no earlier, which makes up for all of them. `breaches` has one for each deadline that is breached.
    """

    spec_packed: bytes
    placing: Task
    order: int
    version: int
    registered_at_us: int
    since_us: int
    through_us: int
    paused: bool = False
    skipped: int = 0
    missed: int = 0
    last: Outcome | None = None
    requests: tuple[tuple[str, str], ...] = ()
    series: Series | None = None
    succeeded_at_us: int | None = None
    endings: tuple[int, ...] = ()
    failing: bool = False
    judged_us: int = 0
    unmet_us: int | None = None
    breaches: tuple[Breach, ...] = ()

    @property
    def spec(self) -> Spec:
        """The definition, unpacked; cached for recently used tasks."""
        return unpack(self.spec_packed)

    @property
    def timing(self) -> TaskTiming:
        """The part of the definition that says when it is due: cheap for any task."""
        return timing(self.spec_packed)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a run. `state` is `claimed` or `running` while it is held, then how it ended.

    `log_truncated`: its log is incomplete, because it reached its limit or could not be written.
    """

    attempt: int
    node: str
    incarnation: int
    token: int
    state: RunState
    claimed_at_us: int
    started_at_us: int | None = None
    finished_at_us: int | None = None
    error: str | None = None
    log_truncated: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """One occurrence of a task, while it is active (`tasks.run.ACTIVE`).

    `spec_packed` is the definition that it was made with: a later change or deletion of the task does not change it.
    `params`, if not None, replaces the spec's params (a run started by hand). `node`, `incarnation` and `token` are
    those of the attempt that holds it, if one does. `due_us` is the time before which a waiting or orphaned run may not
    be claimed; 0: at once, whatever the clocks read. `cancelling` is the reason of a cancellation, once requested.
    `failures` counts failed attempts, `orphanings` lost ones; the last of `attempts` is the present or latest attempt.
    `params_bytes` is the size of its `params`, packed. `aways` counts the latest attempts in a row that failed because
    something that they need does not answer; they are no `failures`. `action` is what a client asks the kind to do
    instead of the task's work, with `args`; "" for a run of the work. Actions block no run, and none blocks them.
    """

    run_id: str
    task: str
    trigger: Trigger
    fire_at_us: int
    spec_packed: bytes
    state: RunState
    created_at_us: int
    params: dict[str, Any] | None = None
    due_us: int = 0
    node: str | None = None
    incarnation: int = 0
    token: int = 0
    attempts: tuple[Attempt, ...] = ()
    failures: int = 0
    orphanings: int = 0
    checkpoint: bytes | None = None
    cancelling: str | None = None
    params_bytes: int = 0
    aways: int = 0
    action: str = ""
    args: dict[str, Any] | None = None

    @property
    def spec(self) -> Spec:
        """The definition that it was made with, unpacked."""
        return unpack(self.spec_packed)


@dataclass(frozen=True, slots=True)
class EndedRun:
    """An ended run, for the history. Emitted by `apply`; not part of the state.

    `series`: this record stands for occurrences that were passed over, of which `run` is the first. While the series
    grows, the record is emitted again with a greater count, and replaces the one before.
    """

    run: Run
    state: RunState
    finished_at_us: int
    result: dict[str, Any] | None = None
    error: str | None = None
    series: Series | None = None


@dataclass(frozen=True, slots=True)
class Lead:
    """The last applied `TakeLead`: the leader, and since which term. A `MarkDown` names its term.

    `rules` apply to the entries after it. A later version that applies the log of an earlier one must reach the same
    state as the earlier one's snapshot, so changed rules take effect from an entry on.
    """

    term: int = 0
    member: str = ""
    rules: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a proposal. `code` is "ok" or the reason of the refusal; `detail` explains it to people."""

    code: str
    value: dict[str, Any] = field(default_factory=dict)
    detail: str = ""

    @property
    def ok(self) -> bool:
        """Whether it was accepted."""
        return self.code == "ok"


@dataclass(frozen=True, slots=True)
class Window:
    """A proposer's session, and the results of its latest proposals by sequence number.

    Sequence numbers up to `floor` have been forgotten and are refused (Ongaro 2014, section 6.3). `weight` is the sum
    of the results' weights (`node.state.windows`).
    """

    session: int
    floor: int = 0
    results: Map[int, Result] = field(default_factory=Map)
    weight: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """The replicated state.

    `index` counts the applied proposals; `epoch` the changes of the inputs of placement; `token` is the last fencing
    token given; `orders` the last registration number. `slots[i]` is the id of the member in slot i; None: vacant.
    `endings` counts ended runs by final state, those of deleted tasks too, in the order of `COUNTED`. It is empty until
    a version that counts has taken the lead (`TakeLead.rules`): so all members start counting at the same entry,
    whichever version wrote the snapshot that each one started from.
    """

    cluster_id: str = ""
    index: int = 0
    epoch: int = 0
    token: int = 0
    orders: int = 0
    settings: Settings = Settings()
    lead: Lead = Lead()
    slots: tuple[str | None, ...] = ()
    members: Map[str, Member] = field(default_factory=Map)
    tasks: Map[str, TaskRow] = field(default_factory=Map)
    runs: Map[str, Run] = field(default_factory=Map)
    runs_of: Map[str, tuple[str, ...]] = field(default_factory=Map)
    """Active runs by task, oldest first; a task without any is not in it."""
    windows: Map[str, Window] = field(default_factory=Map)
    forgotten: int = 0
    """The greatest session whose window was forgotten (`node.state.windows.forget`)."""
    specs_bytes: int = 0
    runs_bytes: int = 0
    requests_bytes: int = 0
    """The sizes of the tasks' definitions, of the active runs, and of the kept starts by hand (`node.state.bounds`)."""
    endings: tuple[int, ...] = ()
    channels: Channels = field(default_factory=Map)
    """Where notices are sent, each with those that are not told yet."""

    def seats(self) -> tuple[Slot, ...]:
        """The slots as placement sees them."""
        return tuple(_seat(self.members[member]) if member is not None else Slot(None) for member in self.slots)


def _seat(member: Member) -> Slot:
    return Slot(member.id, member.status, member.labels, member.capacity, member.kinds)
