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

    `after` is the last incarnation that the member knew of; refused if there has been another since. So a delayed entry
    cannot supersede the present incarnation. Result: `{"incarnation": n}`.
    """

    at_us: int
    member: str
    host: str
    raft_port: int
    http_port: int
    heartbeat_port: int
    labels: Labels
    capacity: int
    kinds: tuple[str, ...]
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

    at_us: int
    member: str
    incarnation: int
    reason: DownReason
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

    `key` is the Idempotency-Key: a second Start with the same key returns the first one's run. The run's `fire_at` is
    `fire_at_us`, or else `at_us`, plus a microsecond if the task has an occurrence of that time already.
    `action`, unless it is "", is what the kind does instead of the task's work, with `args`.
    Result: `{"run_id": ...}`.
    """

    at_us: int
    task: str
    params: dict[str, Any] | None = None
    fire_at_us: int | None = None
    key: str | None = None
    action: str = ""
    args: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Queue occurrences that fell due while another run was active, under `overlap: queue`; 100 at most."""

    at_us: int
    task: str
    fire_at_us: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SkipOccurrences:
    """Pass over occurrences: `skipped` (overlap) or `missed` (catch-up). They are recorded and counted.

    `fire_at_us` holds the first and the last of `count` consecutive ones. With `count` 0, which earlier versions wrote,
    it holds each of them.
    """

    at_us: int
    task: str
    state: PassedOver
    fire_at_us: tuple[int, ...]
    count: int = 0


@dataclass(frozen=True, slots=True)
class Claim:
    """Give an attempt to a member: of a new occurrence, or of a waiting or orphaned run.

    Accepted only if the member is up in that incarnation, the occurrence has not been claimed before, and overlap
    allows it. `run_id` is None for a scheduled occurrence that is not a run yet; otherwise it names the run, and
    `fire_at_us` is ignored.
    Result: `{"run_id", "token", "attempt"}`.
    """

    at_us: int
    task: str
    fire_at_us: int
    member: str
    incarnation: int
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
    """The attempt has ended. `not_started`: given back; `handed_over`: stopped so that the task's owner can continue.

    `retry` False: another attempt would fail the same way. `log_truncated`: the attempt's log is incomplete.
    """

    at_us: int
    run_id: str
    token: int
    end: AttemptEnd
    result: dict[str, Any] | None = None
    error: str | None = None
    retry: bool = True
    log_truncated: bool = False


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel a run: at once if no member holds it, else by the member that does."""

    at_us: int
    run_id: str
    why: str = "asked"


@dataclass(frozen=True, slots=True)
class Breached:
    """A deadline of a task has passed. `due_us` as in `Breach`. Refused if the state says otherwise.

    The leader names `due_us`, and whether an `undecided` occurrence is due then: a schedule is never evaluated by
    `apply`, since time zones depend on the machine.
    """

    at_us: int
    task: str
    deadline: DeadlineName
    due_us: int
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

    spec_packed: bytes
    order: int
    version: int
    registered_at_us: int
    since_us: int
    through_us: int
    paused: bool = False
    incumbent: str | None = None
    skipped: int = 0
    missed: int = 0
    last: Outcome | None = None
    requests: tuple[tuple[str, str], ...] = ()
    succeeded_at_us: int | None = None


@dataclass(frozen=True, slots=True)
class RestoreTasks:
    """Restore a part of the saved tasks of another cluster, all or none.

    `beside` is the number of tasks that were restored from the same file before: refused if there are others. `token`
    and `orders` are the saved ones: those given from now on are greater. `settings`, by their names in `Settings`, may
    be empty.
    """

    at_us: int
    beside: int
    token: int
    orders: int
    settings: dict[str, Any]
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
