"""Asks other members for facts that a request needs: progress of attempts, what holds tasks, why a kind is not offered.

Each member is asked once, all of them at the same time. This member's own answer needs no request.
"""

import asyncio
from collections.abc import Iterable, Sequence

from node.duty.hold import Hold
from node.http.door.request_context import RequestContext
from node.peer.protocol import PeerAway, RunProgress
from node.state.value import Run
from tasks.definition.run import HELD


async def progress_of(context: RequestContext, runs: Iterable[Run]) -> dict[str, RunProgress]:
    """Return the progress of runs, as far as the members that run them answer."""
    by_member: dict[str, list[str]] = {}
    for run in runs:
        if run.state in HELD and run.node is not None:
            by_member.setdefault(run.node, []).append(run.run_id)
    here = {run_id: context.node.progress(run_id) for run_id in by_member.pop(context.node.settings.node, [])}
    known = {run_id: progress for run_id, progress in here.items() if progress is not None}
    for answer in await asyncio.gather(*(_progress_on(context, member, held) for member, held in by_member.items())):
        known |= answer
    return known


async def _progress_on(context: RequestContext, member: str, runs: list[str]) -> dict[str, RunProgress]:
    try:
        progress, _ = await context.server.peers.progress(member, runs, [], context.server.limits.peer_s)
    except PeerAway:
        return {}
    return progress


async def holds_on(context: RequestContext, owner: str, tasks: Sequence[str]) -> tuple[dict[str, Hold], str]:
    """Ask the owner of tasks what holds them. Returns the holds by task, and why the owner did not answer, or ""."""
    if owner == context.node.settings.node:
        found = {task: await context.node.hold(task) for task in tasks}
        return {task: hold for task, hold in found.items() if hold is not None}, ""
    try:
        _, holds = await context.server.peers.progress(owner, [], tasks, context.server.limits.peer_s)
    except PeerAway as away:
        return {}, str(away)
    return holds, ""


async def unoffered_by(context: RequestContext, kind: str, members: Sequence[str]) -> dict[str, str]:
    """Ask these members why they do not offer a kind. Returns a sentence for each member."""
    answers = await asyncio.gather(*(_unoffered_by(context, kind, member) for member in members))
    return dict(zip(members, answers, strict=True))


async def _unoffered_by(context: RequestContext, kind: str, member: str) -> str:
    if member == context.node.settings.node:
        return context.node.unoffered(kind) or "it does"
    try:
        return await context.server.peers.unoffered(member, kind, context.server.limits.peer_s) or "it does"
    except PeerAway as away:
        return str(away)
