"""Counts what runs use of the cluster's pools (`tasks.definition.pools`), in the entry that changes it.

A run uses its pools while a member holds it: from its claim until its end, its retry, or the loss of its member. A
member is marked down only when its lease has ended, and from then on its attempts may not go on: so the runs that work
never use more than there is. A claim beyond that is refused (`pool_shortage`); in which order runs are claimed is up to
the owners of their tasks (`node.duty.turns`), and each entry that frees something touches those whose turn it is.
How often runs with a rate start in a pool is decided apart (`node.state.pacing`); they wait in the same queue.
"""

from bisect import bisect_left, insort
from collections.abc import Mapping
from itertools import islice
from typing import Final

from immutables import Map

from node.state.copying import replace
from node.state.draft import Draft
from node.state.pacing import RULES_RATES
from node.state.pool import OF_BACKFILL, PRIORITY_US, PacedStart, Pool, QueuedTask
from node.state.value import Member, Run, State, TaskRow
from tasks.definition.pools import PRIORITY, PoolNeeds, pool_needs
from tasks.definition.run import HELD

POOLS_MAX: Final = 1000
RULES_POOLS: Final = 9
"""From these rules on (`Lead.rules`), there are pools."""

WOKEN_MAX: Final = 16
"""How many tasks that wait for a pool decide anew when something of it is freed. The task that starts next by its rate
is looked for among as many."""


def pool_shortage(pools: Map[str, Pool], needs: PoolNeeds, backfill: int = 0) -> str | None:
    """Say which pool has too little left for a run that needs this; None: all have enough.

    `backfill`: the run is of a backfill. Together, those use half of a pool, or one of them what it needs.
    """
    for name, units in needs.uses:
        pool = pools.get(name, Pool())
        if pool.used + units > pool.capacity:
            return f"the pool {name} has {pool.free} of {pool.capacity} left, and {units} more would be used"
        if backfill and pool.backfilled and pool.backfilled + units > pool.capacity // 2:
            return f"backfills use {pool.backfilled} of the pool {name}, and may use half of {pool.capacity}"
    return None


def pool_too_small(pools: Map[str, Pool], run: Run | None) -> str | None:
    """Name a pool that has less in all than a run needs, so that the run waits until somebody raises it; None: none."""
    needs = None if run is None else pool_needs(run.spec_packed)
    uses = () if needs is None else needs.uses
    return next((name for name, units in uses if units > pools.get(name, Pool()).capacity), None)


def needs_fault(
    draft: Draft, task: str, packed: bytes, row: TaskRow | None = None, *, saved: bool = False
) -> str | None:
    """Describe why a task may not use what its definition says; None: it may.

    `row`: the task as it is registered; `saved`: the task was registered before, in a cluster whose pools may have been
    made smaller after that.
    """
    needs = pool_needs(packed)
    if needs is None or (row is not None and pool_needs(row.spec_packed) == needs):
        return None
    if draft.lead.rules < RULES_POOLS:
        return f"{task}: `uses` needs a leader of this version"
    if needs.pace is not None and draft.lead.rules < RULES_RATES:
        return f"{task}: `rate` needs a leader of this version"
    if needs.pace is not None and needs.pace.pool not in draft.pools:
        name = needs.pace.pool
        return f"{task} has a rate in the pool {name}, which is not there: make it first (rota pools set {name}=1)"
    for name, units in needs.uses:
        pool = draft.pools.get(name)
        if pool is None:
            return f"{task} uses the pool {name}, which is not there: make it first (rota pools set {name}=1)"
        if units > pool.capacity and not saved:
            return f"{task} uses {units} of the pool {name}, which has {pool.capacity}: it could never run"
    return None


def removal_fault(draft: Draft, name: str) -> str | None:
    """Describe why a pool may not be removed; None: it may."""
    pool = draft.pools[name]
    if pool.tasks:
        return f"{pool.tasks} {'task uses' if pool.tasks == 1 else 'tasks use'} the pool {name}: change them first"
    if pool.holders or pool.queue:
        return f"runs use the pool {name}, or wait for it: wait for their end"
    return None


def resize(draft: Draft, pools: tuple[tuple[str, int], ...], at_us: int) -> None:
    """Give the pools these capacities, and remove the others."""
    wanted = dict(pools)
    found = {name: draft.pools.get(name, Pool()) for name in wanted}
    draft.pools = Map({name: _sized(pool, wanted[name], at_us) for name, pool in found.items()})
    for name in sorted(found):
        _wake(draft, name, draft.pools[name])


def _sized(pool: Pool, capacity: int, at_us: int) -> Pool:
    return pool if pool.capacity == capacity else replace(pool, capacity=capacity, changed_us=at_us)


def follow_pools(draft: Draft, before: State, at_us: int) -> None:
    """Count what the tasks and runs that this entry has changed use now, and wake those whose turn it is."""
    if not draft.pools:
        return
    changed: dict[str, Pool] = {}
    for task in sorted(draft.touched):
        _follow_definition(draft, before, task, changed)
        _follow_runs(draft, before, task, changed)
    for name, pool in changed.items():
        was = draft.pools[name]
        moved = was.used != pool.used or was.queue[:1] != pool.queue[:1]
        draft.pools = draft.pools.set(name, replace(pool, changed_us=at_us) if moved else pool)
        if moved or pool.starts is not before.pools.get(name, pool).starts:
            _wake(draft, name, pool)


def _wake(draft: Draft, name: str, pool: Pool) -> None:
    first = (one for one in pool.queue[:WOKEN_MAX] if not pool_too_small(draft.pools, draft.runs.get(one.run_id)))
    draft.touched.update(one.task for one in islice(first, pool.free))
    if not pool.starts:
        return
    for one in pool.queue[:WOKEN_MAX]:
        if has_pace(draft.runs.get(one.run_id), name):
            draft.touched.add(one.task)
            if one.since_us <= pool.starts[0].next_us:
                return  # the others are not due yet


def has_pace(run: Run | None, name: str) -> bool:
    """Whether a run starts at a rate in this pool."""
    needs = None if run is None else pool_needs(run.spec_packed)
    return needs is not None and needs.pace is not None and needs.pace.pool == name


def _follow_definition(draft: Draft, before: State, task: str, changed: dict[str, Pool]) -> None:
    was, row = before.tasks.get(task), draft.tasks.get(task)
    had = None if was is None else pool_needs(was.spec_packed)
    has = None if row is None else pool_needs(row.spec_packed)
    if had is has:
        return
    for needs, more in ((had, -1), (has, 1)):
        for name in needs.pools if needs is not None else ():
            if (pool := _pool(draft, name, changed)) is not None:
                changed[name] = replace(pool, tasks=pool.tasks + more)


def _follow_runs(draft: Draft, before: State, task: str, changed: dict[str, Pool]) -> None:
    were, are = before.runs_of.get(task, ()), draft.runs_of.get(task, ())
    for run_id in dict.fromkeys((*were, *are)):
        was, run = before.runs.get(run_id), draft.runs.get(run_id)
        if was is run:
            continue
        had, has = _held(was), _held(run)
        if had == has:
            continue
        for name, units in had:
            if (pool := _pool(draft, name, changed)) is not None:
                pool = replace(pool, holders=pool.holders.delete(run_id), used=pool.used - units)
                changed[name] = _backfilled(pool, was, -units)
        for name, units in has:
            if (pool := _pool(draft, name, changed)) is not None:
                pool = replace(pool, holders=pool.holders.set(run_id, units), used=pool.used + units)
                changed[name] = _backfilled(pool, run, units)
    waited = _places(before.tasks.get(task), [before.runs[one] for one in were], before.members)
    waits = _places(draft.tasks.get(task), [draft.runs[one] for one in are], draft.members)
    if waited == waits:
        return
    for those, others, change in ((waited, set(waits), _left), (waits, set(waited), _joined)):
        moved: dict[str, list[QueuedTask]] = {}
        for one, names in those:
            for name in names if (one, names) not in others else ():
                moved.setdefault(name, []).append(one)
        for name, some in moved.items():
            if (pool := _pool(draft, name, changed)) is not None:
                changed[name] = replace(pool, queue=change(pool.queue, some))


def _backfilled(pool: Pool, run: Run | None, more: int) -> Pool:
    """Return the pool with `more` used by a run, if that is of a backfill."""
    of_backfill = run is not None and run.backfill
    return replace(pool, backfilled=pool.backfilled + more) if of_backfill else pool


def _pool(draft: Draft, name: str, changed: dict[str, Pool]) -> Pool | None:
    return changed.get(name) or draft.pools.get(name)


def _held(run: Run | None) -> tuple[tuple[str, int], ...]:
    """Return what a run uses, while a member holds it. An action of a kind (a restart, say) uses nothing."""
    if run is None or run.state not in HELD or run.action:
        return ()
    needs = pool_needs(run.spec_packed)
    return () if needs is None else needs.uses


def _places(
    row: TaskRow | None, runs: list[Run], members: Mapping[str, Member]
) -> list[tuple[QueuedTask, tuple[str, ...]]]:
    """Return the places in queues of a task's active `runs`, each with its pools: one, or one for each member.

    With `each`, each member's next run waits for itself, and only while its member is up: nobody else could claim it.
    """
    of: dict[str, list[Run]] = {}
    for run in runs:
        of.setdefault(run.member, []).append(run)
    up = [name for name in sorted(of) if not name or ((one := members.get(name)) is not None and one.status == "up")]
    found = [queued(row, of[name]) for name in up]
    return [(place, names) for place, names in found if place is not None]


def queued(row: TaskRow | None, runs: list[Run]) -> tuple[QueuedTask | None, tuple[str, ...]]:
    """Return the place in queues of the run that is claimed next, of a task's active `runs`, and its pools.

    None: no run of the task waits, or all wait for another run of the task. `row`: the task; None: it was deleted.
    """
    work = [run for run in runs if not run.action]
    free = [run for run in work if run.state not in HELD and run.cancelling is None]
    if row is None or not any(pool_needs(run.spec_packed) for run in free):
        return None, ()
    live = [run for run in work if not run.backfill]
    if live and len(live) < len(work) and row.spec.overlap != "allow":
        # Those of backfills wait until the task has no others; and these wait for one that is held.
        if any(run.state in HELD for run in work if run.backfill):
            return None, ()
        work, free = live, [run for run in free if not run.backfill]
    if not free:
        return None, ()
    if len(work) == 1:
        first = free[0]
    elif row.spec.overlap == "allow":
        first = min(free, key=_place)
    elif len(free) < len(work):
        return None, ()
    else:
        first = next((run for run in free if run.state == "orphaned"), free[0])
    needs = pool_needs(first.spec_packed)
    return (None, ()) if needs is None else (_place(first), needs.pools)


def _place(run: Run) -> QueuedTask:
    needs = pool_needs(run.spec_packed)
    since_us = run.due_us or run.created_at_us
    rank_us = since_us - (PRIORITY if needs is None else needs.priority) * PRIORITY_US
    order = OF_BACKFILL if run.backfill else int(run.state != "orphaned")
    return QueuedTask(order, rank_us, run.task, since_us, run.run_id)


def _joined(queue: tuple[QueuedTask, ...], some: list[QueuedTask]) -> tuple[QueuedTask, ...]:
    longer = list(queue)
    for one in some:
        insort(longer, one)
    return tuple(longer)


def _left(queue: tuple[QueuedTask, ...], some: list[QueuedTask]) -> tuple[QueuedTask, ...]:
    left = list(queue)
    for one in some:
        at = bisect_left(left, one)
        if left[at : at + 1] == [one]:
            del left[at]
    return tuple(left)


def restored_pools(
    capacities: tuple[tuple[str, int], ...],
    rows: Mapping[str, TaskRow],
    runs_of: Mapping[str, list[Run]],
    members: Mapping[str, Member],
    changed_us: Mapping[str, int],
    starts: Mapping[str, tuple[PacedStart, ...]],
) -> Map[str, Pool]:
    """Count anew what all tasks and their active runs use. `changed_us`, `starts`: of each pool."""
    pools = {
        name: Pool(capacity=capacity, changed_us=changed_us.get(name, 0), starts=starts.get(name, ()))
        for name, capacity in capacities
    }
    if not pools:
        return Map()
    tasks = dict.fromkeys(pools, 0)
    holders: dict[str, dict[str, int]] = {name: {} for name in pools}
    backfilled = dict.fromkeys(pools, 0)
    queues: dict[str, list[QueuedTask]] = {name: [] for name in pools}
    for row in rows.values():
        for name in (pool_needs(row.spec_packed) or PoolNeeds((), 0)).pools:
            if name in pools:
                tasks[name] += 1
    for task, runs in runs_of.items():
        for run in runs:
            for name, units in _held(run):
                if name in pools:
                    holders[name][run.run_id] = units
                    backfilled[name] += units if run.backfill else 0
        for one, names in _places(rows.get(task), runs, members):
            for name in names:
                if name in pools:
                    queues[name].append(one)
    return Map(
        {
            name: replace(
                pool,
                tasks=tasks[name],
                holders=Map(holders[name]),
                used=sum(holders[name].values()),
                backfilled=backfilled[name],
                queue=tuple(sorted(queues[name])),
            )
            for name, pool in pools.items()
        }
    )
