"""Waits for work that makes progress: a slow machine may take its time, a run that stands still may not."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from node.cli.local import NotInTime
from node.client import ApiProblem, Unreachable

_T = TypeVar("_T")

STALL_S: Final = 180.0
"""How long nothing may advance. The longest step without progress is the start of Spark, which takes a busy machine
with two cores over a minute."""

PAUSE_S: Final = 0.05


def wait_while_it_advances(
    what: str,
    probe: Callable[[], _T | None],
    progress: Callable[[], object],
    hint: Callable[[], str],
    stall_s: float = STALL_S,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> _T:
    """Call `probe` until it returns a true value, and return that.

    `progress` is any value that changes as the work advances: each change starts the deadline of `stall_s` anew.
    `Unreachable` and `ApiProblem` count as "not yet". Raises `NotInTime` with `hint`, which says where to look.
    """
    seen, changed_s, error = progress(), clock(), ""
    while True:
        try:
            if value := probe():
                return value
            error = ""
        except (Unreachable, ApiProblem) as problem:
            error = f" ({problem})"
        if (now := progress()) != seen:
            seen, changed_s = now, clock()
        elif clock() - changed_s > stall_s:
            raise NotInTime(
                f"{what}: no progress for {stall_s:.0f} s; last seen: {seen}{error}. The machine may be too slow or "
                f"too busy. {hint()}"
            )
        sleep(PAUSE_S)
