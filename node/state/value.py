"""The replicated state, as a value.

Every member holds the same `State` after the same entries. It is immutable: `apply` gives a new one, so
that any thread may read the one it has for as long as it likes. Times are microseconds since the Unix
epoch, UTC (`*_us`), stamped by whoever proposed the entry.
"""

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from immutables import Map

from hashing.view import Slot, Task
from tasks.run import RunState
from tasks.spec import Spec, TaskTiming, timing, unpack

MemberStatus = Literal["up", "down", "draining"]
DownReason = Literal["silent", "gone", "stopped", "new"]
"""Why a member is down. `new`: it was added, and has not joined yet."""

COUNTED: Final[tuple[RunState, ...]] = ("succeeded", "failed", "cancelled", "timed_out", "abandoned")
"""How runs end, in the order in which they are counted."""

Trigger = Literal["schedule", "manual"]
PassedOver = Literal["skipped", "missed"]

RULES: Final = 1
"""1: what is passed over for one reason is a series; what the state may hold is bounded (`node.state.bounds`);
how runs end is counted (`COUNTED`)."""
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Settings:
    """The cluster's settings. `balance_slack_milli` is `balance_slack` in thousandths; None turns room off."""

    balance_slack_milli: int | None = 0
    lease_s: float = 2.0
    window_s: float = 1.0
    margin_s: float = 0.5
    refusal_is_death: bool = True
    history_days: int = 30


@dataclass(frozen=True, slots=True)
class Member:
    """A node of the cluster. `incarnation` is 0 until it joins for the first time; then it counts joins.

    `heartbeat_port` is where it listens for heartbeats and knocks, on `host`. `since_us` is when its status or its
    incarnation last changed. `drained` is what was asked last: it outlives a restart, so that a member that joins
    again is `draining` still, until somebody says otherwise. `leaving`: it is to be removed as soon as it is down.
    `aside` says why it takes on nothing new, by its own word; "" where it does: it is `draining` for as long.
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
    """How the last run of a task that came to an end ended, kept so that it survives the run's leaving the state.

    `took_us` is how long the work of its last attempt took; None where none began, or an earlier version wrote this.
    """

    run_id: str
    state: RunState
    fire_at_us: int
    finished_at_us: int
    error: str | None = None
    took_us: int | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """Occurrences of a task that were passed over one after another, for one reason: told as one, with their count.

    `fire_at_us` is the first, `last_fire_at_us` the last, `created_at_us` when the first was passed over. `blocked_by`
    is the run that kept them from being run ("": none did, they were missed).
    """

    state: PassedOver
    created_at_us: int
    fire_at_us: int
    last_fire_at_us: int
    count: int
    blocked_by: str = ""


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A registered task.

    `spec_packed` is `Spec.pack()`; `placing` is what placement needs of it; `order` counts registrations and
    never changes. `since_us` is what the schedule counts from: the registration, the last change or the
    resumption (for a continuous task also the end of its last run). `through_us` is the last occurrence
    that has been dealt with, whether claimed, queued, skipped or missed: everything due after it, and after
    `since_us`, is still to be decided. It never goes back, so that an occurrence is claimed once. A continuous
    task's one occurrence is `since_us`; it is due while `through_us` is less. `skipped` and `missed` count such
    occurrences. `requests` remembers the latest runs started by hand as (Idempotency-Key or "", run_id), oldest
    first, 200 at most. `series` is what was passed over last, and would go on if the next occurrence were, too.
    `succeeded_at_us` is when a run of it last succeeded, `endings` how often its runs have ended in
    each of `COUNTED`; empty while none has been counted.
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

    @property
    def spec(self) -> Spec:
        """The definition, unpacked; remembered for the tasks asked for lately."""
        return unpack(self.spec_packed)

    @property
    def timing(self) -> TaskTiming:
        """What of the definition says when it is due: cheap for any task."""
        return timing(self.spec_packed)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a run. `state` is `claimed` or `running` while it is held, then how it ended.

    `log_truncated`: its log is not complete, as it reached its bound or could not be written.
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

    `spec_packed` is the definition it was made with: a later change, or the task's deletion, does not change
    a run. `params` replaces the spec's params if it is not None (a run started by hand). `node`,
    `incarnation` and `token` are those of the attempt that holds it, while one does. `due_us` is the time before which
    a waiting or orphaned run may not be claimed; 0: it may be at once, whatever clocks say. `cancelling` says why,
    once asked.
    `failures` counts failed attempts, `orphanings` lost ones; the last member of `attempts` is the present
    or latest attempt. `params_bytes` is how much its `params` hold, packed.
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

    @property
    def spec(self) -> Spec:
        """The definition it was made with, unpacked."""
        return unpack(self.spec_packed)


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that has come to its end: what history keeps. Emitted by `apply`, not part of the state.

    `series`: it stands for occurrences that were passed over, of which `run` is the first. While the series goes on it
    is emitted again, with a greater count, in the place of what was emitted before.
    """

    run: Run
    state: RunState
    finished_at_us: int
    result: dict[str, Any] | None = None
    error: str | None = None
    series: Series | None = None


@dataclass(frozen=True, slots=True)
class Lead:
    """The last `lead` entry: who leads since which term. A `mark_down` names its term.

    `rules`: by which the entries after it are applied. A log of an earlier build, applied again by a later one, must
    come to the state that a snapshot of the earlier one holds; so what changed since holds from an entry on.
    """

    term: int = 0
    member: str = ""
    rules: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a proposal. `code` is "ok", or names why it was refused; `detail` is a sentence for people."""

    code: str
    value: dict[str, Any] = field(default_factory=dict)
    detail: str = ""

    @property
    def ok(self) -> bool:
        """Whether it was accepted."""
        return self.code == "ok"


@dataclass(frozen=True, slots=True)
class Window:
    """What is remembered of a proposer: its session and the results of its latest proposals by sequence number.

    Those at or below `floor` have been forgotten and are refused (Ongaro 2014, section 6.3). `weight` is the sum
    of what the results weigh (`node.state.windows`).
    """

    session: int
    floor: int = 0
    results: Map[int, Result] = field(default_factory=Map)
    weight: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """All that the members agree on.

    `index` counts the proposals applied; `epoch` the changes of what placement depends on; `token` is the
    last fencing number given; `orders` the last registration number. `slots[i]` is the id of the member in
    slot i, or None where it is vacant. `endings` counts how runs have ended, those of deleted tasks too, in the order
    of `COUNTED`. It is empty, and nothing is counted, until a version that counts has taken the lead
    (`TakeLead.counts`): all members begin at the same entry, whichever version wrote the snapshot that each of them
    started from.
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
    """What the tasks' definitions, the active runs and the starts that are remembered hold (`node.state.bounds`)."""
    endings: tuple[int, ...] = ()

    def seats(self) -> tuple[Slot, ...]:
        """The slots as placement sees them."""
        return tuple(_seat(self.members[member]) if member is not None else Slot(None) for member in self.slots)


def _seat(member: Member) -> Slot:
    return Slot(member.id, member.status, member.labels, member.capacity, member.kinds)
