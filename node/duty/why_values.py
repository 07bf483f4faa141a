"""The inputs and outputs of `node.duty.why`: plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hashing.preference import Reason
from node.duty.conditions import Place
from node.duty.hold import Hold
from node.duty.upstream import Upstream


@dataclass(frozen=True, slots=True)
class WhyStep:
    """A step of the search for the obstacle: its place, the finding, and whether the search ended there."""

    place: Place
    found: str
    ends: bool = False


@dataclass(frozen=True, slots=True)
class WhyFacts:
    """The facts that the answering member knows beside the state, from itself and from other members."""

    #: The answering member.
    me: str
    #: The leader that it knows; None: no leader.
    leader: str | None
    #: Whether it sees a quorum.
    quorum: bool
    #: The task's owner by its placement, or the only member that may claim the run; None: no owner.
    owner: str | None
    #: The reasons of the placement, by preference.
    because: tuple[Reason, ...] = ()
    #: Whether the owner was asked.
    asked: bool = False
    #: The owner's answer; None: it reported no obstacle, or it did not answer.
    hold: Hold | None = None
    #: Why the owner did not answer; "": it answered, or was not asked.
    away: str = ""
    #: Why members do not offer the task's kind, by member.
    unoffered: Mapping[str, str] = field(default_factory=dict)
    #: Since when attempts are frozen, in microseconds since the epoch, by run.
    frozen_since_us: Mapping[str, int] = field(default_factory=dict)
    #: What holds the task that this one waits for through its parents; None: it has no parents, or was not asked.
    upstream: Upstream | None = None


@dataclass(frozen=True, slots=True)
class Why:
    """The answer why a task does not run, or the finding that it runs."""

    #: The reason, as a code.
    code: str
    #: The finding, as a sentence.
    detail: str
    #: The action to take, as a sentence.
    remedy: str
    #: Until when this holds, in microseconds since the epoch; None: not known.
    until_us: int | None = None
    #: The run that is held up, or that runs; None: no run.
    run_id: str | None = None
    #: The member on which the task is held up, or runs; None: no member.
    member: str | None = None
    #: The other runs that it waits for.
    runs: tuple[str, ...] = ()
    #: The steps of the search, up to the last one.
    steps: tuple[WhyStep, ...] = ()

    def sentence(self, task: str) -> str:
        """Say in one sentence what holds up the task, or where it runs, and what to do."""
        verb = "runs" if self.code == "running" else "does not run"
        return f"{task} {verb}: {self.detail}; {self.remedy}"
