"""Computes how long a run took, and when a run without a holder may be claimed, even if a wrong clock stamped it."""

from typing import Final

from node.state.value import Run
from tasks.definition.policy import away_after_s, retry_after_s

APART_S: Final = 5.0
"""The greatest difference between members' clocks once the members have agreed on the time."""

RULES_TOOK: Final = 4
"""From these rules on (`value.RULES`), a run is timed from its first claim; before, its last attempt was timed."""


def due_us(run: Run, now_us: int) -> int:
    """Return the time before which a waiting or orphaned run may not be claimed, in microseconds; 0: it may be at once.

    A run waits no longer than its policy says. If `run.due_us` is further off, a clock that was ahead has stamped it,
    such as the clock of a member that had just started and did not know the agreed time yet; it is ignored.

    `now_us`: the caller's time, or the time stamp of the entry that claims the run.
    """
    return 0 if run.due_us - now_us > round((_wait_s(run) + APART_S) * 1_000_000) else run.due_us


def _wait_s(run: Run) -> float:
    """Return how long the run waits by its policy, in seconds."""
    spec = run.spec
    if run.state == "orphaned":
        return spec.failover.grace_s
    pause_s = away_after_s(spec.retry, run.aways) if run.aways else retry_after_s(spec.retry, run.failures)
    return pause_s or 0.0


def took_us(run: Run, ended_us: int) -> int | None:
    """Return the time from a run's first claim to its end at `ended_us`, in microseconds; None: it was never claimed.

    The pauses between its attempts are included. If a run had more attempts than are kept (`draft.ATTEMPTS_KEPT`), the
    time begins with the first kept attempt.
    """
    if not run.attempts:
        return None
    return max(0, ended_us - run.attempts[0].claimed_at_us)  # a clock may have been set back


def latest_took_us(run: Run, ended_us: int) -> int | None:
    """Return the duration of a run's last attempt; None: none began. Used for `took_us` before `RULES_TOOK`."""
    latest = run.attempts[-1] if run.attempts else None
    if latest is None or latest.started_at_us is None:
        return None
    return max(0, (ended_us if latest.finished_at_us is None else latest.finished_at_us) - latest.started_at_us)
