"""Whose turn it is when something of a pool is free. Each owner decides for its own tasks, from the same state. Pure.

The queue's order is that of `QueuedTask`: lost runs, then priority and time waited. Those for whom there is enough,
beside what those before them need, begin at once. Who cannot begin now although it is first (its member has no place,
say) does not hold up the others for long: with each second in which nothing begins, twice as much may be taken. Who is
first and lacks something itself is waited for once it has waited for a minute: else one that needs much would never
begin beside many that need little. Who needs more of a pool than there is in all holds up nobody.

Of those with a rate the first begins in the moment in which the pool lets one start, unless something else holds it;
with each second that it does not, twice as many may. Who waits for that moment holds up nobody who has no rate.
"""

from bisect import bisect_left
from math import ceil, log2
from typing import Final, NamedTuple

from node.state.blackout import blackout_of
from node.state.blackouts import is_exempt
from node.state.pacing import opens_us, pace_shortage
from node.state.pool import OF_BACKFILL, Pool, QueuedTask
from node.state.pools import has_pace, pool_shortage, pool_too_small, queued
from node.state.times import rfc3339
from node.state.value import Run, State
from tasks.definition.pools import PoolNeeds, StartPace, pool_needs

RESERVED_AFTER_US: Final = 60_000_000
"""How long the first of a queue must have waited, in microseconds, so that it is not overtaken."""

LOOK_AGAIN_US: Final = 30_000_000
"""How often a run that waits for a pool is decided on anew, though no entry has woken it, in microseconds."""

_NAMED_MAX: Final = 5
_DOUBLED_EACH_US: Final = 1_000_000
_NEAR: Final = 16
"""How many at the head of a queue are looked at: those that are not due yet, as after a failure, hold up nobody."""


class Turn(NamedTuple):
    """Whether a run may begin now, as far as pools decide it; if not, when to look again, in microseconds."""

    mine: bool
    look_us: int | None = None


MY_TURN: Final = Turn(mine=True)


def turn_of(state: State, task: str, packed: bytes, now_us: int, run_id: str | None = None) -> Turn:
    """Return whether it is the turn of a due run of `task`, which was made with this packed definition.

    `run_id`: the run, which waits, and so has a place in the queues. None: an occurrence that is no run yet: it may
    begin only where nobody waits.
    """
    needs = pool_needs(packed)
    if needs is None:
        return MY_TURN
    later = Turn(mine=False, look_us=now_us + LOOK_AGAIN_US)
    backfill = 0 if run_id is None else state.runs[run_id].backfill
    if pool_shortage(state.pools, needs, backfill) is not None:
        return later
    place = None
    if run_id is not None:
        active = [state.runs[one] for one in state.runs_of[task]]
        member = state.runs[run_id].member  # with `each`, each member's runs wait for themselves
        place, _ = queued(state.tasks.get(task), [run for run in active if run.member == member])
        if place is None or place.run_id != run_id:
            return later  # another run of the task goes first
    looks_us = [look_us for name, units in needs.uses if (look_us := _look_us(state, name, units, place, now_us))]
    if needs.pace is not None and (look_us := _start_us(state, needs.pace, place, now_us)) is not None:
        looks_us.append(look_us)
    return Turn(mine=False, look_us=max(looks_us)) if looks_us else MY_TURN


def _look_us(state: State, name: str, units: int, place: QueuedTask | None, now_us: int) -> int | None:
    """Return when to look again whether it is the turn of `place` in a pool, which has `units` left; None: it is."""
    pool = state.pools[name]
    before, due = _before(state, pool, place, now_us)
    due = [one for one in due if not _paced_out(state, one, now_us)]
    if before <= _NEAR and not due:
        return None
    reserved = due and now_us - due[0].since_us >= RESERVED_AFTER_US and _lacks(state, due[0])
    if reserved or place is None:
        return now_us + LOOK_AGAIN_US
    # Of those further behind it is not looked at how much they need: each needs one at least.
    wanted = sum(_units(state, one, name) for one in due) + max(0, before - _NEAR) + units
    reach_us = pool.changed_us + ceil(max(0.0, log2(wanted / pool.free))) * _DOUBLED_EACH_US
    return reach_us if reach_us > now_us else None


def _before(state: State, pool: Pool, place: QueuedTask | None, now_us: int) -> tuple[int, list[QueuedTask]]:
    """Return how many are before `place` in a pool's queue, and those of the first `_NEAR` of them that are due."""
    # What is no run yet is behind all but the runs of backfills.
    before = bisect_left(pool.queue, (OF_BACKFILL,) if place is None else place)
    near = pool.queue[: min(before, _NEAR)]
    due = [one for one in near if one.since_us <= now_us and not pool_too_small(state.pools, state.runs[one.run_id])]
    if state.blackouts:
        due = [one for one in due if not _blacked_out(state, one, now_us)]
    return before, due


def _start_us(state: State, pace: StartPace, place: QueuedTask | None, now_us: int) -> int | None:
    """Return when to look again whether `place` may start at its rate; None: it may now."""
    pool = state.pools.get(pace.pool)
    if pool is None:
        return None
    before, due = _before(state, pool, place, now_us)
    due = [one for one in due if has_pace(state.runs[one.run_id], pace.pool) and not _lacks(state, one)]
    from_us = opens_us(pool, now_us)
    ahead = len(due) + max(0, before - _NEAR)
    if ahead and place is None:
        return now_us + LOOK_AGAIN_US
    if ahead:
        since_us = max(from_us, *(one.since_us for one in due[:1]))
        from_us = since_us + ceil(log2(ahead + 1)) * _DOUBLED_EACH_US
    return from_us if from_us > now_us else None


class PoolWait(NamedTuple):
    """What a due run waits for: `pool` or `rate`; in words; and until when, in microseconds. None: it is not known."""

    code: str
    detail: str
    until_us: int | None = None


def waits_for_pool(state: State, run: Run, now_us: int) -> PoolWait | None:
    """Say which pool a due run waits for, what holds it, and who goes first; None: it waits for none."""
    needs = None if run.action else pool_needs(run.spec_packed)
    if needs is None:
        return None
    small = pool_too_small(state.pools, run)
    for name, units in needs.uses:
        pool = state.pools.get(name, Pool())
        if name == small:
            said = f"needs {units} of the pool {name}, which has {pool.capacity} in all: it begins once that is raised"
            return PoolWait("pool", f"{said} (rota pools set {name}={units})")
        if pool.used + units > pool.capacity:
            holding = [_held_since(state, run_id) for run_id in sorted(pool.holders)[:_NAMED_MAX]]
            more = f" and {len(pool.holders) - _NAMED_MAX} more" if len(pool.holders) > _NAMED_MAX else ""
            held = f", held by {', '.join(holding)}{more}" if holding else ""
            used = f"{pool.used} of {pool.capacity} are used{held}"
            return PoolWait("pool", f"waits for {units} of the pool {name}: {used}")
    if run.backfill and (why := pool_shortage(state.pools, needs, run.backfill)) is not None:
        return PoolWait("pool", f"waits, as {why}")
    pace = needs.pace
    if pace is not None and pace_shortage(state.pools, pace, now_us) is not None:
        until_us = opens_us(state.pools[pace.pool], now_us)
        next_s = (until_us - now_us) / 1_000_000
        said = f"waits for the rate of the pool {pace.pool}: the next start in {next_s:.1f} s"
        others = (one.task for one in state.pools[pace.pool].queue if one.task != run.task)
        ahead = next(others, "") if turn_of(state, run.task, run.spec_packed, until_us, run.run_id).look_us else ""
        return PoolWait("rate", said + (f", and {ahead} goes first" if ahead else ""), until_us)
    if turn_of(state, run.task, run.spec_packed, now_us, run.run_id).mine:
        return None
    pools = [state.pools[name] for name in needs.pools if name in state.pools]
    first = next((one.task for pool in pools for one in pool.queue if one.task != run.task), "")
    turn = f"waits for its turn in the pool {', '.join(needs.pools)}"
    return PoolWait("pool", turn + (f": {first} goes first" if first else ""))


def _held_since(state: State, run_id: str) -> str:
    run = state.runs[run_id]
    return f"{run_id} since {rfc3339(run.attempts[-1].claimed_at_us)}"


def _units(state: State, one: QueuedTask, name: str) -> int:
    """How much a task that waits needs of a pool."""
    needs = pool_needs(state.runs[one.run_id].spec_packed) or PoolNeeds((), 0)
    return dict(needs.uses).get(name, 0)


def _blacked_out(state: State, one: QueuedTask, now_us: int) -> bool:
    """Whether a blackout holds a task that waits, so that it holds up nobody."""
    run, row = state.runs[one.run_id], state.tasks.get(one.task)
    return row is not None and not is_exempt(run) and blackout_of(state.blackouts, row.spec_packed, now_us) is not None


def _paced_out(state: State, one: QueuedTask, now_us: int) -> bool:
    """Whether a task that waits may not start yet, by its rate."""
    needs = pool_needs(state.runs[one.run_id].spec_packed)
    pace = None if needs is None else needs.pace
    return pace is not None and pace_shortage(state.pools, pace, now_us) is not None


def _lacks(state: State, one: QueuedTask) -> bool:
    """Whether a task that waits lacks something of a pool."""
    run = state.runs.get(one.run_id)
    needs = None if run is None else pool_needs(run.spec_packed)
    return pool_shortage(state.pools, needs or PoolNeeds((), 0)) is not None
