"""How much the replicated state holds at the most: it is in every member's memory, in each snapshot, and in the log.

Far from what a hundred thousand tasks need; near enough that nobody who may use the API can fill the members' memory.
What a task needs to be run at all, one run of it at a time with the params that it is registered with, is never
refused for what others take.
"""

from collections.abc import Iterable
from typing import Any, Final, Protocol

import msgpack
from immutables import Map

from node.state.value import Lead, Run, TaskRow

MIB: Final = 1024 * 1024

TASKS_MAX: Final = 250_000
SPECS_BYTES_MAX: Final = 512 * MIB
"""Of the definitions of all tasks together: a hundred thousand with 5 KiB each."""

ACTIVE_MAX: Final = 1000
"""So many active runs one task has at most, under `overlap: allow`."""

PARAMS_BYTES_MAX: Final = 64 * 1024
"""Of the params of one run that is started by hand, packed; as much as a checkpoint may have."""

TASK_RUNS_BYTES_MAX: Final = 16 * MIB
"""Of the active runs of one task: their definitions, params and checkpoints."""

RUNS_BYTES_MAX: Final = 256 * MIB
"""Of all active runs; above it, nothing but the one run that a task needs is taken on."""

REQUESTS_KEPT: Final = 200
"""So many of a task's latest starts by hand are remembered."""

REQUESTS_BYTES_MAX: Final = 32 * MIB
"""Of what is remembered of starts by hand, of all tasks; above it, a task's latest start alone is."""

_RUN_BYTES: Final = 256


class Holding(Protocol):
    """What is needed of a state, or of a draft of one."""

    @property
    def lead(self) -> Lead:
        """Who leads, and by which rules."""

    @property
    def tasks(self) -> Map[str, TaskRow]:
        """The tasks."""

    @property
    def specs_bytes(self) -> int:
        """What their definitions hold."""

    @property
    def runs_bytes(self) -> int:
        """What the active runs hold."""


def params_bytes(params: dict[str, Any] | None) -> int:
    """What the params of a run hold, packed."""
    return 0 if params is None else len(msgpack.packb(params))


def run_bytes(run: Run) -> int:
    """What an active run takes in a snapshot, near enough."""
    return _RUN_BYTES + len(run.spec_packed) + run.params_bytes + len(run.checkpoint or b"")


def requests_bytes(row: TaskRow) -> int:
    """What is remembered of the starts by hand of a task."""
    return sum(len(key) + len(run_id) for key, run_id in row.requests)


def no_room(state: Holding, row: TaskRow, active: Iterable[Run], with_bytes: int = 0) -> str | None:
    """Why the task may have no further run, with params of `with_bytes`, beside the `active` ones; None: it may."""
    if state.lead.rules < 1:
        return None
    runs = list(active)
    name = row.placing.name
    if len(runs) >= ACTIVE_MAX:
        return f"{name} has {len(runs)} active runs, and may have no more: wait for them, or cancel some"
    new_bytes = _RUN_BYTES + len(row.spec_packed) + with_bytes
    if runs and sum(map(run_bytes, runs)) + new_bytes > TASK_RUNS_BYTES_MAX:
        return (
            f"the active runs of {name} hold {TASK_RUNS_BYTES_MAX // MIB} MiB of params and checkpoints, and may hold "
            "no more: wait for them, or cancel some"
        )
    if (runs or with_bytes) and state.runs_bytes + new_bytes > RUNS_BYTES_MAX:
        return (
            f"the active runs of all tasks hold {RUNS_BYTES_MAX // MIB} MiB of params and checkpoints, and may hold no "
            "more: wait for them, or cancel some"
        )
    return None


def no_room_for_tasks(state: Holding, more: int, more_bytes: int) -> str | None:
    """Why there may not be `more` tasks than before a change, or definitions that hold `more_bytes` more; None: there
    may. What makes them fewer or smaller is never refused.
    """
    if state.lead.rules < 1:
        return None
    if more > 0 and len(state.tasks) > TASKS_MAX:
        return f"a cluster has {TASKS_MAX} tasks at most: delete some"
    if more_bytes > 0 and state.specs_bytes > SPECS_BYTES_MAX:
        return f"the definitions of all tasks hold {SPECS_BYTES_MAX // MIB} MiB, and may hold no more: delete some"
    return None
