"""The inputs and outputs of a duty's step: plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from node.state.entries import Entry
from node.state.value import Run


class Owners(Protocol):
    """The owners of tasks, as computed from some recent state."""

    def owner(self, task: str, /) -> str | None:
        """Return the member that owns `task`; None if no member may run it, or if the task is not known."""

    def preference(self, task: str, /) -> list[str]:
        """Return the members that may run `task`, in the order in which they would take it. `KeyError`: not known."""

    def guards(self, task: str, holder: str, /) -> list[str]:
        """Return the members that should be ready to take over a run of `task` from `holder`; empty if unknown."""


@dataclass(frozen=True, slots=True)
class LeaseView:
    """A live lease: its incarnation, and its period. The period rises each time a lease is granted after a lapse."""

    incarnation: int
    period: int


@dataclass(frozen=True, slots=True)
class LocalAttempt:
    """An attempt on this member, from its launch until its end is committed, under its token.

    `ended`: its work has ended, and its `Finish` is in flight.
    """

    token: int
    ended: bool = False
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Launch:
    """Start the attempt that holds `run`. The run is given as it is in the state: spec, params, checkpoint, token."""

    run: Run


@dataclass(frozen=True, slots=True)
class CancelWork:
    """Ask the attempt to end, because its run is being cancelled. `why` is `Run.cancelling`."""

    run_id: str
    token: int
    why: str


@dataclass(frozen=True, slots=True)
class HandOver:
    """Ask the attempt to save a checkpoint and stop, so that the task's owner can continue."""

    run_id: str
    token: int


@dataclass(frozen=True, slots=True)
class KillAttempt:
    """End the attempt at once, because its token is no longer the run's."""

    run_id: str
    token: int


Order = Launch | CancelWork | HandOver | KillAttempt


@dataclass(frozen=True, slots=True)
class WaitsForRoom:
    """A run of this member that is due and has no room."""

    #: The task's name.
    task: str
    #: The run; None: an occurrence that is not claimed yet.
    run_id: str | None
    #: The time of the occurrence, in microseconds since the epoch.
    fire_at_us: int
    #: The name of its kind's bound (`KindTerms`); "": it has none.
    bound: str = ""
    #: Whether the run is of a backfill.
    backfill: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """How many processes of one preparation are needed now (`start`), and how many may stay (`keep`)."""

    start: int = 0
    keep: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """The outcome of a step: entries to propose, orders to give, and when to step again."""

    #: Entries to propose. The result of each is reported to `Duty.answered`.
    entries: tuple[Entry, ...] = ()
    #: Orders to the runner.
    orders: tuple[Order, ...] = ()
    #: When to step again, in microseconds since the epoch; None: only when an input changes.
    wake_us: int | None = None
    #: The runs and occurrences that are due here and have no room.
    waiting_for_room: tuple[WaitsForRoom, ...] = ()
    #: The own tasks whose decision failed, which is a bug in Rota, with the exceptions. They are decided on again.
    undecided: tuple[tuple[str, Exception], ...] = ()
    #: The bounds of kinds that are used up.
    full: frozenset[str] = frozenset()
    #: The processes to keep prepared, by preparation; empty: no change.
    wanted: Mapping[str, Wanted] = field(default_factory=dict)


Held = Mapping[str, LocalAttempt]
"""The attempts on this member, by run id."""
