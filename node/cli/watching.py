"""Seeing a run to its end, through what passes: a member that restarts, an election, a majority out of reach."""

import time
from collections.abc import Callable
from typing import Any, Final

from node.client import ApiProblem, Unreachable
from tasks.run import FINAL

PAUSE_S: Final = 0.3
"""Between two looks at the run."""

MAJORITY_S: Final = 5.0
"""Between two looks that need a majority: without one a member still tells what it knows, and no run ends."""

AWAY_S: Final = 60.0
"""So long may nobody answer, or a majority be out of reach."""

BEHIND_S: Final = 5.0
"""So long may the run be unknown: a member that comes back first fetches what has ended meanwhile."""


def patience_s(error: Exception) -> float:
    """How long an answer may stay what it is before it is taken for final; 0 for one that will not change.

    >>> patience_s(Unreachable()), patience_s(ApiProblem(503, "", "", "")), patience_s(ApiProblem(401, "", "", ""))
    (60.0, 60.0, 0.0)
    """
    if isinstance(error, Unreachable) or (isinstance(error, ApiProblem) and error.status >= 500):
        return AWAY_S
    return BEHIND_S if isinstance(error, ApiProblem) and error.status == 404 else 0.0


def watch(
    look: Callable[[bool], dict[str, Any]],
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Any]:
    """Look at a run until it has ended, and return it.

    `look` reads it; if it is given True, so that it needs a majority. `say` is told, once each time, that it cannot
    be seen. Raises the `ApiProblem` or `Unreachable` that has outlasted its `patience_s`.
    """
    asked_s, since_s = clock(), None
    while True:
        try:
            run = look(False)
            if run["state"] not in FINAL and (since_s is not None or clock() - asked_s >= MAJORITY_S):
                run = look(True)
                asked_s, since_s = clock(), None
            if run["state"] in FINAL:
                return run
        except (Unreachable, ApiProblem) as error:
            first, now_s = since_s is None, clock()
            since_s = now_s if since_s is None else since_s
            if now_s - since_s >= patience_s(error):
                raise
            if first:
                say(f"{error}; asking again for {patience_s(error):.0f} s")
        sleep(PAUSE_S)
