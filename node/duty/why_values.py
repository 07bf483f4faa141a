"""The inputs and outputs of `node.duty.why`: plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from hashing.preference import Reason
from node.duty.hold import Hold

Place = Literal["quorum", "runs", "definition", "schedule", "owner", "time", "lease", "room", "secrets", "claim"]

UNEXPECTED: Final = frozenset(
    {
        "no_quorum",
        "no_owner",
        "no_label",
        "no_kind",
        "members_down",
        "members_draining",
        "backing_off",
        "unreadable",
        "owner_away",
        "stopping",
        "no_lease",
        "aside",
        "undecided",
        "bound",
        "max_runs",
        "secret",
        "waits",
        "due",
    }
)
"""What holds a task that nobody has asked to wait. `due` is among them once it has lasted (`node.duty.overdue`)."""


@dataclass(frozen=True, slots=True)
class WhyStep:
    """A step of the walk: where it was, what was found there, and whether it ended there."""

    place: Place
    found: str
    ends: bool = False


@dataclass(frozen=True, slots=True)
class WhyFacts:
    """What a member knows beside the state, and what others have told it.

    `me` is that member, `leader` and `quorum` are its role's, `owner` and `because` the placement's. `asked`: the owner
    was asked, and answered `hold`, or did not answer, for the reason `away`. `unoffered`: why members do not offer the
    task's kind, by member. `frozen_since_us`: since when attempts are frozen, by run.
    """

    me: str
    leader: str | None
    quorum: bool
    owner: str | None
    because: tuple[Reason, ...] = ()
    asked: bool = False
    hold: Hold | None = None
    away: str = ""
    unoffered: Mapping[str, str] = field(default_factory=dict)
    frozen_since_us: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Why:
    """Where the walk ended: a code, what was found there, what to do, and the steps up to there.

    `until_us`: until when this holds, if that is known; `member`: where it is held, or runs; `run_id`: the run that is
    held, or runs; `runs`: the others that it waits for.
    """

    code: str
    detail: str
    remedy: str
    until_us: int | None = None
    run_id: str | None = None
    member: str | None = None
    runs: tuple[str, ...] = ()
    steps: tuple[WhyStep, ...] = ()

    def sentence(self, task: str) -> str:
        """What holds it, or where it runs, and what to do: one sentence."""
        verb = "runs" if self.code == "running" else "does not run"
        return f"{task} {verb}: {self.detail}; {self.remedy}"
