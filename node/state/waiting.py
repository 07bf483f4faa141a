"""From when a run without a holder may be claimed, whatever clock stamped its wait."""

from typing import Final

from node.state.value import Run
from tasks.definition.policy import away_after_s, retry_after_s

APART_S: Final = 5.0
"""Members' clocks differ by less once they have agreed on the time."""


def due_us(run: Run, now_us: int) -> int:
    """The time before which a waiting or orphaned run may not be claimed, in microseconds; 0: it may be at once.

    A run waits no longer than its policy says. A time that is further off was stamped by a clock that was ahead, such
    as that of a member that had just started and did not know the agreed time yet; it is ignored.

    `now_us`: the caller's time, or that of the entry that claims the run.
    """
    return 0 if run.due_us - now_us > round((_wait_s(run) + APART_S) * 1_000_000) else run.due_us


def _wait_s(run: Run) -> float:
    """How long the run waits by its policy, in seconds."""
    spec = run.spec
    if run.state == "orphaned":
        return spec.failover.grace_s
    pause_s = away_after_s(spec.retry, run.aways) if run.aways else retry_after_s(spec.retry, run.failures)
    return pause_s or 0.0
