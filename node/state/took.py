"""How long a run took."""

from typing import Final

from node.state.value import Run

RULES_TOOK: Final = 4
"""From these rules on (`value.RULES`) an outcome is timed from the run's first claim; before, by its last attempt."""


def took_us(run: Run, ended_us: int) -> int | None:
    """How long a run took that ended at `ended_us`, from its first claim to its end, in microseconds.

    The pauses between its attempts are in it. None: no member has claimed it. Of a run with more attempts than are kept
    (`draft.ATTEMPTS_KEPT`), the time begins with the first that is kept.
    """
    if not run.attempts:
        return None
    return max(0, ended_us - run.attempts[0].claimed_at_us)  # a clock may have been set back


def latest_took_us(run: Run, ended_us: int) -> int | None:
    """How long the work of its last attempt took; None: none began. What `took_us` was before `RULES_TOOK`."""
    latest = run.attempts[-1] if run.attempts else None
    if latest is None or latest.started_at_us is None:
        return None
    return max(0, (ended_us if latest.finished_at_us is None else latest.finished_at_us) - latest.started_at_us)
