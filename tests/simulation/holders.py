"""What runs use of pools: never more than there is, whatever dies. Counted anew from the runs and their definitions."""

from collections import Counter
from collections.abc import Iterable

from node.state.apply import Applied
from node.state.entries import Proposal
from node.state.value import Run, State
from tasks.definition.run import HELD
from tests.simulation.world import World


class Holders:
    """Watches every accepted entry of a history with pools."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.counts: Counter[str] = Counter()

    def watch(self, before: State, proposal: Proposal, applied: Applied) -> None:
        """An entry was applied."""
        after = applied.state
        if proposal.entry is None or not after.settings.pools:
            return
        if before.pools is after.pools and before.runs is after.runs:
            return
        held, was = used(_held(after)), used(_held(before))
        for name, capacity in after.settings.pools:
            pool = after.pools[name]
            if (pool.capacity, pool.used) != (capacity, held[name]):
                self._world.wrong(f"the pool {name} counts {pool.used} of {pool.capacity}, not {held[name]}")
            if held[name] > max(capacity, was[name]):
                self._world.wrong(f"runs use {held[name]} of the pool {name}, of which there is {capacity}")
            self._waiting(after, name)
            self.counts["pool full"] += 0 < capacity <= held[name]

    def _waiting(self, state: State, name: str) -> None:
        """Each task whose next run needs the pool has one place in its queue, and no other task has one."""
        waits = sorted(
            task
            for task, ids in state.runs_of.items()
            for lane in _lanes(state, [state.runs[one] for one in ids])
            if (run := _next(state, task, lane)) is not None and name in pools_of(run)
        )
        queue = state.pools[name].queue
        if sorted(one.task for one in queue) != waits:
            self._world.wrong(f"{[one.task for one in queue]} wait for the pool {name}, where {waits} do")
        if list(queue) != sorted(queue):
            self._world.wrong(f"the queue of the pool {name} is not in order: {queue}")


def _lanes(state: State, runs: list[Run]) -> list[list[Run]]:
    """The runs that wait for one another: of a task that runs on each member, those of each one that is up."""
    up = {"", *(name for name, member in state.members.items() if member.status == "up")}
    return [[run for run in runs if run.member == name] for name in sorted({run.member for run in runs} & up)]


def _next(state: State, task: str, runs: list[Run]) -> Run | None:
    """The run of a task that could be claimed next: of those that may run beside one another, the first in order."""
    row = state.tasks.get(task)
    work = [run for run in runs if not run.action]
    free = [run for run in work if run.state not in HELD and run.cancelling is None]
    if row is None or not free or not any(pools_of(run) for run in free):
        return None
    live = [run for run in work if not run.backfill]
    if row.spec.overlap != "allow" and live:  # those of backfills wait for these, and these for one that works
        if any(run.backfill and run.state in HELD for run in work):
            return None
        work, free = live, [run for run in free if not run.backfill]
        if not free:
            return None
    if row.spec.overlap == "allow":
        return min(free, key=_order)
    lost = [run for run in free if run.state == "orphaned"]
    return (lost or free)[0] if len(free) == len(work) else None


def pools_of(run: Run) -> set[str]:
    """The pools that a run uses, or in which it has a rate."""
    return {*run.spec.uses, *([run.spec.rate.pool] if run.spec.rate is not None else [])}


def _order(run: Run) -> tuple[bool, bool, int, str, int, str]:
    since_us = run.due_us or run.created_at_us
    lost = run.state == "orphaned" and not run.backfill
    return run.backfill != 0, not lost, since_us - 60_000_000 * run.spec.priority, run.task, since_us, run.run_id


def _held(state: State) -> Iterable[Run]:
    return (run for run in state.runs.values() if run.state in HELD and not run.action)


def used(runs: Iterable[Run]) -> Counter[str]:
    """How much of each pool these runs use."""
    found: Counter[str] = Counter()
    for run in runs:
        found.update(run.spec.uses)
    return found


def overused(state: State, working: Iterable[str]) -> str | None:
    """Say of which pool the runs that work use more than there is; None: of none."""
    if not state.settings.pools:
        return None
    works = used(state.runs[one] for one in working if one in state.runs and not state.runs[one].action)
    held = used(_held(state))
    for name, capacity in state.settings.pools:
        if works[name] > max(capacity, held[name]):
            return f"runs that work use {works[name]} of the pool {name}, of which there is {capacity}"
    return None
