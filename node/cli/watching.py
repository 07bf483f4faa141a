"""Waits for the end of a run, through restarts of members, elections and times without a quorum."""

import time
from collections.abc import Callable
from typing import Any, Final

from node.client import ApiProblem, Unreachable
from tasks.definition.run import FINAL

PAUSE_S: Final = 0.3
"""The pause between two reads of the run."""

MAJORITY_S: Final = 5.0
"""The interval of reads that need a quorum. Other reads succeed without one, though then no run can end."""

AWAY_S: Final = 60.0
"""How long to retry while no member answers, or there is no quorum."""

BEHIND_S: Final = 5.0
"""How long to retry while a member does not know the run: after a restart it first fetches the ended runs."""


def patience_s(error: Exception) -> float:
    """Return how long to retry after an error, in seconds; 0 for an error that a retry does not change.

    >>> patience_s(Unreachable()), patience_s(ApiProblem(503, "", "", "")), patience_s(ApiProblem(401, "", "", ""))
    (60.0, 60.0, 0.0)
    """
    if isinstance(error, Unreachable) or (isinstance(error, ApiProblem) and error.status >= 500):
        return AWAY_S
    return BEHIND_S if isinstance(error, ApiProblem) and error.status == 404 else 0.0


def wait_for_end(
    read: Callable[[bool], dict[str, Any]],
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Read a run until it has ended, and return it.

    `read` reads the run; `read(True)` needs a quorum. `say` is called once for each series of failed reads. Raises an
    `ApiProblem` or `Unreachable` that has lasted for its `patience_s`.
    """
    asked_s, since_s = clock(), None
    while True:
        try:
            run = read(False)
            if run["state"] not in FINAL and (since_s is not None or clock() - asked_s >= MAJORITY_S):
                run = read(True)
                asked_s, since_s = clock(), None
            if run["state"] in FINAL:
                return run
        except (Unreachable, ApiProblem) as error:
            first, now_s = since_s is None, clock()
            since_s = now_s if since_s is None else since_s
            if now_s - since_s >= patience_s(error):
                raise
            if first:
                say(f"{error}; retrying for {patience_s(error):.0f} s")
        sleep(PAUSE_S)
