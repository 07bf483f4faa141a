"""The states of a run, and the table of transitions between them.

A run is one occurrence of a task. `node.state.apply` makes only the transitions in `TRANSITIONS`; the tests and the
simulation check this.
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
    "upstream_failed",
    "upstream_skipped",
    "not_needed",
    "upstream_late",
]

AttemptEnd = Literal["succeeded", "failed", "away", "cancelled", "timed_out", "not_started", "handed_over"]
"""How an attempt ended, as reported by the member that ran it. `away`: the attempt failed because an outside service
that it needs was unreachable."""

ACTIVE: Final[frozenset[RunState]] = frozenset({"claimed", "running", "waiting", "orphaned"})
"""A run in one of these states is kept in the replicated state."""

HELD: Final[frozenset[RunState]] = frozenset({"claimed", "running"})
"""A run in one of these states belongs to a member, which holds its current token."""

FINAL: Final[frozenset[RunState]] = frozenset(
    {
        *("succeeded", "failed", "cancelled", "timed_out", "abandoned", "skipped", "missed"),
        *("upstream_failed", "upstream_skipped", "not_needed", "upstream_late"),
    }
)
"""A run in one of these states has ended, and is kept in the history only."""

TRANSITIONS: Final[dict[RunState | None, frozenset[RunState]]] = {
    # None: the run does not exist yet. An occurrence is claimed when it is due, or waits (started by hand, or queued
    # behind another run, or due because the tasks before it have ended), or is recorded as skipped or missed, or as
    # ended by those tasks.
    None: frozenset(
        {
            *("claimed", "waiting", "skipped", "missed"),
            *("upstream_failed", "upstream_skipped", "not_needed", "upstream_late"),
        }
    ),
    "waiting": frozenset({"claimed", "cancelled"}),
    # The report that an attempt has ended may come before the report that it has started.
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
    "upstream_failed": frozenset(),
    "upstream_skipped": frozenset(),
    "not_needed": frozenset(),
    "upstream_late": frozenset(),
}
"""The states that may follow each state. A retry is `running -> waiting`: the attempt has failed, and the run waits for
its next attempt. A run also waits after a member gives its claim back without starting the attempt, and after the
holder of a continuous task hands it over."""


def may_change(before: RunState | None, after: RunState) -> bool:
    """Whether a run in state `before` (None: it does not exist yet) may change to state `after`.

    >>> may_change("claimed", "running"), may_change("succeeded", "running")
    (True, False)
    """
    return after in TRANSITIONS[before]
