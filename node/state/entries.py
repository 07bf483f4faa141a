"""The entries: all that can be proposed. One dataclass each; `codec` packs them, `apply` takes them.

`at_us` is the proposer's wall clock. Where an entry bears a token, `apply` refuses it unless the token is
the run's present one.
"""

from dataclasses import dataclass
from typing import Any, Literal

from node.state.value import DownReason, Labels, Outcome, PassedOver

AttemptEnd = Literal["succeeded", "failed", "cancelled", "timed_out", "not_started", "handed_over"]


@dataclass(frozen=True, slots=True)
class Seed:
    """A member as it is named before it has joined: by ROTA_MEMBERS, or by POST /v1/members."""

    id: str
    host: str
    raft_port: int
    http_port: int


@dataclass(frozen=True, slots=True)
class FoundCluster:
    """The first entry of a cluster: its id, and who sits in which slot. Refused once there is one."""

    at_us: int
    cluster_id: str
    members: tuple[Seed, ...]


@dataclass(frozen=True, slots=True)
class TakeLead:
    """`member` leads since `term`. Proposed on election; refused if a later term's is applied.

    `rules` is the latest that its build knows (`node.state.value.Lead`).
    """

    at_us: int
    member: str
    term: int
    rules: int = 0


@dataclass(frozen=True, slots=True)
class Join:
    """A member starts, or comes back after it was marked down: a new incarnation. Orphans its active runs.

    `after` is the incarnation that it knew to be its last; refused if there has been another since. So one that was
    long under way cannot supersede the incarnation in which the member works by now. Result: `{"incarnation": n}`.
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
    """A member leaves for good: its slot is vacant.

    One that is not down may hold a lease, and its work may go on until that is over: it is `leaving` from now on, gets
    nothing new, and goes when it is down, by its own word or by the leader's. Result: `{"gone"}`, whether it went at
    once.
    """

    at_us: int
    member: str


@dataclass(frozen=True, slots=True)
class Drain:
    """`on`: the member keeps what runs and gets nothing new. Not `on`: it is up again.

    `lasting` False: until it joins again, as a member that stops asks for itself.
    """

    at_us: int
    member: str
    on: bool
    lasting: bool = True


@dataclass(frozen=True, slots=True)
class StandAside:
    """A member cannot take on anything new now, and says so itself: `why` says what is wrong; "": it can again.

    It keeps what runs, is `draining` meanwhile, and others own its tasks. Refused if its incarnation is not the one
    named; forgotten when it joins again or is marked down.
    """

    at_us: int
    member: str
    incarnation: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class MarkDown:
    """A member is down. Refused if its incarnation, or the leadership (`term`), is not the one named.

    A member that stops in good order proposes this for itself, with reason `stopped` and term 0.
    """

    at_us: int
    member: str
    incarnation: int
    reason: DownReason
    term: int


@dataclass(frozen=True, slots=True)
class ChangeSettings:
    """Settings to change, by their names in `Settings`."""

    at_us: int
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Put:
    """Register or change a task. `if_version` None: whatever there is; 0: nothing may be there."""

    spec_packed: bytes
    if_version: int | None = None


@dataclass(frozen=True, slots=True)
class PutTasks:
    """All or none; an unchanged spec keeps its version.

    Result: `{"tasks": [[name, version, change], ...]}`, change being `created`, `changed` or `unchanged`.
    """

    at_us: int
    puts: tuple[Put, ...]


@dataclass(frozen=True, slots=True)
class DeleteTask:
    """The task goes, and its runs are cancelled: at once where nobody holds them, else by whoever does."""

    at_us: int
    task: str
    if_version: int | None = None


@dataclass(frozen=True, slots=True)
class Pause:
    """`on`: nothing of the task falls due. Not `on`: its schedule counts from now."""

    at_us: int
    task: str
    on: bool


@dataclass(frozen=True, slots=True)
class Start:
    """A run by hand: it waits for the task's owner to claim it. Refused where overlap forbids.

    `key` is the Idempotency-Key: a second Start with it answers with the first one's run. The run's `fire_at` is
    `fire_at_us`, or `at_us`, moved on by a microsecond where the task has an occurrence of that time already.
    Result: `{"run_id": ...}`.
    """

    at_us: int
    task: str
    params: dict[str, Any] | None = None
    fire_at_us: int | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Occurrences that fell due while another run was active, under `overlap: queue`. They wait; 100 at most."""

    at_us: int
    task: str
    fire_at_us: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SkipOccurrences:
    """Occurrences that are not run: `skipped` (overlap) or `missed` (catch-up). Recorded and counted.

    `fire_at_us` is the first and the last of `count` that follow one another. Where `count` is 0, as it was written
    before, it holds each of them.
    """

    at_us: int
    task: str
    state: PassedOver
    fire_at_us: tuple[int, ...]
    count: int = 0


@dataclass(frozen=True, slots=True)
class Claim:
    """The entry that gives an attempt to a member: of a new occurrence, or of a run that waits or is orphaned.

    Accepted only if the member is up in that incarnation, the occurrence has not been claimed before, and
    overlap allows it. `run_id` is None for a scheduled occurrence that nobody has claimed yet; where it is given,
    the run is that one, whatever `fire_at_us` says.
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
    """The place to resume from: msgpack, 64 KiB at most."""

    at_us: int
    run_id: str
    token: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Finish:
    """The attempt has ended. `not_started`: given back; `handed_over`: stopped so that its owner may go on.

    `retry` False: a failure that another attempt would only repeat. `log_truncated`: the attempt's log is not complete.
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
    """Somebody wants the run ended: at once where nobody holds it, else by whoever does."""

    at_us: int
    run_id: str
    why: str = "asked"


@dataclass(frozen=True, slots=True)
class Refound:
    """The cluster has lost its majority for good: `member` goes on alone, as cluster `cluster_id`.

    Written into the log of the one that is left by `rota cluster recover`, never proposed. All others are removed, and
    their runs orphaned.
    """

    at_us: int
    cluster_id: str
    member: str


@dataclass(frozen=True, slots=True)
class Kept:
    """A task as it was saved (`node.state.saved`): the fields of `TaskRow` that do not follow from its spec."""

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
    """A part of what was saved of another cluster. All or none of it.

    `beside` is how many tasks there are by now, of the same file: refused if there are others. `token` and `orders` are
    as they were there: what is given here is greater. `settings`, by their names in `Settings`, may be empty.
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
    | Refound
    | RestoreTasks
)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands for an entry that this version cannot read: a `code` it does not know, or fields that do not fit.

    It is refused, and its proposal counted and remembered like any other.
    """

    code: int
    why: str


@dataclass(frozen=True, slots=True)
class ProposalId:
    """Who proposed it, in which session, under which sequence number: what makes a retry safe.

    A session is one start of a member's process; sessions of a member only grow. Sequence numbers begin with 1.
    """

    proposer: str
    session: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """An entry and its id. What made up one Raft entry is a list of these."""

    id: ProposalId
    entry: Entry | Unreadable
