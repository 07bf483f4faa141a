"""The page of members: the status of each, and a button to drain it."""

from typing import Any, Final, Literal

from aiohttp import web
from pydantic import Field

from node.duty.what_if import Supposition, majority
from node.http.api.members import members_view
from node.http.api.vitals import MemberLags
from node.http.api.what_ifs import what_if_of
from node.http.door.problems import Problem
from node.http.door.request_context import RequestContext
from node.state.value import State
from node.web.page_endpoints import PageEndpoints, ViewQuery
from node.web.rendering import page

PREVIEW_S: Final = 86_400
"""How far ahead the preview counts due occurrences."""

MOVES_NAMED: Final = 8
"""The preview names at most this many of the tasks that would move."""


class MembersPageQuery(ViewQuery):
    """Which part of the page. `preview`: which tasks would move if `member` were drained, or if it were back."""

    part: Literal["cards", "preview"] | None = None
    member: str = Field(default="", max_length=200)


endpoints = PageEndpoints("page")


@endpoints.page("/members")
async def members_page(context: RequestContext, query: MembersPageQuery) -> web.Response:
    """Show the members; with `part=cards`, only their cards; with `part=preview`, what draining `member` would move."""
    if query.part == "preview":
        return page(context, "parts/drain_preview.html", **await preview_values(context, query.member))
    template = "parts/member_cards.html" if query.part == "cards" else "members.html"
    return page(context, template, **await cards_values(context))


async def cards_values(context: RequestContext) -> dict[str, Any]:
    """Return the values for the template of the members' cards."""
    ownership, lags = await context.ownership(), await context.server.kept(MemberLags).of(context)
    state = context.state
    views = members_view(state, ownership, context.node.bootstraps.known(state))
    limits = ownership.limits()
    kinds = sorted(frozenset[str]().union(*(member.kinds for member in state.members.values())))
    return {
        "views": views,
        "rows": state.members,
        "limits": limits,
        "most": max(limits.values(), default=0) or max((view["load"] for view in views), default=0) or 1,
        "balanced": state.settings.balance_slack_milli is not None,
        "kinds": kinds,
        "lags": lags,
        "majority": majority(state, state),
        "leader": context.node.role.leader,
        "has_quorum": context.node.role.has_quorum,
        "term": context.node.role.term,
        "index": state.index,
        "lease_s": state.settings.lease_s,
    }


async def preview_values(context: RequestContext, name: str) -> dict[str, Any]:
    """Return the values for the preview: the effect of draining a member that is up, or of another member's return.

    Raises `Problem`.
    """
    state = context.state
    if name not in state.members:
        raise Problem("not-found", f"there is no member {name!r}")
    supposition = _opposite(state, name)
    found = await what_if_of(context, supposition, PREVIEW_S)
    return {
        "name": name,
        "found": found,
        "drains": bool(supposition.without),
        "news": [one for one in found.unowned if not one.now],
        "named": found.moves[:MOVES_NAMED],
        "due": sum(one.count for one in found.ahead.members.values()),
        "due_moved": sum(sum(one.moved_starts) for one in found.ahead.members.values()),
    }


def _opposite(state: State, name: str) -> Supposition:
    """Return the supposition of the preview. A member to drain counts as down, because the placement is the same."""
    one = frozenset((name,))
    return Supposition(without=one) if state.members[name].status == "up" else Supposition(back=one)
