"""The task `bootstrap/MEMBER`: a member fetches the finished runs that it lacks. How far it is, as a value. Pure.

Members tell one another these values. `node.history.feeders` says from which member the runs come.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from node.peer.portions import Gap, Portion

PREFIX: Final = "bootstrap/"
"""No registered task has such a name: the names of tasks have no slash (`tasks.definition.spec.NAME_PATTERN`)."""


def task_of(member: str) -> str:
    """The name of a member's bootstrap.

    >>> task_of("node-4"), member_of("bootstrap/node-4"), member_of("orders")
    ('bootstrap/node-4', 'node-4', None)
    """
    return PREFIX + member


def member_of(task: str) -> str | None:
    """The member whose bootstrap has this name; None if it is the name of no bootstrap."""
    return task.removeprefix(PREFIX) if task.startswith(PREFIX) else None


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """How far a member is in getting the finished runs that it lacked. Times (`*_us`) are microseconds since the epoch
    by its clock.
    """

    #: The member's id.
    member: str
    #: When it began.
    started_us: int
    #: How many log indexes it lacked the finished runs of.
    indexes_total: int
    #: Of how many of these it has the finished runs.
    indexes: int = 0
    #: The last log index of the latest portion.
    index: int = 0
    #: The member that sends the runs now; None: no member does.
    feeder: str | None = None
    #: How many runs each feeder has sent, in the order in which they began.
    fed: tuple[tuple[str, int], ...] = ()
    #: How long fetching took, in seconds, without the time spent waiting.
    fetching_s: float = 0.0
    #: Why no member sends runs, as a sentence; None: one does.
    waiting: str | None = None
    #: When it had all; None: it still lacks runs.
    finished_us: int | None = None

    @property
    def runs(self) -> int:
        """How many runs were fetched."""
        return sum(runs for _, runs in self.fed)

    @property
    def runs_per_s(self) -> float:
        """How many runs per second of fetching."""
        return self.runs / self.fetching_s if self.fetching_s else 0.0

    @property
    def missing(self) -> int:
        """The number of indexes whose runs it still lacks; 0 once it has finished."""
        return 0 if self.finished_us is not None else self.indexes_total - self.indexes


def begin(member: str, gaps: Iterable[Gap], at_us: int) -> Bootstrap:
    """A bootstrap that has these gaps to fill."""
    return Bootstrap(member, at_us, indexes_in(gaps))


def with_gaps(bootstrap: Bootstrap, gaps: Iterable[Gap]) -> Bootstrap:
    """The bootstrap with these gaps still to fill: there may be others than before."""
    return replace(bootstrap, indexes_total=bootstrap.indexes + indexes_in(gaps))


def fed_by(bootstrap: Bootstrap, feeder: str) -> Bootstrap:
    """The bootstrap from now on with this feeder."""
    known = any(name == feeder for name, _ in bootstrap.fed)
    fed = bootstrap.fed if known else (*bootstrap.fed, (feeder, 0))
    return replace(bootstrap, feeder=feeder, fed=fed, waiting=None)


def with_portion(bootstrap: Bootstrap, portion: Portion, took_s: float) -> Bootstrap:
    """The bootstrap after its feeder has sent a portion, which took `took_s` seconds."""
    fed = tuple((name, runs + len(portion.runs) * (name == bootstrap.feeder)) for name, runs in bootstrap.fed)
    return replace(
        bootstrap,
        indexes=bootstrap.indexes + portion.through - portion.after,
        index=portion.through,
        fed=fed,
        fetching_s=bootstrap.fetching_s + took_s,
    )


def wait_because(bootstrap: Bootstrap, why: str) -> Bootstrap:
    """The bootstrap while nobody feeds, for a reason."""
    return replace(bootstrap, feeder=None, waiting=why)


def finished_bootstrap(bootstrap: Bootstrap, at_us: int) -> Bootstrap:
    """The bootstrap once nothing is missing, or no longer wanted. Feeders that had nothing to send are left out."""
    fed = tuple((name, runs) for name, runs in bootstrap.fed if runs)
    return replace(bootstrap, feeder=None, waiting=None, fed=fed, finished_us=at_us)


def indexes_in(gaps: Iterable[Gap]) -> int:
    """The number of indexes in these gaps."""
    return sum(gap.through - gap.after for gap in gaps)


def summary(bootstrap: Bootstrap) -> str:
    """What was fetched so far, and from whom, in words.

    >>> summary(Bootstrap("c", 0, 9, fed=(("a", 1500), ("b", 500)), fetching_s=2.5))
    '2,000 finished runs in 2.5 s: 1,500 from a, 500 from b'
    >>> summary(Bootstrap("c", 0, 9))
    '0 finished runs'
    """
    if not bootstrap.fed:
        return f"{bootstrap.runs:,} finished runs"
    sources = ", ".join(f"{runs:,} from {name}" for name, runs in bootstrap.fed)
    return f"{bootstrap.runs:,} finished runs in {bootstrap.fetching_s:.1f} s: {sources}"
