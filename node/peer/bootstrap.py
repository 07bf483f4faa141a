"""The task `bootstrap/MEMBER`, in which a member fetches finished runs that it lacks: its progress as a value. Pure.

Members send one another these values. `node.history.feeders` decides which member sends the runs.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from node.peer.portions import Gap, Portion

PREFIX: Final = "bootstrap/"
"""No registered task has a name with this prefix: such names have no slash (`tasks.definition.spec.NAME_PATTERN`)."""


def task_of(member: str) -> str:
    """Return the name of a member's bootstrap.

    >>> task_of("node-4"), member_of("bootstrap/node-4"), member_of("orders")
    ('bootstrap/node-4', 'node-4', None)
    """
    return PREFIX + member


def member_of(task: str) -> str | None:
    """Return the member whose bootstrap has this name; None if no bootstrap has it."""
    return task.removeprefix(PREFIX) if task.startswith(PREFIX) else None


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """How far a member is in fetching the finished runs that it lacked. Times (`*_us`) are microseconds since the epoch
    by its clock.
    """

    #: The member's id.
    member: str
    #: When it began.
    started_us: int
    #: The number of log indexes whose finished runs it lacked when it began, or has lacked since.
    indexes_total: int
    #: The number of these indexes whose finished runs it has by now.
    indexes: int = 0
    #: The last log index of the latest portion.
    index: int = 0
    #: The member that sends the runs now; None: no member does.
    feeder: str | None = None
    #: How many runs each feeder has sent, in the order in which the feeders began.
    fed: tuple[tuple[str, int], ...] = ()
    #: How long fetching took, in seconds, without the time spent waiting.
    fetching_s: float = 0.0
    #: Why no member sends runs, as a sentence; None: one does.
    waiting: str | None = None
    #: When it had all runs; None: it still lacks some.
    finished_us: int | None = None

    @property
    def runs(self) -> int:
        """How many runs were fetched."""
        return sum(runs for _, runs in self.fed)

    @property
    def runs_per_s(self) -> float:
        """How many runs were fetched in each second of fetching."""
        return self.runs / self.fetching_s if self.fetching_s else 0.0

    @property
    def missing(self) -> int:
        """The number of indexes whose runs it still lacks; 0 once it has finished."""
        return 0 if self.finished_us is not None else self.indexes_total - self.indexes


def begin(member: str, gaps: Iterable[Gap], at_us: int) -> Bootstrap:
    """Return a bootstrap that begins now, with these gaps to fill."""
    return Bootstrap(member, at_us, indexes_in(gaps))


def with_gaps(bootstrap: Bootstrap, gaps: Iterable[Gap]) -> Bootstrap:
    """Return the bootstrap with these gaps left to fill, which may differ from its previous gaps."""
    return replace(bootstrap, indexes_total=bootstrap.indexes + indexes_in(gaps))


def fed_by(bootstrap: Bootstrap, feeder: str) -> Bootstrap:
    """Return the bootstrap, fed by this member from now on."""
    known = any(name == feeder for name, _ in bootstrap.fed)
    fed = bootstrap.fed if known else (*bootstrap.fed, (feeder, 0))
    return replace(bootstrap, feeder=feeder, fed=fed, waiting=None)


def with_portion(bootstrap: Bootstrap, portion: Portion, took_s: float) -> Bootstrap:
    """Return the bootstrap after its feeder has sent a portion, which took `took_s` seconds."""
    fed = tuple((name, runs + len(portion.runs) * (name == bootstrap.feeder)) for name, runs in bootstrap.fed)
    return replace(
        bootstrap,
        indexes=bootstrap.indexes + portion.through - portion.after,
        index=portion.through,
        fed=fed,
        fetching_s=bootstrap.fetching_s + took_s,
    )


def wait_because(bootstrap: Bootstrap, why: str) -> Bootstrap:
    """Return the bootstrap without a feeder, with the reason `why`."""
    return replace(bootstrap, feeder=None, waiting=why)


def finished_bootstrap(bootstrap: Bootstrap, at_us: int) -> Bootstrap:
    """Return the bootstrap, finished: no runs are missing, or none are wanted. Leaves out feeders that sent no runs."""
    fed = tuple((name, runs) for name, runs in bootstrap.fed if runs)
    return replace(bootstrap, feeder=None, waiting=None, fed=fed, finished_us=at_us)


def indexes_in(gaps: Iterable[Gap]) -> int:
    """Count the indexes in these gaps."""
    return sum(gap.through - gap.after for gap in gaps)


def summary(bootstrap: Bootstrap) -> str:
    """Say what was fetched so far, and from whom.

    >>> summary(Bootstrap("c", 0, 9, fed=(("a", 1500), ("b", 500)), fetching_s=2.5))
    '2,000 finished runs in 2.5 s: 1,500 from a, 500 from b'
    >>> summary(Bootstrap("c", 0, 9))
    '0 finished runs'
    """
    if not bootstrap.fed:
        return f"{bootstrap.runs:,} finished runs"
    sources = ", ".join(f"{runs:,} from {name}" for name, runs in bootstrap.fed)
    return f"{bootstrap.runs:,} finished runs in {bootstrap.fetching_s:.1f} s: {sources}"
