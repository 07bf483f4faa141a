"""The entries that can be proposed. One dataclass each; `codec` packs them, `apply` applies them.

`at_us` is the proposer's wall clock. `apply` refuses an entry with a `token` unless it is the run's present one.
"""

from dataclasses import dataclass
from typing import Any

from node.state.channel_entries import ChannelEntry
from node.state.value import DownReason, Labels, Outcome, PassedOver
from tasks.deadlines import DeadlineName
from tasks.run import AttemptEnd


@dataclass(frozen=True, slots=True)
class Seed:
    """A member before it has joined, as named by ROTA_MEMBERS or POST /v1/members."""

    id: str
    host: str
    raft_port: int
    http_port: int


@dataclass(frozen=True, slots=True)
class FoundCluster:
    """The first entry of a cluster: its id, and its members by slot. Refused if the cluster is founded already."""

    at_us: int
    cluster_id: str
    members: tuple[Seed, ...]


@dataclass(frozen=True, slots=True)
class TakeLead:
    """`member` leads since `term`. Proposed on election; refused if one of a later term is applied.

    `rules` are the latest that its version knows (`node.state.value.Lead`).
    """

    at_us: int
    member: str
    term: int
    rules: int = 0


@dataclass(frozen=True, slots=True)
class Join:
    """A member starts, or comes back after it was marked down: a new incarnation. Orphans its active runs.

    Result: `{"incarnation": n}`.
    """

    #: When it was proposed, in microseconds since the epoch.
    at_us: int
    #: The member's id.
    member: str
    #: The host at which others reach it.
    host: str
    #: Its port for Raft.
    raft_port: int
    #: Its port for the API.
    http_port: int
    #: Its port for heartbeats.
    heartbeat_port: int
    #: Its labels as sorted pairs.
    labels: Labels
    #: Its capacity, from 1 to 1,000,000.
    capacity: int
    #: The kinds that it offers.
    kinds: tuple[str, ...]
    #: The last incarnation that the member knew of. Refused if there has been another since, so that a delayed entry
    #: cannot supersede the present incarnation.
    after: int


@dataclass(frozen=True, slots=True)
class AddMember:
    """A new member takes the lowest vacant slot, or a new one. It is down (`new`) until it joins."""

    at_us: int
    seed: Seed


@dataclass(frozen=True, slots=True)
class RemoveMember:
    """A member is removed for good, and its slot becomes vacant.

    A member that is not down may hold a lease, and its work may run until that ends. It is `leaving` from now on, gets
    nothing new, and is removed when it is marked down. Result: `{"gone"}`: whether it was removed at once.
    """

    at_us: int
    member: str


@dataclass(frozen=True, slots=True)
class Drain:
    """`on`: the member keeps its running attempts and gets nothing new. Not `on`: it is up again.

    `lasting` False: only until it joins again; a stopping member drains itself so.
    """

    at_us: int
    member: str
    on: bool
    lasting: bool = True


@dataclass(frozen=True, slots=True)
class StandAside:
    """A member reports that it cannot take on anything new, with the reason `why`; "": it can again.

    Meanwhile it is `draining`: it keeps its running attempts, and others own its tasks. Refused if its incarnation is
    another; reset when it joins again or is marked down.
    """

    at_us: int
    member: str
    incarnation: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class MarkDown:
    """A member is down. Refused if its incarnation, or the term of the leader, is not the one named.

    A member that stops proposes this for itself, with reason `stopped` and term 0.
    """

    #: When it was proposed, in microseconds since the epoch.
    at_us: int
    #: The member's id.
    member: str
    #: The incarnation that is down.
    incarnation: int
    #: Why the member is down.
    reason: DownReason
    #: The term of the leader that gives the verdict; 0: the member itself, which stops.
    term: int


@dataclass(frozen=True, slots=True)
class ChangeSettings:
    """Change settings, by their names in `Settings`."""

    at_us: int
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Put:
    """Register or change a task. `if_version` None: whatever its version; 0: only if there is no such task."""

    spec_packed: bytes
    if_version: int | None = None


@dataclass(frozen=True, slots=True)
class PutTasks:
    """Register or change tasks, all or none. An unchanged spec keeps its version.

    Result: `{"tasks": [[name, version, change], ...]}`, change being `created`, `changed` or `unchanged`.
    """

    at_us: int
    puts: tuple[Put, ...]


@dataclass(frozen=True, slots=True)
class DeleteTask:
    """Delete a task, and cancel its runs: at once if no member holds them, else by the member that does."""

    at_us: int
    task: str
    if_version: int | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """`on`: no occurrence of the task falls due. Not `on`: its schedule counts from now."""

    at_us: int
    task: str
    on: bool


@dataclass(frozen=True, slots=True)
class Start:
    """Start a run by hand. It waits for the task's owner to claim it. Refused if overlap forbids it.

    Result: `{"run_id": ...}`.
    """

    #: When it was proposed, in microseconds since the epoch.
    at_us: int
    #: The task's name.
    task: str
    #: The params of this run; None: the task's own.
    params: dict[str, Any] | None = None
    #: The run's `fire_at`, in microseconds since the epoch; None: `at_us`, plus a microsecond if the task has an
    #: occurrence of that time already.
    fire_at_us: int | None = None
    #: The Idempotency-Key: a second Start with the same key returns the first one's run. None: there is none.
    key: str | None = None
    #: What the kind does instead of the task's work; "": the work.
    action: str = ""
    #: The arguments of `action`; None: there are none.
    args: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Queue occurrences that fell due while another run was active, under `overlap: queue`; 100 at most."""

    at_us: int
    task: str
    fire_at_us: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SkipOccurrences:
    """Pass over occurrences: `skipped` (overlap) or `missed` (catch-up). They are recorded and counted."""

    #: When it was proposed, in microseconds since the epoch.
    at_us: int
    #: The task's name.
    task: str
    #: Whether they are skipped or missed.
    state: PassedOver
    #: The first and the last of `count` consecutive occurrences, in microseconds since the epoch. With `count` 0, which
    #: earlier versions wrote, each of them.
    fire_at_us: tuple[int, ...]
    #: How many occurrences there are; 0: as many as `fire_at_us` has.
    count: int = 0


@dataclass(frozen=True, slots=True)
class Claim:
    """Give an attempt to a member: of a new occurrence, or of a waiting or orphaned run.

    Accepted only if the member is up in that incarnation, the occurrence has not been claimed before, and overlap
    allows it. Result: `{"run_id", "token", "attempt"}`.
    """

    #: When it was proposed, in microseconds since the epoch.
    at_us: int
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


@dataclass(frozen=True, slots=True)
class Began:
    """The attempt's work has started: `claimed -> running`."""

    at_us: int
    run_id: str
    token: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Save the checkpoint to resume from: msgpack, 64 KiB at most."""

    at_us: int
    run_id: str
    token: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Finish:
    """The attempt has ended."""

    #: When it was proposed, in microseconds since the epoch.
    at_us: int
    #: The id of the run.
    run_id: str
    #: The token of the attempt.
    token: int
    #: How the attempt ended. `not_started`: given back; `handed_over`: stopped so that the task's owner can continue.
    end: AttemptEnd
    #: The figures and artifact URLs that the kind returned; None if it returned none.
    result: dict[str, Any] | None = None
    #: Why the attempt failed; None if it did not fail.
    error: str | None = None
    #: Whether another attempt may succeed. False: it would fail the same way.
    retry: bool = True
    #: Whether the attempt's log is incomplete.
    log_truncated: bool = False


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel a run: at once if no member holds it, else by the member that does."""

    at_us: int
    run_id: str
    why: str = "asked"


@dataclass(frozen=True, slots=True)
class Breached:
    """A deadline of a task has passed. Refused if the state says otherwise.

    The leader names `due_us` and `undecided`: a schedule is never evaluated by `apply`, since time zones depend on the
    machine.
    """

    #: When it was proposed, in microseconds since the epoch.
    at_us: int
    #: The task's name.
    task: str
    #: Which deadline.
    deadline: DeadlineName
    #: As in `Breach`.
    due_us: int
    #: Whether an undecided occurrence is due at `due_us`.
    undecided: bool = False


@dataclass(frozen=True, slots=True)
class Refound:
    """The cluster has lost its majority for good: `member` continues alone, as cluster `cluster_id`.

    `rota cluster recover` writes it into the log of that member; it is never proposed. All other members are removed,
    and their runs orphaned.
    """

    at_us: int
    cluster_id: str
    member: str


@dataclass(frozen=True, slots=True)
class Kept:
    """A saved task (`node.state.saved`): the fields of `TaskRow` that do not follow from its spec."""

    #: The task's definition: `Spec.pack()`.
    spec_packed: bytes
    #: The number of its registration.
    order: int
    #: The version of its definition, from 1.
    version: int
    #: When it was registered, in microseconds since the epoch.
    registered_at_us: int
    #: The time that its schedule counts from, in microseconds since the epoch.
    since_us: int
    #: The last occurrence that was decided, in microseconds since the epoch.
    through_us: int
    #: Whether it is paused.
    paused: bool = False
    #: Of a sticky task, the member that made the last claim; None: no member, or the task is not sticky.
    incumbent: str | None = None
    #: How many occurrences were skipped.
    skipped: int = 0
    #: How many occurrences were missed.
    missed: int = 0
    #: The outcome of its last ended run; None: no run has ended.
    last: Outcome | None = None
    #: Its latest runs started by hand, as (Idempotency-Key or "", run id), oldest first.
    requests: tuple[tuple[str, str], ...] = ()
    #: When a run last succeeded, in microseconds since the epoch; None: no run has.
    succeeded_at_us: int | None = None


@dataclass(frozen=True, slots=True)
class RestoreTasks:
    """Restore a part of the saved tasks of another cluster, all or none."""

    #: When it was proposed, in microseconds since the epoch.
    at_us: int
    #: How many tasks were restored from the same file before. Refused if there are others.
    beside: int
    #: The saved last token: those given from now on are greater.
    token: int
    #: The saved last registration number: those given from now on are greater.
    orders: int
    #: The saved settings, by their names in `Settings`; may be empty.
    settings: dict[str, Any]
    #: The saved tasks of this part.
    tasks: tuple[Kept, ...]


Entry = (
    FoundCluster
    | TakeLead
    | Join
    | AddMember
    | RemoveMember
    | Drain
    | StandAside
    | MarkDown
    | ChangeSettings
    | PutTasks
    | DeleteTask
    | Pause
    | Start
    | Enqueue
    | SkipOccurrences
    | Claim
    | Began
    | Checkpoint
    | Finish
    | Cancel
    | Breached
    | Refound
    | RestoreTasks
    | ChannelEntry
)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An entry that this version cannot read: an unknown `code`, or fields of wrong types.

    It is refused; its proposal is counted and its result kept like any other.
    """

    code: int
    why: str


@dataclass(frozen=True, slots=True)
class ProposalId:
    """The proposer, its session and a sequence number, by which a retry is recognized.

    A session is one start of a member's process; a member's sessions only grow. Sequence numbers begin with 1.
    """

    proposer: str
    session: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """An entry and its id. One Raft entry holds a list of these."""

    id: ProposalId
    entry: Entry | Unreadable
