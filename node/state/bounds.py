"""Limits on the size of the replicated state, which is in every member's memory, in each snapshot, and in the log.

The limits keep clients of the API from filling the members' memory; a hundred thousand tasks stay far below them. One
run of a task at a time, with its registered params, is never refused because of the size of other tasks.
"""

from collections.abc import Iterable
from typing import Any, Final, Protocol

import msgpack
from immutables import Map

from node.state.value import Lead, Run, TaskRow

MIB: Final = 1024 * 1024

TASKS_MAX: Final = 250_000
SPECS_BYTES_MAX: Final = 512 * MIB
"""The most bytes of the definitions of all tasks together: a hundred thousand with 5 KiB each."""

ACTIVE_MAX: Final = 1000
"""The most active runs of one task, under `overlap: allow`."""

PARAMS_BYTES_MAX: Final = 64 * 1024
"""The most bytes of the packed params of one run that is started by hand. The same as for a checkpoint."""

TASK_RUNS_BYTES_MAX: Final = 16 * MIB
"""The most bytes of the active runs of one task: their definitions, params and checkpoints."""

RUNS_BYTES_MAX: Final = 256 * MIB
"""The most bytes of all active runs. Beyond this size, a task gets one run at a time, with its registered params."""

REQUESTS_KEPT: Final = 200
"""How many of the latest starts by hand of one task are kept."""

REQUESTS_BYTES_MAX: Final = 32 * MIB
"""The most bytes of the kept starts by hand of all tasks. Beyond this size, only the latest of each task is kept."""

_RUN_BYTES: Final = 256


class Holding(Protocol):
    """The part of a state, or of a draft, that the limits need."""

    @property
    def lead(self) -> Lead:
        """The leader, and the rules in force."""

    @property
    def tasks(self) -> Map[str, TaskRow]:
        """The tasks."""

    @property
    def specs_bytes(self) -> int:
        """The size of the tasks' definitions, in bytes."""

    @property
    def runs_bytes(self) -> int:
        """The size of the active runs, in bytes."""


def params_bytes(params: dict[str, Any] | None) -> int:
    """Return the size of a run's params, packed."""
    return 0 if params is None else len(msgpack.packb(params))


def run_bytes(run: Run) -> int:
    """Return the approximate size of an active run in a snapshot."""
    return _RUN_BYTES + len(run.spec_packed) + run.params_bytes + len(run.checkpoint or b"")


def requests_bytes(row: TaskRow) -> int:
    """Return the size of a task's kept starts by hand."""
    return sum(len(key) + len(run_id) for key, run_id in row.requests)


def no_room(state: Holding, row: TaskRow, active: Iterable[Run], with_bytes: int = 0) -> str | None:
    """Say why the task may not have another run, with params of `with_bytes`, beside `active`; None: it may."""
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
    """Say why a change may not add `more` tasks, or `more_bytes` of definitions; None: it may.

    A change that lowers the number of tasks or the size of the definitions is never refused for it.
    """
    if state.lead.rules < 1:
        return None
    if more > 0 and len(state.tasks) > TASKS_MAX:
        return f"a cluster has {TASKS_MAX} tasks at most: delete some"
    if more_bytes > 0 and state.specs_bytes > SPECS_BYTES_MAX:
        return f"the definitions of all tasks hold {SPECS_BYTES_MAX // MIB} MiB, and may hold no more: delete some"
    return None
