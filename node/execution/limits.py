"""Decides how much of its machine an attempt may use, by the task's and the member's limits and its usage. Pure.

Sizes are in bytes, `cpu_milli` is in thousandths of a core, times (`*_s`) are in seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Final, Literal, NamedTuple

from node.storage.room import GIB, size
from tasks.definition.limits import Limits

LOOK_S_MAX: Final = 1.0
LOOK_S_MIN: Final = 0.05
"""The bounds of the pause between two looks at an attempt's usage. While the attempt does not grow, each pause is
`CALM_TIMES` times as long as the previous pause."""

CALM_TIMES: Final = 1.6

FILLED_BYTES_PER_S: Final = 2 * GIB
"""The rate at which an attempt may fill memory. By this rate the next look comes sooner if less memory is free on the
machine."""

COST_TIMES: Final = 200
"""The shortest pause after a look, as a multiple of the processor time that the look took."""

GROWTH: Final = 16
"""An attempt counts as growing if its usage has risen by more than a sixteenth of its limit since the last look."""

Enforced = Literal["memory", "cpu", "processes"]
"""A limit that the kernel enforces if its cgroup v2 controller is enabled."""

CONTROLLERS: Final[Mapping[Enforced, str]] = {"memory": "memory", "processes": "pids", "cpu": "cpu"}
"""The cgroup v2 controller for each of these limits."""

SETTINGS: Final[Mapping[str, str]] = {
    "memory": "ROTA_LIMIT_MEMORY",
    "cpu_milli": "ROTA_LIMIT_CPU",
    "processes": "ROTA_LIMIT_PROCESSES",
    "files": "ROTA_LIMIT_FILES",
    "scratch": "ROTA_SCRATCH_BYTES",
    "log": "ROTA_LOG_BYTES",
}
"""The setting of the member's bound for each field of `Amounts`."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """The amount that one attempt may use of each resource; None: no bound."""

    #: Memory of all its processes, in bytes.
    memory: int | None = None
    #: Processor time, in thousandths of a core.
    cpu_milli: int | None = None
    #: How many processes and threads it may have at once.
    processes: int | None = None
    #: How many files each of its processes may have open.
    files: int | None = None
    #: The size of its scratch folder, in bytes.
    scratch: int | None = None
    #: The size of its log, in bytes.
    log: int | None = None

    @classmethod
    def unpacked(cls, values: Mapping[str, int | None]) -> "Amounts":
        """Return the amounts from their fields, as msgpack unpacks them."""
        return cls(**{field.name: values[field.name] for field in fields(cls)})

    @property
    def bounds(self) -> dict[str, int]:
        """Return the amounts that have a bound, by their field names."""
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name)) is not None}


NO_BOUNDS: Final = Amounts()


def asked(limits: Limits) -> Amounts:
    """Return the amounts that a task's definition sets."""
    return Amounts(
        memory=limits.memory,
        cpu_milli=limits.cpu_milli,
        processes=limits.processes,
        files=limits.files,
        scratch=limits.scratch,
        log=limits.log,
    )


class Refused(NamedTuple):
    """The refusal of an attempt whose limits exceed the limits of its member. `error` is a sentence."""

    error: str


def settled(task: Amounts, most: Amounts, member: str, files_hard: int) -> Amounts | Refused:
    """Decide how much an attempt of a task with the limits `task` may use on a member that allows `most`.

    A limit above the member's limit is refused, never lowered. `files_hard` is the most files that a process of an
    attempt can have open on the member (`ulimit -Hn` less the share that the node keeps for itself).

    >>> settled(Amounts(memory=64), Amounts(memory=128, log=9), "node-1", 1024)
    Amounts(memory=64, cpu_milli=None, processes=None, files=None, scratch=None, log=9)
    """
    over = [
        f"limits.{_field(name)} is {_exact(name, value)}, and one attempt may have {_exact(name, bound)} on {member} "
        f"({SETTINGS[name]})"
        for name, value in task.bounds.items()
        if (bound := getattr(most, name)) is not None and value > bound
    ]
    if task.files is not None and task.files > files_hard and not over:
        over.append(
            f"limits.files is {task.files}, and a process of an attempt may have {files_hard} open on {member} (ulimit "
            "-Hn there, without what the node keeps for itself)"
        )
    if over:
        return Refused("; ".join(over) + "; lower the limit, or raise what the member allows")
    return replace(most, **task.bounds)


def _field(name: str) -> str:
    return "cpu" if name == "cpu_milli" else name


def _exact(name: str, amount: int) -> str:
    match name:
        case "cpu_milli":
            return f"{amount / 1000:g}"
        case "memory" | "scratch" | "log":
            return f"{amount:,} bytes"
    return str(amount)


def allowed_by(name: str, task: Amounts, member: str) -> str:
    """Return the name of the bound that applies to a resource: the task's limit, or else the member's setting."""
    if getattr(task, name) is not None:
        return f"limits.{_field(name)}"
    return f"{SETTINGS[name]} on {member}"


class Usage(NamedTuple):
    """The usage of an attempt: memory in bytes, processes and threads, and how many forks the kernel has refused."""

    memory: int
    processes: int
    forks_refused: int = 0


class Watched(NamedTuple):
    """The bounds to watch. The task's own limits and the member's name are for messages."""

    may: Amounts
    task: Amounts
    member: str


def over(used: Usage, watched: Watched) -> str | None:
    """Return a sentence with figures on the limit that an attempt has exceeded; None: it has exceeded no limit.

    >>> watched = Watched(Amounts(memory=2**26, processes=8), Amounts(processes=8), "node-1")
    >>> over(Usage(65 * 2**20, 3), watched)
    'over its limit of memory: its 3 processes and threads held 65 MiB, and ROTA_LIMIT_MEMORY on node-1 allows 64 MiB'
    >>> over(Usage(2**20, 9), watched)
    'over its limit of processes: it had 9 processes and threads, and limits.processes allows 8'
    """
    may = watched.may
    if may.processes is not None and (used.processes > may.processes or used.forks_refused):
        had = (
            f"it had {used.processes} processes and threads"
            if used.processes > may.processes
            else f"it had {may.processes} processes and threads and tried to start more"
        )
        return f"over its limit of processes: {had}, and {_allows('processes', watched)} {may.processes}"
    if may.memory is not None and used.memory > may.memory:
        held = f"its {used.processes} processes and threads held {_near(used.memory, may.memory)}"
        return f"over its limit of memory: {held}, and {_allows('memory', watched)} {size(may.memory)}"
    return None


def out_of_memory(watched: Watched) -> str:
    """Return the sentence of `over` for an attempt that the kernel has killed for want of memory."""
    return (
        f"over its limit of memory: the kernel killed it, since {_allows('memory', watched)} "
        f"{size(watched.may.memory or 0)}"
    )


def _allows(name: str, watched: Watched) -> str:
    return f"{allowed_by(name, watched.task, watched.member)} allows"


def _near(held: int, bound: int) -> str:
    """Format `held`, such as "64 MiB"; in bytes if `bound` would look the same."""
    return size(held) if size(held) != size(bound) else f"{held:,} bytes"


class Pace(NamedTuple):
    """The pace of looks at an attempt: its usage at the last look, and the pause after it."""

    used: Usage = Usage(0, 0)
    pause_s: float = LOOK_S_MIN


def next_look(pace: Pace, used: Usage, may: Amounts, free_bytes: int, cost_s: float) -> Pace:
    """Decide the pause until the next look at an attempt that uses `used`.

    The pause is short while the attempt grows, or if it could fill a quarter of the machine's free memory in a longer
    pause. An attempt that does not grow is measured once a second. `cost_s` is the processor time of this look.

    >>> used, may = Usage(2**20, 3), Amounts(memory=2**26)
    >>> calm = next_look(Pace(used, 0.8), used, may, 2**34, 0.0002)
    >>> calm.pause_s, next_look(calm, Usage(2**25, 3), may, 2**34, 0.0002).pause_s
    (1.0, 0.05)
    """
    grew = any(
        bound is not None and now - before > bound // GROWTH
        for now, before, bound in (
            (used.memory, pace.used.memory, may.memory),
            (used.processes, pace.used.processes, may.processes),
        )
    )
    calm_s = LOOK_S_MIN if grew else min(LOOK_S_MAX, CALM_TIMES * pace.pause_s)
    if may.memory is not None:
        calm_s = min(calm_s, max(LOOK_S_MIN, free_bytes / 4 / FILLED_BYTES_PER_S))
    return Pace(used, max(calm_s, min(LOOK_S_MAX, COST_TIMES * cost_s)))


def limits_not_held(controllers: tuple[str, ...], why_not: str) -> tuple[str, ...]:
    """Return a sentence on the limits that this machine's kernel does not enforce; empty if it enforces all of them.

    `controllers` are the cgroup v2 controllers delegated to the node; `why_not` says why the others are not delegated.

    >>> limits_not_held(("memory", "pids", "cpu"), "")
    ()
    >>> limits_not_held(("memory", "pids"), "no cgroup")
    ('the kernel does not hold limits of cpu (it is not bounded): no cgroup',)
    """
    lacking = [name for name, controller in CONTROLLERS.items() if controller not in controllers]
    if not lacking:
        return ()
    watched = " and ".join(name for name in lacking if name != "cpu")
    parts = [f"{watched} (they are watched, up to once a second)"] if watched else []
    parts += ["cpu (it is not bounded)"] if "cpu" in lacking else []
    return (f"the kernel does not hold limits of {' and '.join(parts)}{f': {why_not}' if why_not else ''}",)
