"""The vocabulary for the condition of a task: a code says why it does not run, marks say what is notable. Pure.

The API returns codes (`GET /v1/tasks/{name}/why`, `/owner`, and lists of tasks). The page at `/` sorts tasks by marks,
and names marks in its verdict on the cluster. All code that describes a task's condition uses these words.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, get_args

Place = Literal["quorum", "runs", "definition", "schedule", "owner", "time", "lease", "room", "secrets", "claim"]
"""A step at which `node.duty.why` may find the reason why a task does not run."""


class TaskCondition(NamedTuple):
    """The meaning of a code: the remedy, and whether the condition is expected."""

    remedy: str
    """The action to take. {task}, {run}, {ahead} (the run that the task waits for), {first} (the task that it
    waits for through others) and {member} are filled in."""
    unexpected: bool = False
    """Whether the task waits without a request. `due` is unexpected once it has lasted (`node.duty.overdue`)."""
    held_at: Place | None = None
    """The step of `node.duty.why` that ends with this code if the owner reports it; None: owners do not report it."""


CONDITIONS: Final[Mapping[str, TaskCondition]] = {
    "no_quorum": TaskCondition(
        "start the members that are down, or repair the network between them (rota members)", unexpected=True
    ),
    "running": TaskCondition("follow it with: rota log -f {run}"),
    "disabled": TaskCondition("set enabled: true in its definition, and apply it (rota apply)"),
    "paused": TaskCondition("resume it with: rota resume {task}"),
    "unreadable": TaskCondition(
        "install a newer tzdata on {member} and restart it, or change the time zone of the task",
        unexpected=True,
        held_at="lease",
    ),
    "over": TaskCondition("give it another schedule, or run it with: rota run {task}"),
    "no_owner": TaskCondition("ask again in a moment", unexpected=True),
    "no_label": TaskCondition(
        "give a member the label (ROTA_LABELS) and restart it, or change the group of the task", unexpected=True
    ),
    "no_kind": TaskCondition("install or allow the kind on one of them, and restart it", unexpected=True),
    "members_down": TaskCondition("start one of them", unexpected=True),
    "members_draining": TaskCondition(
        "undrain one of them (rota undrain NODE), or fix the cause that it names", unexpected=True
    ),
    "by_hand": TaskCondition("run it by hand, or give it a schedule"),
    "after": TaskCondition("see the task that it waits for (rota why {first}), or run it by hand: rota run {task}"),
    "parent_gone": TaskCondition(
        "name other tasks in its `after`, or run it by hand: rota run {task}", unexpected=True
    ),
    "not_due": TaskCondition("to run it earlier: rota run {task}"),
    "behind": TaskCondition("wait for the end of the other run, or cancel it with: rota cancel {ahead}"),
    "calendar": TaskCondition(
        "make a calendar that is missing, or give one more days (rota calendar set), or change the task's `calendar`; "
        "the days of public holidays are added day by day"
    ),
    "blackout": TaskCondition("wait, or end it (rota blackout end)"),
    "pool": TaskCondition("wait, or cancel a run that holds it or goes first, or raise it (rota pools)"),
    "rate": TaskCondition("wait, or raise `per_min` in the definitions of the tasks with a rate in that pool"),
    "offered": TaskCondition("wait a moment: the member that it is offered to begins it, or its owner"),
    "backing_off": TaskCondition("wait, or fix the cause that its log shows: rota log {run}", unexpected=True),
    "owner_away": TaskCondition(
        "wait: if {member} is lost, another member takes over within seconds; otherwise see its log", unexpected=True
    ),
    "member_away": TaskCondition(
        "start {member}, or undrain it; if it does not come back, remove it (rota remove {member}): that ends its run",
        unexpected=True,
    ),
    "stopping": TaskCondition(
        "wait: the next owner takes over as soon as {member} is down", unexpected=True, held_at="lease"
    ),
    "no_lease": TaskCondition(
        "check that {member} and the leader reach each other's heartbeat port, and see the log of {member}",
        unexpected=True,
        held_at="lease",
    ),
    "aside": TaskCondition(
        "fix the cause on {member}: it then takes on work again by itself", unexpected=True, held_at="lease"
    ),
    "undecided": TaskCondition("report it, with the log of {member}", unexpected=True, held_at="lease"),
    "bound": TaskCondition(
        "wait until one of these runs ends, cancel one (rota cancel RUN), or raise that setting on {member}",
        unexpected=True,
        held_at="room",
    ),
    "max_runs": TaskCondition(
        "wait until one of these runs ends, cancel one (rota cancel RUN), or raise ROTA_MAX_RUNS on {member}",
        unexpected=True,
        held_at="room",
    ),
    "secret": TaskCondition(
        "put the file into the ROTA_SECRETS_DIR of {member}; for a variable, set it and restart {member}",
        unexpected=True,
        held_at="secrets",
    ),
    "due": TaskCondition("wait a moment", unexpected=True),
}
"""All codes by which this build says why a task does not run, or that it runs."""

UNEXPECTED: Final = frozenset(code for code, condition in CONDITIONS.items() if condition.unexpected)
"""The codes of conditions that keep a task from running although nobody has asked for this."""

Mark = Literal["unowned", "late", "overdue", "failing", "degraded", "running", "waiting", "paused", "new"]
"""A notable fact about a task. `unowned`: no member may run it. `late`: one of its deadlines is breached. `overdue`: an
occurrence or a run is due and has not begun. `degraded`: its last success left a part undone. `waiting`: it has a run
that no member holds. `paused`: paused or disabled. `new`: it has not run yet, except for backfills. A task may have
several marks."""

MARKS: Final[tuple[Mark, ...]] = get_args(Mark)
"""All marks, the most important first."""


def held_at(code: str) -> Place | None:
    """Return the step that ends with `code` if the owner reports it; None: owners do not, or the code is unknown."""
    return None if (condition := CONDITIONS.get(code)) is None else condition.held_at


def remedy(code: str, **names: str | None) -> str:
    """Return the action to take about `code`. For an unknown code, of a later version: see the member's log.

    >>> remedy("paused", task="nightly")
    'resume it with: rota resume nightly'
    """
    known = {name: value or name.upper() for name, value in names.items()}
    condition = CONDITIONS.get(code, TaskCondition("see the log of {member}"))
    return condition.remedy.format_map({"member": "the member", **known})
