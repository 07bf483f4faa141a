"""The inputs and outputs of `node.duty.why`: plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hashing.preference import Reason
from node.duty.conditions import Place
from node.duty.hold import Hold


@dataclass(frozen=True, slots=True)
class WhyStep:
    """A step of the walk: its place, what was found there, and whether the walk ended there."""

    place: Place
    found: str
    ends: bool = False


@dataclass(frozen=True, slots=True)
class WhyFacts:
    """What the answering member knows beside the state, from itself and from others."""

    #: The answering member.
    me: str
    #: The leader that it knows; None: no leader.
    leader: str | None
    #: Whether it sees a quorum.
    quorum: bool
    #: The task's owner by its placement; None: nobody.
    owner: str | None
    #: The reasons of the placement, by preference.
    because: tuple[Reason, ...] = ()
    #: Whether the owner was asked.
    asked: bool = False
    #: What the asked owner answered; None: nothing holds the task there, or the owner did not answer.
    hold: Hold | None = None
    #: Why the owner did not answer; "": it answered, or was not asked.
    away: str = ""
    #: Why members do not offer the task's kind, by member.
    unoffered: Mapping[str, str] = field(default_factory=dict)
    #: Since when attempts are frozen, in microseconds since the epoch, by run.
    frozen_since_us: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Why:
    """Why a task does not run: where the walk through the reasons ended."""

    #: The reason, as a code.
    code: str
    #: What was found, as a sentence.
    detail: str
    #: What to do, as a sentence.
    remedy: str
    #: Until when this holds, in microseconds since the epoch; None: not known.
    until_us: int | None = None
    #: The run that is held, or runs; None: no run.
    run_id: str | None = None
    #: The member where the task is held, or runs; None: no member.
    member: str | None = None
    #: The other runs that it waits for.
    runs: tuple[str, ...] = ()
    #: The steps of the walk up to here.
    steps: tuple[WhyStep, ...] = ()

    def sentence(self, task: str) -> str:
        """What holds the task, or where it runs, and what to do, in one sentence."""
        verb = "runs" if self.code == "running" else "does not run"
        return f"{task} {verb}: {self.detail}; {self.remedy}"
