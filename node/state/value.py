"""The replicated state, as a value.

Every member holds the same `State` after the same entries. A `State` is immutable: `apply` returns a new one, so any
thread may keep a state and read it. Times (`*_us`) are microseconds since the Unix epoch, UTC, stamped by the proposer
of the entry.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

from immutables import Map

from hashing.view import Slot, Task
from node.state.backfill import BackfillRow
from node.state.blackout import Blackout
from node.state.calendar import Calendar
from node.state.outbox import Channels
from node.state.places import NO_PLACES, Places
from node.state.pool import Pool
from node.state.watchdog import Watchdog
from tasks.definition.after import ParentEnd
from tasks.definition.deadlines import DeadlineName
from tasks.definition.run import RunState
from tasks.definition.spec import Spec, TaskTiming, cached_spec, timing

MemberStatus = Literal["up", "down", "draining"]
DownReason = Literal["silent", "gone", "stopped", "new"]
"""Why a member is down. `new`: it was added, and has not joined yet."""

COUNTED: Final[tuple[RunState, ...]] = (
    *("succeeded", "failed", "cancelled", "timed_out", "abandoned"),
    *("upstream_failed", "upstream_skipped", "not_needed"),
    "upstream_late",
)
"""The final states of runs, in the order of their counters. Those of the second line are counted since rules 8, that of
the third line since rules 9."""

Trigger = Literal["schedule", "manual", "after"]
"""What made a run: its schedule, a client, or the ends of the tasks that its task comes after."""
PassedOver = Literal["skipped", "missed"]

RULES: Final = 10
"""The rules by which this version applies entries (`Lead.rules`). Since 1: occurrences that are passed over for one
reason form a series; the size of the state is bounded (`node.state.bounds`); final states of runs are counted
(`COUNTED`). Since 2: deadlines are judged (`node.state.deadlines`), and facts are noted for channels
(`node.state.facts`). Since 3: a breach that ends without being met is a fact too, the runs of a deleted task do not
count against a task that is registered under its name later, and an old notice is tried several times before it is
given up. Since 4: the duration of a run counts from its first claim (`node.state.run_times`), and an occurrence is no
longer late once its schedule has been changed or resumed. Since 5: a run of a continuous task is
not abandoned for attempts that were lost before its last checkpoint. Since 6: what a run left undone is kept
(`TaskRow.degraded`). Since 7: what is unusual of a run is told. Since 8: tasks are due after others
(`node.state.joins`). Since 9: a task with a schedule may come after others (`node.state.awaiting`), and runs use pools
(`node.state.pools`). Since 10: there are backfills (`node.state.backfills`), tasks run on each member
(`node.state.each`) and are due by calendars (`node.state.calendars`), blackouts hold them (`node.state.blackouts`),
params depend on the occurrence (`node.state.carried`), work is offered to members with room (`node.state.offers`), and
runs start at a rate (`node.state.pacing`)."""
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Settings:
    """The cluster's settings."""

    #: `balance_slack` in thousandths; None turns balancing off.
    balance_slack_milli: int | None = 0
    #: How long a lease is, in seconds.
    lease_s: float = 2.0
    #: How old a member's echo may be to count for the leader's majority, in seconds. Without a majority of echoes the
    #: leader grants no leases.
    window_s: float = 1.0
    #: The margin in seconds: a member that was silent for `lease_s + margin_s` is marked down.
    margin_s: float = 0.5
    #: Whether a member whose port refuses a connection is marked down at once.
    refusal_is_death: bool = True
    #: How many days finished runs are kept.
    history_days: int = 30
    #: The outside watcher that the leader pings; None: no watcher is set.
    watchdog: Watchdog | None = None
    #: The cluster's pools, by name: how much there is of each.
    pools: tuple[tuple[str, int], ...] = ()
    #: The set of files that made a pool, by the pool's name, sorted; those that no set made are not in it.
    pool_sets: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Member:
    """A node of the cluster."""

    #: The member's id.
    id: str
    #: The number of its slot, from 0.
    slot: int
    #: The host at which others reach it.
    host: str
    #: Its port for Raft.
    raft_port: int
    #: Its port for the API.
    http_port: int
    #: Whether it is up, down or draining.
    status: MemberStatus = "down"
    #: Why it is down; None: it is not down.
    reason: DownReason | None = "new"
    #: How often it has joined; 0: it has not joined yet.
    incarnation: int = 0
    #: Where it listens for heartbeats, on `host`.
    heartbeat_port: int = 0
    #: Its labels as sorted pairs.
    labels: Labels = ()
    #: Its capacity, from 1 to 1,000,000.
    capacity: int = 1
    #: The kinds that it offers.
    kinds: frozenset[str] = frozenset()
    #: When its status or incarnation last changed, in microseconds since the epoch.
    since_us: int = 0
    #: Whether a client has drained it. This survives a restart: a member that joins again stays `draining` until it is
    #: undrained.
    drained: bool = False
    #: Whether it is removed as soon as it is down.
    leaving: bool = False
    #: Why the member itself takes on no new work, and so is `draining`; "": it takes on work.
    aside: str = ""
    #: How many attempts it runs at once, as it has told in this incarnation.
    places: Places = NO_PLACES


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a task's last ended run, kept after the run has left the state."""

    #: The id of the run.
    run_id: str
    #: The final state of the run.
    state: RunState
    #: The time of its occurrence, in microseconds since the epoch.
    fire_at_us: int
    #: When it ended, in microseconds since the epoch.
    finished_at_us: int
    #: Why it failed; None: no error.
    error: str | None = None
    #: The time from its first claim to its end, in microseconds; None: no member claimed it, or an earlier version
    #: wrote this outcome.
    took_us: int | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """Consecutive occurrences of a task that were passed over for one reason: one record with a count."""

    #: Whether they were skipped or missed.
    state: PassedOver
    #: When the first was passed over, in microseconds since the epoch.
    created_at_us: int
    #: The first occurrence, in microseconds since the epoch.
    fire_at_us: int
    #: The last occurrence, in microseconds since the epoch.
    last_fire_at_us: int
    #: How many occurrences there are.
    count: int
    #: The run that blocked them; "": they were missed.
    blocked_by: str = ""


@dataclass(frozen=True, slots=True)
class Breach:
    """A deadline of a task that is breached, since `since_us`.

    `due_us` is the due time of the oldest occurrence that has not begun, or succeeded, in time; for `success_every`,
    the time from which the deadline counts (`node.state.deadlines`). `undecided`: that occurrence had no run then.
    """

    deadline: DeadlineName
    due_us: int
    since_us: int
    undecided: bool = False


DeadlineChange = Literal["breached", "met", "dropped"]
"""How a deadline changed. `dropped`: the late occurrence was skipped, missed or cancelled; or the task was paused,
deleted or changed, so that the deadline is no longer judged, or judged anew."""


@dataclass(frozen=True, slots=True)
class DeadlineEvent:
    """A deadline was breached at `at_us`, or is no longer breached. Emitted by `apply`; not part of the state."""

    task: str
    breach: Breach
    change: DeadlineChange
    at_us: int


T = TypeVar("T")
SAVED: Final = "saved"
ToSave = Annotated[T, SAVED]
"""The type of a field of `TaskRow` that is saved with the cluster's own state (`node.state.saved`)."""


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A registered task. What of it is saved with the cluster's own state is marked `ToSave`."""

    #: The definition: `Spec.pack()`.
    spec_packed: ToSave[bytes]
    #: The part of the definition that placement needs.
    placing: Task
    #: The number of the registration; never changes.
    order: ToSave[int]
    #: The version of the definition, from 1.
    version: ToSave[int]
    #: When it was registered, in microseconds since the epoch.
    registered_at_us: ToSave[int]
    #: The time that the schedule counts from, in microseconds since the epoch: the registration, the last change or the
    #: resumption; for a continuous task also the end of its last run.
    since_us: ToSave[int]
    #: The last occurrence that was decided (claimed, queued, skipped or missed), in microseconds since the epoch.
    #: Occurrences due after it, and after `since_us`, are undecided. It never goes back, so that an occurrence is
    #: claimed once. Of a task with `after` it is the latest occurrence. A continuous task's only occurrence is
    #: `since_us`, which is due while `through_us` is less.
    through_us: ToSave[int]
    #: Whether it is paused.
    paused: ToSave[bool] = False
    #: How many occurrences were skipped.
    skipped: ToSave[int] = 0
    #: How many occurrences were missed.
    missed: ToSave[int] = 0
    #: The outcome of its last ended run; None: no run has ended.
    last: ToSave[Outcome | None] = None
    #: The latest runs started by hand as (Idempotency-Key or "", run id), oldest first, 200 at most.
    requests: ToSave[tuple[tuple[str, str], ...]] = ()
    #: The latest series of occurrences that were passed over, which the next one may extend. None: no such series.
    series: Series | None = None
    #: When a run last succeeded, in microseconds since the epoch; None: no run has succeeded.
    succeeded_at_us: ToSave[int | None] = None
    #: How many runs have ended in each of `COUNTED`; empty while none has been counted.
    endings: tuple[int, ...] = ()
    #: Whether its latest run that either succeeded or failed for good is a failed one.
    failing: bool = False
    #: The time since which its deadlines are judged, in microseconds since the epoch; 0 while they are not judged.
    judged_us: int = 0
    #: The due time of the oldest run that has failed for good, in microseconds since the epoch. None: no run has
    #: failed, or a run due no earlier has succeeded since, which makes up for all failed ones.
    unmet_us: int | None = None
    #: Its breached deadlines.
    breaches: tuple[Breach, ...] = ()
    #: What its last succeeded run left undone, by the field `degraded` of its result; "": nothing.
    degraded: str = ""
    #: Of a task with `after`, the time up to which occurrences are not its own, in microseconds since the epoch: its
    #: registration, the last change of `after` or `enabled`, or the resumption.
    after_us: int = 0

    @property
    def spec(self) -> Spec:
        """The definition, unpacked; cached for recently used tasks."""
        return cached_spec(self.spec_packed)

    @property
    def timing(self) -> TaskTiming:
        """Return the part of the definition that says when the task is due. Cheap for any task."""
        return timing(self.spec_packed)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a run."""

    #: Its number in the run, from 1.
    attempt: int
    #: The member that makes it.
    node: str
    #: The member's incarnation.
    incarnation: int
    #: Its fencing token.
    token: int
    #: `claimed` or `running` while it is held, then how it ended.
    state: RunState
    #: When it was claimed, in microseconds since the epoch.
    claimed_at_us: int
    #: When its work began, in microseconds since the epoch; None: it has not begun.
    started_at_us: int | None = None
    #: When it ended, in microseconds since the epoch; None: it is held.
    finished_at_us: int | None = None
    #: Why it failed; None: no error.
    error: str | None = None
    #: Whether its log is incomplete, because it reached its limit or could not be written.
    log_truncated: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """One occurrence of a task, while the run is active (`tasks.definition.run.ACTIVE`)."""

    #: The id of the run.
    run_id: str
    #: The task's name.
    task: str
    #: Whether the schedule or a client made the run.
    trigger: Trigger
    #: The time of the occurrence, in microseconds since the epoch.
    fire_at_us: int
    #: The definition with which the run was made. Later changes or the deletion of the task do not affect it.
    spec_packed: bytes
    #: Its state.
    state: RunState
    #: When it was made, in microseconds since the epoch.
    created_at_us: int
    #: The params of a run that was started by hand with others, or whose task has a template, in place of the spec's;
    #: None: the spec's.
    params: dict[str, Any] | None = None
    #: The time before which a waiting or orphaned run may not be claimed, in microseconds since the epoch; 0: at once,
    #: whatever the clocks read.
    due_us: int = 0
    #: The member whose attempt holds it; None: no attempt does.
    node: str | None = None
    #: The incarnation of that member; 0: no attempt holds it.
    incarnation: int = 0
    #: The token of that attempt; 0: no attempt holds it.
    token: int = 0
    #: Its attempts; the last one is the present or latest.
    attempts: tuple[Attempt, ...] = ()
    #: How many attempts failed.
    failures: int = 0
    #: How many attempts were lost.
    orphanings: int = 0
    #: The latest checkpoint, packed; None: the run has no checkpoint.
    checkpoint: bytes | None = None
    #: The reason for cancelling the run, once a cancellation was requested; None: no cancellation was requested.
    cancelling: str | None = None
    #: The size of its `params`, or until they are made of its `fields`, packed.
    params_bytes: int = 0
    #: How many of the latest attempts in a row failed because an outside service was unreachable. They do not count as
    #: `failures`.
    aways: int = 0
    #: The kind's action to run instead of the task's work; "": the work. Actions block no run, and are blocked by none.
    action: str = ""
    #: The arguments of `action`; None: there are none.
    args: dict[str, Any] | None = None
    #: The time of the occurrence as the schedule has it, in microseconds since the epoch; 0: it is `fire_at_us`.
    nominal_us: int = 0
    #: Of a run that was started by hand with the tasks after it, and of theirs, the number of that rerun; else 0.
    generation: int = 0
    #: The number of the backfill that it is of; 0: of none. Such a run gives way to all others, and does not count for
    #: its task: neither for `overlap` and deadlines nor as its last outcome.
    backfill: int = 0
    #: Of a task with `each`, the only member that may run it; "": any member may.
    member: str = ""
    #: Until its params are made, the fields of its parents' results that they need, by parent; None: they need none.
    fields: dict[str, Any] | None = None
    #: The member that a waiting run was last offered to, since it was last held; "": to none.
    offered: str = ""
    #: When it was offered, in microseconds since the epoch.
    offered_us: int = 0

    @property
    def occurrence(self) -> "OccurrenceId | None":
        """The occurrence that it shares with the tasks after it; None: it has none, because it was started alone."""
        if self.action or (self.trigger == "manual" and not self.generation):
            return None
        return OccurrenceId(self.nominal_us or self.fire_at_us, self.generation)

    @property
    def lineage(self) -> str:
        """The name under which its work keeps what it leaves: the task's, and the member's if it has one.

        No task's name contains an `@`, so that members keep what a task with `each` leaves apart.
        """
        return f"{self.task}@{self.member}" if self.member else self.task

    @property
    def spec(self) -> Spec:
        """The definition that the run was made with, unpacked."""
        return cached_spec(self.spec_packed)


class OccurrenceId(NamedTuple):
    """An occurrence that tasks share: its time, in microseconds since the epoch, and the rerun of it; 0: none."""

    nominal_us: int
    generation: int = 0


@dataclass(frozen=True, slots=True)
class OccurrenceEnd:
    """The end of an occurrence of a task, of which the tasks after it are still to be told."""

    #: The task's name.
    task: str
    #: The time of the occurrence, in microseconds since the epoch.
    nominal_us: int
    #: The number of its rerun; 0: it is none.
    generation: int
    #: How it ended.
    end: ParentEnd
    #: The run that ended; "": there was none.
    run_id: str = ""


@dataclass(frozen=True, slots=True)
class CarriedFields:
    """Fields of the result of a task's run, kept for a task after it until that is due."""

    #: The name of the task whose run it was.
    parent: str
    #: The time of the run's occurrence, in microseconds since the epoch.
    nominal_us: int
    #: The number of its rerun; 0: it is none.
    generation: int
    #: The fields by name, packed; empty: they are not kept.
    packed: bytes
    #: Why they are not kept; "": they are.
    why: str = ""


@dataclass(frozen=True, slots=True)
class PendingJoin:
    """An occurrence of a task that waits for the tasks before it, some of which have ended."""

    #: The name of the task that waits.
    task: str
    #: The time of the occurrence, in microseconds since the epoch.
    nominal_us: int
    #: The number of its rerun; 0: it is none.
    generation: int = 0
    #: How its parents ended, in the order of their ends.
    ends: tuple[OccurrenceEnd, ...] = ()
    #: Whether it was decided without some parents, which could not end any more. Kept, so that it is decided once.
    decided: bool = False
    #: Of a task with a schedule: each parent, and the time of its occurrence that is waited for, in microseconds since
    #: the epoch; 0: it has none. Empty: parents share the time of this occurrence.
    times: tuple[tuple[str, int], ...] = ()
    #: Of a task with a schedule: until when it waits, in microseconds since the epoch.
    until_us: int = 0

    def wanted(self, parent: str) -> OccurrenceId:
        """Return the occurrence of a parent that this one waits for."""
        found = next((nominal_us for name, nominal_us in self.times if name == parent), None)
        return OccurrenceId(self.nominal_us, self.generation) if found is None else OccurrenceId(found)


@dataclass(frozen=True, slots=True)
class MemberPart:
    """How a task with `each` fares on one member."""

    #: The member's id.
    member: str
    #: Since when it takes part, in microseconds since the epoch.
    since_us: int
    #: The outcome of its last ended run; None: no run of it has ended.
    last: Outcome | None = None
    #: When a run of it last succeeded, in microseconds since the epoch; None: none has.
    succeeded_at_us: int | None = None
    #: As `TaskRow.failing`, of its runs.
    failing: bool = False
    #: As `TaskRow.unmet_us`, of its runs.
    unmet_us: int | None = None
    #: As `TaskRow.degraded`, of its runs.
    degraded: str = ""
    #: The latest series of occurrences that were passed over on it; None: no such series.
    series: Series | None = None


@dataclass(frozen=True, slots=True)
class OpenRound:
    """An occurrence of a task with `each` that has not ended on all members."""

    #: The time of the occurrence, in microseconds since the epoch.
    nominal_us: int
    #: The number of its rerun; 0: it is none.
    generation: int = 0
    #: The worst of its ends so far; None: it has ended on no member.
    end: ParentEnd | None = None
    #: The run that ended so; "": none.
    run_id: str = ""


@dataclass(frozen=True, slots=True)
class EachRow:
    """What is kept of a task with `each` beside its row, which has the state of the worst member."""

    #: The task's name.
    task: str
    #: How it fares on each member that took part in the latest occurrence, or has a run; sorted by member.
    parts: tuple[MemberPart, ...] = ()
    #: Its occurrences that have not ended on all members, the oldest first.
    rounds: tuple[OpenRound, ...] = ()


@dataclass(frozen=True, slots=True)
class Rerun:
    """A task and the tasks after it, started together by hand."""

    #: The number of the rerun.
    generation: int
    #: The names of all its tasks, sorted.
    tasks: tuple[str, ...]
    #: Those that have not been decided on yet.
    undecided: tuple[str, ...]
    #: Those that have not ended yet.
    unended: tuple[str, ...]
    #: The number of the backfill of which it is one occurrence; 0: a client started it.
    backfill: int = 0
    #: Of an occurrence of a backfill: failed if one of its tasks failed, skipped if its first one did not run.
    end: ParentEnd = "succeeded"
    #: Of an occurrence of a backfill, the run that failed first; "": none failed.
    failed_run: str = ""


@dataclass(frozen=True, slots=True)
class EndedRun:
    """An ended run, for the history. Emitted by `apply`; not part of the state."""

    #: The run; for a series, its first occurrence.
    run: Run
    #: The final state.
    state: RunState
    #: When it ended, in microseconds since the epoch.
    finished_at_us: int
    #: The figures and artifact URLs that the kind returned; None if it returned none.
    result: dict[str, Any] | None = None
    #: Why it failed; None: no error.
    error: str | None = None
    #: The passed-over occurrences that this record summarizes. While the series grows, the record is emitted again with
    #: a higher count, and replaces the previous record. None: the record is about `run` alone.
    series: Series | None = None


@dataclass(frozen=True, slots=True)
class Lead:
    """The last applied `TakeLead`: the leader, and the term since which it leads. A `MarkDown` names that term.

    `rules` apply to the entries after that `TakeLead`. They change by an entry, because a later version that applies
    the log of an earlier version must reach the same state as the earlier version did.
    """

    term: int = 0
    member: str = ""
    rules: int = 0


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a proposal. `code` is "ok" or the reason for the refusal; `detail` explains a refusal to people."""

    code: str
    value: dict[str, Any] = field(default_factory=dict)
    detail: str = ""

    @property
    def ok(self) -> bool:
        """Whether the proposal was accepted."""
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
    """The replicated state."""

    #: The id of the cluster; "": it is not founded yet.
    cluster_id: str = ""
    #: The number of applied proposals.
    index: int = 0
    #: How often the inputs of placement have changed.
    epoch: int = 0
    #: The last fencing token given.
    token: int = 0
    #: The last registration number given.
    orders: int = 0
    #: The cluster's settings.
    settings: Settings = Settings()
    #: The leader, and the version of the rules by which entries are applied.
    lead: Lead = Lead()
    #: The id of the member in each slot; None: vacant.
    slots: tuple[str | None, ...] = ()
    #: The members, by id.
    members: Map[str, Member] = field(default_factory=Map)
    #: The registered tasks, by name.
    tasks: Map[str, TaskRow] = field(default_factory=Map)
    #: The active runs, by id.
    runs: Map[str, Run] = field(default_factory=Map)
    runs_of: Map[str, tuple[str, ...]] = field(default_factory=Map)
    """The ids of active runs by task, oldest first; a task without active runs is not in it."""
    #: The window of each proposer, by which repeated proposals are recognized.
    windows: Map[str, Window] = field(default_factory=Map)
    forgotten: int = 0
    """The greatest session whose window was forgotten (`node.state.windows.forget`)."""
    #: The size of the tasks' definitions (`node.state.bounds`).
    specs_bytes: int = 0
    #: The size of the active runs, and of what is kept in `carried` (`node.state.bounds`).
    runs_bytes: int = 0
    #: The size of the kept starts by hand (`node.state.bounds`).
    requests_bytes: int = 0
    #: How many runs ended in each state, in the order of `COUNTED`; includes runs of deleted tasks. Empty until a
    #: version that counts has taken the lead (`TakeLead.rules`). So all members start to count at the same entry, even
    #: if they started from snapshots that different versions wrote.
    endings: tuple[int, ...] = ()
    children: Map[str, tuple[str, ...]] = field(default_factory=Map)
    """The names of the tasks after each task, sorted; a task with none after it is not in it."""
    joins: Map[str, tuple[PendingJoin, ...]] = field(default_factory=Map)
    """The pending joins of each task, the oldest first; a task without any is not in it."""
    ends: Map[int, OccurrenceEnd] = field(default_factory=Map)
    """The ends that are to be passed on, by number. The leader passes them on in portions, the lowest number first."""
    #: The reruns under way, by number.
    reruns: Map[int, Rerun] = field(default_factory=Map)
    past_ends: Map[str, tuple[OccurrenceEnd, ...]] = field(default_factory=Map)
    """The latest ends of each task that one with a schedule comes after, the earliest time first, 100 at most. No other
    task is in it."""
    #: What is used of each pool, and who waits for it, by the pool's name.
    pools: Map[str, Pool] = field(default_factory=Map)
    #: The backfills that are open, and the latest ended ones, by number.
    backfills: Map[int, BackfillRow] = field(default_factory=Map)
    each: Map[str, EachRow] = field(default_factory=Map)
    """How the tasks with `each` fare on each member, by name; no other task is in it."""
    #: The calendars, by name.
    calendars: Map[str, Calendar] = field(default_factory=Map)
    #: The blackouts, by name; some of those that have ended are among them.
    blackouts: Map[str, Blackout] = field(default_factory=Map)
    carried: Map[str, tuple[CarriedFields, ...]] = field(default_factory=Map)
    """What is kept of parents' results for each task that is to be due after them (`node.state.carried`)."""
    #: The channels for notices, by name.
    channels: Channels = field(default_factory=Map)
    #: The number of the next end that is to be passed on.
    next_end: int = 0

    def seats(self) -> tuple[Slot, ...]:
        """Return the slots in the form that placement needs."""
        return tuple(_seat(self.members[member]) if member is not None else Slot(None) for member in self.slots)


def _seat(member: Member) -> Slot:
    return Slot(member.id, member.status, member.labels, member.capacity, member.kinds)
