"""The life of a run: its states, and the one table of what may follow what.

A run is one occurrence of a task. `node.state.apply` makes the changes of `TRANSITIONS` and no others: the tests and
the simulation hold it to that. The picture in ARCHITECTURE.md is drawn from it.
"""

from typing import Final, Literal

RunState = Literal[
    "claimed",
    "running",
    "waiting",
    "orphaned",
    "succeeded",
    "failed",
    "cancelled",
    "timed_out",
    "abandoned",
    "skipped",
    "missed",
]

ACTIVE: Final[frozenset[RunState]] = frozenset({"claimed", "running", "waiting", "orphaned"})
"""A run in one of these is kept in the replicated state."""

HELD: Final[frozenset[RunState]] = frozenset({"claimed", "running"})
"""A run in one of these belongs to a member, which holds its current token."""

FINAL: Final[frozenset[RunState]] = frozenset(
    {"succeeded", "failed", "cancelled", "timed_out", "abandoned", "skipped", "missed"}
)
"""A run in one of these is history."""

TRANSITIONS: Final[dict[RunState | None, frozenset[RunState]]] = {
    # None is "not there yet": an occurrence is claimed as it falls due, or waits
    # (started by hand, or queued behind another), or is recorded as not run.
    None: frozenset({"claimed", "waiting", "skipped", "missed"}),
    "waiting": frozenset({"claimed", "cancelled"}),
    # A word of the end may come before the word that the work began.
    "claimed": frozenset(
        {"running", "succeeded", "failed", "cancelled", "timed_out", "waiting", "orphaned", "abandoned"}
    ),
    "running": frozenset({"succeeded", "failed", "cancelled", "timed_out", "waiting", "orphaned", "abandoned"}),
    "orphaned": frozenset({"claimed", "cancelled"}),
    "succeeded": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
    "timed_out": frozenset(),
    "abandoned": frozenset(),
    "skipped": frozenset(),
    "missed": frozenset(),
}
"""`failed -> waiting -> claimed` of a retry appears here as `running -> waiting`: the attempt
failed, the run waits for its next one. An attempt that a member gives back unstarted, and one that
a continuous task's holder hands over, lead to `waiting` too."""


def may_follow(before: RunState | None, after: RunState) -> bool:
    """Whether a run in state `before` (None: not there yet) may go to state `after`.

    >>> may_follow("claimed", "running"), may_follow("succeeded", "running")
    (True, False)
    """
    return after in TRANSITIONS[before]
