"""The pools: what of each is used and by which runs, and who waits for it."""

from aiohttp import web
from typing_extensions import TypedDict

from node.http.api.pages import cursor_of, cut, name_after
from node.http.api.shapes import Cursor, PageQuery, Time
from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.request_context import RequestContext
from node.state.pacing import opens_us
from node.state.pool import Pool
from node.state.times import rfc3339, rfc3339_or_none
from node.state.value import State

LISTED_MAX = 100
"""The most holders, and the most of those that wait, that one pool's view names."""


class PoolHolderView(TypedDict):
    """A run that uses something of a pool, how much, and since when."""

    run_id: str
    task: str
    node: str | None
    units: int
    since: Time


class PoolWaiterView(TypedDict):
    """A run that waits for a pool, and since when it is due."""

    run_id: str
    task: str
    since: Time


class PoolView(TypedDict):
    """A pool. `used` may be more than `capacity` after that was lowered, because no run is ended for it.

    `tasks` is how many tasks use it, or have a rate in it, by their definitions. `holders` and `waiting` name 100 at
    most; `waiters` is how many wait, and `waiting` is in the order in which they begin. `next_start` is from when on
    the next run with a rate in it may start; null: none has started. `set` is the set of files that made it, if any.
    """

    name: str
    capacity: int
    used: int
    tasks: int
    set: str | None
    holders: list[PoolHolderView]
    waiters: int
    waiting: list[PoolWaiterView]
    next_start: Time | None


class PoolPage(TypedDict):
    """Pools, by name."""

    items: list[PoolView]
    next: Cursor


endpoints = Endpoints("pools")


@endpoints.add("GET", "/v1/pools", {200: ResponseSpec("Pools, by name", PoolPage)}, ("invalid",))
async def pools(context: RequestContext, query: PageQuery) -> web.Response:
    """List the pools, the runs that use them, and those that wait. `PATCH /v1/settings` makes and changes pools."""
    after = name_after(query.after)
    state = context.state
    names, more = cut([name for name in sorted(state.pools) if after is None or name > after], query.limit)
    sets, now_us = dict(state.settings.pool_sets), context.server.now_us()
    items = [pool_view(state, name, state.pools[name], now_us, sets.get(name)) for name in names]
    return context.answer({"items": items, "next": cursor_of(names[-1]) if more else None})


def pool_view(state: State, name: str, pool: Pool, now_us: int, of_set: str | None) -> PoolView:
    """Return a pool, as the API shows it. `of_set`: the set of files that made it."""
    holding = sorted((state.runs[run_id] for run_id in pool.holders), key=lambda run: run.token)[:LISTED_MAX]
    return {
        "name": name,
        "capacity": pool.capacity,
        "used": pool.used,
        "tasks": pool.tasks,
        "set": of_set,
        "holders": [
            {
                "run_id": run.run_id,
                "task": run.task,
                "node": run.node,
                "units": pool.holders[run.run_id],
                "since": rfc3339(run.attempts[-1].claimed_at_us),
            }
            for run in holding
        ],
        "waiters": len(pool.queue),
        "waiting": [
            {"run_id": one.run_id, "task": one.task, "since": rfc3339(one.since_us)} for one in pool.queue[:LISTED_MAX]
        ],
        "next_start": rfc3339_or_none(opens_us(pool, now_us) or None),
    }
