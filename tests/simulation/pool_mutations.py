"""The rules about pools, switched off (`tests.simulation.mutants`)."""

from typing import Any, Final

from immutables import Map

from node.duty import turns
from node.state import claims, pacing, pools, settings
from node.state.draft import Draft
from node.state.pool import Pool, QueuedTask
from node.state.value import Run, State, TaskRow
from tasks.definition.pools import PoolNeeds, StartPace, pool_needs
from tests.simulation.rules import Rules, instead

_SHORT: Final = pools.pool_shortage
_START_US: Final = turns._start_us


def never_lacks(_pools: Map[str, Pool], _needs: PoolNeeds, _backfill: int = 0) -> None:
    """A claim is accepted, whatever is left of the pools."""


def lacks_of_the_first(known: Map[str, Pool], needs: PoolNeeds, backfill: int = 0) -> str | None:
    """Of several pools, only the first counts."""
    return _SHORT(known, PoolNeeds(needs.uses[:1], needs.priority), backfill)


def held_while_it_runs(run: Run | None) -> tuple[tuple[str, int], ...]:
    """A run uses its pools from the beginning of its work on, and not from its claim."""
    needs = None if run is None or run.state != "running" or run.action else pool_needs(run.spec_packed)
    return () if needs is None else needs.uses


def held_when_lost(run: Run | None) -> tuple[tuple[str, int], ...]:
    """A run whose member was lost goes on using its pools."""
    known = ("claimed", "running", "orphaned")
    needs = None if run is None or run.state not in known or run.action else pool_needs(run.spec_packed)
    return () if needs is None else needs.uses


def wakes_nobody(_draft: Draft, _name: str, _pool: Pool) -> None:
    """What is freed wakes none of those that wait."""


def first_in_order(row: TaskRow | None, runs: list[Run]) -> Any:
    """Of runs of which each waits for the one before it, the first by order has the place."""
    free = [run for run in runs if run.state in ("waiting", "orphaned") and not run.action and run.cancelling is None]
    waiting: list[QueuedTask] = sorted(map(pools._place, free))
    held = any(run.state in ("claimed", "running") and not run.action for run in runs)
    if row is None or not waiting or (held and row.spec.overlap != "allow"):
        return None, ()
    [run] = [run for run in free if run.run_id == waiting[0].run_id]
    needs = pool_needs(run.spec_packed)
    return (None, ()) if needs is None else (waiting[0], needs.pools)


def goes_whatever_uses_it(_draft: Draft, _name: str) -> None:
    """A pool is removed, though runs use it."""


def starts_at_any_time(_pools: Map[str, Pool], _pace: StartPace, _at_us: int) -> None:
    """A claim is accepted, whenever the last run with a rate has started."""


def half_apart(draft: Draft, pace: StartPace, at_us: int) -> None:
    """The next start is allowed in half the time."""
    pacing.note_start(draft, StartPace(pace.pool, pace.apart_us // 2), at_us)


def waits_for_what_it_uses(needs: PoolNeeds) -> tuple[str, ...]:
    """Who waits for its rate has no place in the pool's queue."""
    return tuple(name for name, _ in needs.uses)


def looks_now_and_then(state: State, pace: StartPace, place: QueuedTask | None, now_us: int) -> int | None:
    """What waits for its rate looks again after half a minute, and not when it may start."""
    return None if _START_US(state, pace, place, now_us) is None else now_us + turns.LOOK_AGAIN_US


POOL_MUTANTS: Final[dict[str, Rules]] = {
    "pool-capacity": instead(claims, "pool_shortage", never_lacks),
    "pool-each": instead(claims, "pool_shortage", lacks_of_the_first),
    "pool-from-claim": instead(pools, "_held", held_while_it_runs),
    "pool-of-the-lost": instead(pools, "_held", held_when_lost),
    "pool-wakes": instead(pools, "_wake", wakes_nobody),
    "pool-first": instead(pools, "queued", first_in_order),
    "pool-kept": instead(settings, "removal_fault", goes_whatever_uses_it),
    "rate-of-starts": instead(claims, "pace_shortage", starts_at_any_time),
    "rate-apart": instead(claims, "note_start", half_apart),
    "rate-queued": instead(PoolNeeds, "pools", property(waits_for_what_it_uses)),
    "rate-looks": instead(turns, "_start_us", looks_now_and_then),
}
"""By name."""

POOLS_SHOWN_BY: Final[dict[str, int]] = {
    "pool-capacity": 9,
    "pool-each": 39,
    "pool-from-claim": 9,
    "pool-of-the-lost": 59,
    "pool-wakes": 1019,
    "pool-first": 119,
    "pool-kept": 9,
    "rate-of-starts": 59,
    "rate-apart": 19,
    "rate-queued": 19,
    "rate-looks": 19,
}
"""A seed whose history shows it (`tests.simulation.mutants`)."""
