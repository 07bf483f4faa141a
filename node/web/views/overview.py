"""The overview at `/`, and its parts, which are sent to an open page again when they change."""

from heapq import nsmallest
from typing import Any, Final, Literal

from aiohttp import web

from node.duty.conditions import Mark
from node.duty.ownership import Ownership
from node.duty.standing import standing
from node.duty.why_values import Why
from node.http.api.asking import progress_of
from node.http.api.backfills import backfill_view
from node.http.api.cluster import mismatch_view
from node.http.api.explaining import unexpectedly_held
from node.http.api.members import members_view
from node.http.api.runs import run_view
from node.http.api.tasks import late_view
from node.http.api.vitals import MemberLags
from node.http.door.request_context import RequestContext
from node.runtime.durations import seconds
from node.state.pacing import opens_us
from node.state.value import Run, State
from node.web.board import Picture
from node.web.board_keeper import picture_of
from node.web.page_endpoints import PageEndpoints, ViewQuery
from node.web.rendering import page
from node.web.verdict import NodeSight, verdict
from tasks.definition.run import HELD

OverviewPart = Literal["verdict", "running", "attention", "coming", "members", "pools", "backfills", "standing"]

RUNNING_MAX: Final = 30
"""At most this many runs are shown; the others are counted."""

ATTENTION_MAX: Final = 8
"""At most this many tasks with each mark are shown."""

POOLS_MAX: Final = 8
"""At most this many pools are shown; the others are counted."""

POOL_NAMED_MAX: Final = 3
"""At most this many of the runs that hold a pool, and of the tasks that wait for it, are named."""

DAY_US: Final = 86_400_000_000
"""So long an ended backfill is shown."""

BACKFILLS_MAX: Final = 5
"""At most this many backfills are shown; the others are counted."""

BACKFILL_NAMED_MAX: Final = 3
"""At most this many of a backfill's occurrences under way, and of the failed ones, are named."""

ERROR_CHARS_MAX: Final = 240

_ATTENTION: Final[tuple[Mark, ...]] = ("unowned", "late", "overdue", "waiting", "failing")


class OverviewQuery(ViewQuery):
    """Which part of the overview; None: the whole page."""

    part: OverviewPart | None = None


endpoints = PageEndpoints("page")

_PARTS: Final[tuple[OverviewPart, ...]] = ("verdict", "running", "attention", "coming", "members", "pools", "backfills")


@endpoints.page("/")
async def overview(context: RequestContext, query: OverviewQuery) -> web.Response:
    """Show the active runs, the tasks due next and the verdict; with `part`, one part of that."""
    if query.part is not None:
        return page(context, f"parts/{query.part}.html", **await part_values(context, query.part))
    parts = {part: await part_values(context, part) for part in _PARTS}
    return page(context, "overview.html", parts=parts)


async def part_values(context: RequestContext, part: OverviewPart) -> dict[str, Any]:
    """Return the values for the template of a part."""
    match part:
        case "verdict":
            return await _verdict(context)
        case "running":
            return await _running(context)
        case "attention":
            return await _attention(context)
        case "coming":
            return {"picture": await picture_of(context)}
        case "members":
            return await _members(context)
        case "pools":
            return _pools(context.state, context.server.now_us())
        case "backfills":
            return _backfills(context.state, context.server.now_us())
        case "standing":
            return {}  # `page` gives every template these findings


async def _verdict(context: RequestContext) -> dict[str, Any]:
    node, picture = context.node, await picture_of(context)
    outlook = None if node.outlook is None else str(node.outlook)
    overdue = await node.overdue()
    mismatches = [mismatch_view(one, node.settings.node) for one in node.mismatches]
    sight = NodeSight(
        node=node.settings.node,
        role=node.role,
        lease_held=node.lease_held,
        outlook=outlook,
        overdue=overdue,
        lapsed_us=node.lease_lapsed_us,
        mismatches=mismatches,
    )
    state = context.state
    up = sum(member.status == "up" for member in state.members.values())
    held = sum(run.state in HELD for run in state.runs.values())
    return {
        "verdict": verdict(state, sight, picture),
        "up": up,
        "members": len(state.members),
        "tasks": len(state.tasks),
        "held": held,
    }


async def _running(context: RequestContext) -> dict[str, Any]:
    held = sorted((run for run in context.state.runs.values() if run.state in HELD), key=_claimed_at_us)
    shown = held[:RUNNING_MAX]
    progress = await progress_of(context, shown)
    runs = [(run, run_view(run, progress=progress.get(run.run_id))) for run in shown]
    return {"runs": runs, "count": len(held)}


async def _attention(context: RequestContext) -> dict[str, Any]:
    picture = await picture_of(context)
    named: dict[str, int | None] = {}
    for one in (*picture.late[:ATTENTION_MAX], *picture.overdue[:ATTENTION_MAX]):
        named.setdefault(one.task, one.at_us)
    for task in (*picture.unowned[:ATTENTION_MAX], *picture.waiting[:ATTENTION_MAX]):
        named.setdefault(task, None)
    for one in picture.failing[:ATTENTION_MAX]:
        named.setdefault(one.task, one.at_us)
    ownership = context.node.ownership()
    held = await unexpectedly_held(context, [task for task in named if task in context.state.tasks], ownership)
    items = [
        {
            "task": task,
            "failing": picture.has(task, "failing"),
            "mark": next(mark for mark in _ATTENTION if picture.has(task, mark)),
            "why": _reasons(context, picture, ownership, task, held.get(task)),
            "since_us": since_us,
        }
        for task, since_us in named.items()
        if task in context.state.tasks
    ]
    return {"items": items, "more": sum(picture.counts.get(mark, 0) for mark in _ATTENTION) > len(items)}


def _reasons(context: RequestContext, picture: Picture, ownership: Ownership, task: str, held: Why | None) -> list[str]:
    """Return why a task needs attention: breached deadlines, why it does not run, and why its last run failed."""
    state, said = context.state, []
    said += [late["detail"] for late in late_view(state.tasks[task])]
    if held is not None:
        said.append(f"{held.detail}; {held.remedy}")
    elif picture.has(task, "waiting") and (owner := ownership.owner(task)) is not None:
        said += [told.detail for told in standing(state, task, owner, (), context.server.now_us())[:1]]
    last = state.tasks[task].last
    if last is not None and picture.has(task, "failing"):
        error = " ".join((last.error or "no reason was given").split())[:ERROR_CHARS_MAX]
        said.append(f"{last.state.replace('_', ' ')}: {error}")
    return said


async def _members(context: RequestContext) -> dict[str, Any]:
    ownership, lags = await context.ownership(), await context.server.kept(MemberLags).of(context)
    state = context.state
    views = members_view(state, ownership, context.node.bootstraps.known(state))
    # The load for each unit of capacity; the bars show it in relation to the highest.
    shares = {view["id"]: view["load"] / max(1, view["capacity"]) for view in views}
    return {
        "views": views,
        "rows": state.members,
        "shares": shares,
        "most": max(shares.values(), default=0) or 1,
        "leader": context.node.role.leader,
        "lease_held": context.node.lease_held,
        "lags": lags,
        "term": context.node.role.term,
        "index": state.index,
    }


def _pools(state: State, now_us: int) -> dict[str, Any]:
    """Return the pools that most wait for, then those that are used most.

    Each with the runs that hold it longest, and when the next run with a rate may start; 0: it may now.
    """
    busiest = sorted(state.pools.items(), key=lambda item: (-len(item[1].queue), -item[1].used, item[0]))[:POOLS_MAX]
    shown = []
    for name, pool in busiest:
        holders = nsmallest(POOL_NAMED_MAX, (state.runs[run_id] for run_id in pool.holders), key=_claimed_at_us)
        next_us = opens_us(pool, now_us)
        named = [(run, pool.holders[run.run_id]) for run in holders]
        shown.append((name, pool, named, next_us if next_us > now_us else 0))
    return {"pools": shown, "count": len(state.pools), "named": POOL_NAMED_MAX}


def _backfills(state: State, now_us: int) -> dict[str, Any]:
    """Return the open backfills, then those that have ended within a day, each with the time that is left."""
    rows = [row for row in state.backfills.values() if row.ended_us is None or row.ended_us > now_us - DAY_US]
    rows.sort(key=lambda row: (not row.open, -row.number))
    views = [backfill_view(state, row, now_us) for row in rows[:BACKFILLS_MAX]]
    shown = [(view, None if view["left_s"] is None else seconds(view["left_s"])) for view in views]
    return {"backfills": shown, "count": len(rows), "named": BACKFILL_NAMED_MAX}


def _claimed_at_us(run: Run) -> tuple[int, str]:
    return (run.attempts[-1].claimed_at_us if run.attempts else 0, run.run_id)
