"""Which continuous runs to hand over to their tasks' owners: a few at a time, and only when no failover waits."""

from collections.abc import Collection
from typing import Final

from node.duty.step import Owners
from node.state.run_times import due_us
from node.state.value import Run, State
from tasks.definition.run import HELD

AT_A_TIME: Final = 2


def hand_overs(
    state: State, owners: Owners, continuous: Collection[str], orphaned: Collection[str], now_us: int
) -> list[str]:
    """The runs that their holders should now hand over to the owner of their task, `AT_A_TIME` at most.

    Every member computes the same runs from the same state, and runs that were handed over and not yet claimed count
    too: so there are `AT_A_TIME` in the whole cluster, except while members' states differ.
    """
    if any(_wanted(state, owners, run_id, now_us) for run_id in orphaned):
        return []
    runs = [state.runs[run_id] for run_id in sorted(continuous)]
    between = sum(run.state == "waiting" and _wanted(state, owners, run.run_id, now_us) for run in runs)
    misplaced = [run.run_id for run in runs if _misplaced(run, owners)]
    return misplaced[: max(0, AT_A_TIME - between)]


def _wanted(state: State, owners: Owners, run_id: str, now_us: int) -> bool:
    """Whether a run that no member holds could be claimed now."""
    run = state.runs[run_id]
    return due_us(run, now_us) <= now_us and owners.owner(run.task) is not None


def _misplaced(run: Run, owners: Owners) -> bool:
    return run.state in HELD and run.cancelling is None and owners.owner(run.task) not in (None, run.node)
