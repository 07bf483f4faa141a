"""Finished runs in a history, as many as a cluster has after years, without the years.

They are handed to `node.history.store.HistoryStore.record`, which Raft's thread hands them to as well, each as the
whole record of a run with one attempt; what is left out is the entries that would have brought them about. One file is
made and copied for each member.
"""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from node.history.store import HistoryStore
from node.state.draft import stem
from node.state.value import Attempt, EndedRun, Run
from tasks.definition.run import RunState
from tasks.definition.spec import Spec

ENTRY: Final = 1
"""The index of the cluster's first entry, which ends nothing itself: all are under it, or from it on."""

AT_ONCE: Final = 20_000
_DAYS_US: Final = 25 * 86_400_000_000


def write(place: Path, specs: list[dict[str, Any]], members: list[str], count: int, entries: int = 1) -> None:
    """Make the file `place` with `count` runs of these tasks, spread over the last 25 days, newest last.

    They are under the indexes of the first `entries` entries, in order.
    """
    packed = [Spec.model_validate(spec) for spec in specs]
    now_us = time.time_ns() // 1000
    history = HistoryStore(place)
    batch: list[tuple[int, EndedRun]] = []
    for number, ended in enumerate(_runs([(spec.name, spec.pack()) for spec in packed], members, count, now_us)):
        batch.append((ENTRY + number * entries // count, ended))
        if len(batch) == AT_ONCE:
            history.record(0, batch)
            history.flush()
            batch = []
    history.record(0, batch)
    history.close()


def copy(place: Path, folder: Path) -> None:
    """Give a member that has not been started yet its history."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copyfile(place, folder / "history.db")


def _runs(tasks: list[tuple[str, bytes]], members: list[str], count: int, now_us: int) -> Iterator[EndedRun]:
    for number in range(count):
        task, spec = tasks[number * 7919 % len(tasks)]
        fire_at_us = now_us - _DAYS_US + number * _DAYS_US // count
        state: RunState = "failed" if number % 50 == 0 else "timed_out" if number % 1001 == 0 else "succeeded"
        error = "it was told to fail" if state == "failed" else None
        begun_us, over_us = fire_at_us + 20_000, fire_at_us + 1_500_000
        node = members[number % len(members)]
        attempt = Attempt(1, node, 1, number + 1, state, fire_at_us, begun_us, over_us, error)
        run = Run(
            stem(task, fire_at_us),
            task,
            "schedule",
            fire_at_us,
            spec,
            state,
            fire_at_us,
            node=node,
            incarnation=1,
            token=number + 1,
            attempts=(attempt,),
        )
        yield EndedRun(run, state, over_us, {"files": number % 100, "bytes": number * 1000}, error)
