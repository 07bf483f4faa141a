"""How long the work of a run took."""

from node.state.value import Run


def took_us(run: Run, ended_us: int) -> int | None:
    """How long the last attempt of a run worked that ended at `ended_us`, in microseconds; None: none began.

    A run may end long after its last attempt: cancelled while it waited for the next one.
    """
    latest = run.attempts[-1] if run.attempts else None
    return None if latest is None else span_us(latest.started_at_us, latest.finished_at_us, ended_us)


def span_us(started_us: int | None, finished_us: int | None, ended_us: int) -> int | None:
    """The same by the times of that attempt; `finished_us` None: it ended with its run.

    >>> span_us(5, 9, 20), span_us(5, None, 20), span_us(None, None, 20)
    (4, 15, None)
    >>> span_us(9, 5, 5)  # all are wall clock times, and a clock may have been set back
    0
    """
    if started_us is None:
        return None
    return max(0, (ended_us if finished_us is None else finished_us) - started_us)
