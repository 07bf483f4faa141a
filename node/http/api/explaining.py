"""Explains why tasks do not run: gathers the facts for `node.duty.why`, on this member and from others."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from typing import Final

from node.duty.advice import has_labels
from node.duty.conditions import UNEXPECTED
from node.duty.ownership import Ownership
from node.duty.standing import runs_of
from node.duty.upstream import Upstream, upstream_of, waiting_chain
from node.duty.why import asks_owner, why_not_running
from node.duty.why_values import Why, WhyFacts
from node.http.api.asking import holds_on, progress_of, unoffered_by
from node.http.door.request_context import RequestContext

MEMBERS_ASKED_MAX: Final = 20
"""How many members are asked, at most, why they do not offer a kind."""

TASKS_BATCH: Final = 10
"""How many tasks are explained before other requests have their turn: some milliseconds of work."""


async def explain(context: RequestContext, task: str, ownership: Ownership, run_id: str | None = None) -> Why:
    """Explain why `task`, or its active run `run_id` if given, does not run. The state and the ownership must know it.

    Asks the members that know more: the owner, the member that runs the task, or those that do not offer its kind. For
    a task that waits for others, the question goes on to the task where that begins.
    """
    state, now_us = context.state, context.server.now_us()
    known = _known(context, task, ownership)
    found = why_not_running(state, task, known, now_us, run_id)
    if found.code in ("running", "no_quorum"):
        progress = await progress_of(context, runs_of(state, task))
        frozen = {run: one.frozen_since_us for run, one in progress.items() if one.frozen_since_us is not None}
        known = replace(known, frozen_since_us=frozen)
    elif found.code == "no_kind":
        row = state.tasks[task]
        able = [each for each in state.members.values() if has_labels(dict(row.placing.group), each)]
        up = sorted(each.id for each in able if each.status == "up")[:MEMBERS_ASKED_MAX]
        others = {each.id: f"it is {each.status}" for each in able if each.status != "up"}
        known = replace(known, unoffered=others | await unoffered_by(context, row.placing.kind, up))
    elif found.code == "after" and known.upstream is None and (upstream := await _upstream(context, task, ownership)):
        known = replace(known, upstream=upstream)
    elif (owner := found.member or known.owner) is not None and asks_owner(state, task, found):
        holds, away = await holds_on(context, owner, [task])
        known = replace(known, asked=True, hold=holds.get(task), away=away)
    else:
        return found
    # The members' answers are about the state as it was read above, not about a newer one.
    return why_not_running(state, task, known, now_us, run_id)


async def _upstream(context: RequestContext, task: str, ownership: Ownership) -> Upstream | None:
    """Return what holds the task that `task` waits for through its parents; None if that cannot be said now."""
    chain = waiting_chain(context.state, task, context.server.now_us())
    first, passage = chain[-1]
    if any(not join.decided for join in context.state.joins.get(task, ())):
        del chain[0]  # what the task itself waits for is said already
    if first == task or first not in ownership.state.tasks:
        return None
    cause = await explain(context, first, ownership, passage.run_id if passage.is_open else None)
    return upstream_of(chain, cause.detail)


async def unexpectedly_held(context: RequestContext, tasks: Iterable[str], ownership: Ownership) -> dict[str, Why]:
    """Return why tasks are held although nobody asked them to wait, by task. Asks each owner of overdue tasks once.

    Leaves out a task whose schedule says that it is not due, unless no member may run it.
    """
    late = (await context.node.overdue()).names
    state, now_us = context.state, context.server.now_us()
    found: dict[str, Why] = {}
    overdue: dict[str, list[str]] = {}
    async for task in _in_portions(tasks):
        owner = ownership.owner(task)
        if not (task in late or owner is None or task in state.runs_of):
            continue
        if task not in state.tasks or task not in ownership.state.tasks:
            continue
        told = why_not_running(state, task, _known(context, task, ownership), now_us)
        if told.code == "due" and task in late and owner is not None:
            overdue.setdefault(told.member or owner, []).append(task)
        elif told.code in UNEXPECTED - {"due"}:
            found[task] = told
    answers = await asyncio.gather(*(holds_on(context, owner, names) for owner, names in overdue.items()))
    for names, (holds, away) in zip(overdue.values(), answers, strict=True):
        async for task in _in_portions(names):
            known = replace(_known(context, task, ownership), asked=True, hold=holds.get(task), away=away)
            found[task] = why_not_running(state, task, known, now_us)
    return found


async def _in_portions(tasks: Iterable[str]) -> AsyncIterator[str]:
    """Yield the tasks, with a pause for other requests between portions."""
    for number, task in enumerate(tasks, 1):
        if number % TASKS_BATCH == 0:
            await asyncio.sleep(0)
        yield task


def _known(context: RequestContext, task: str, ownership: Ownership) -> WhyFacts:
    role = context.node.role
    return WhyFacts(
        context.node.settings.node,
        role.leader,
        role.has_quorum,
        ownership.owner(task),
        tuple(ownership.explain(task)),
    )
