"""How often runs start in a pool: `rate` of a task (`tasks.definition.pools`). Decided in the claim. Pure.

It is the generic cell rate algorithm (ITU-T I.371) without a burst: a start moves the time from which the next one is
allowed on, by what its task says. The times are those of the entries, each by its proposer's clock. Members that have
agreed on the time differ by less than `APART_S`, so a start that is stamped further ahead of a claim than that is of
another clock: of a member that has just started and does not know the agreed time yet, say. Such a start is ignored,
so that it holds up nobody for longer than its own pace and `APART_S`. It is not forgotten: a pool keeps two starts, one
for each clock, so that each clock's starts keep their distance.
"""

from typing import Final

from immutables import Map

from node.state.copying import replace
from node.state.draft import Draft
from node.state.pool import PacedStart, Pool
from node.state.run_times import APART_S
from node.state.times import rfc3339
from tasks.definition.pools import StartPace

RULES_RATES: Final = 10
"""From these rules on (`Lead.rules`), tasks may have a rate."""

_APART_US: Final = round(APART_S * 1_000_000)


def opens_us(pool: Pool, now_us: int) -> int:
    """Return from when on a run with a rate may start in a pool, in microseconds since the epoch; 0: it may at once.

    `now_us`: the caller's time, or the time stamp of the claim.
    """
    return next((one.next_us for one in pool.starts if one.at_us - now_us <= _APART_US), 0)


def pace_shortage(pools: Map[str, Pool], pace: StartPace, at_us: int) -> str | None:
    """Say why a run may not start at this time; None: it may. In a pool that was removed, no other start counts."""
    pool = pools.get(pace.pool)
    if pool is None or (from_us := opens_us(pool, at_us)) <= at_us:
        return None
    return f"the rate of the pool {pace.pool} allows the next start at {rfc3339(from_us)}"


def note_start(draft: Draft, pace: StartPace, at_us: int) -> None:
    """Note that a run starts at this time, so that the next one starts later."""
    pool = draft.pools.get(pace.pool)
    if pool is not None:
        start = PacedStart(at_us, at_us + pace.apart_us)
        draft.pools = draft.pools.set(pace.pool, replace(pool, starts=_with(pool.starts, start)))


def _with(starts: tuple[PacedStart, ...], start: PacedStart) -> tuple[PacedStart, ...]:
    """Return the starts of a pool, the latest first, after one more."""
    if not starts:
        return (start,)
    latest = starts[0]
    if latest.at_us - start.at_us > _APART_US:
        return (latest, start)
    # Far later than it could have been: after a pause, or by another clock, beside which this one goes on.
    beside = start.at_us - latest.next_us > _APART_US
    return (start, latest) if beside else (start, *starts[1:])
