"""The kinds of task that the cluster offers."""

import asyncio
from collections.abc import Sequence
from typing import Any

from aiohttp import web
from typing_extensions import TypedDict

from node.http.api.pages import cursor_of, cut, name_after
from node.http.api.shapes import Cursor, PageQuery
from node.http.api.specs import members_offering, offered_kinds
from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.request_context import RequestContext
from node.peer.protocol import PeerAway
from tasks.installed_kinds import KindError


class KindView(TypedDict):
    """A kind of task: the members that offer it, and the JSON schema of its params.

    `params` is null if no member that has the kind answers.
    """

    kind: str
    members: list[str]
    params: dict[str, Any] | None


class KindPage(TypedDict):
    """Kinds, by name."""

    items: list[KindView]
    next: Cursor


endpoints = Endpoints("kinds")


@endpoints.add("GET", "/v1/kinds", {200: ResponseSpec("Kinds, by name", KindPage)}, ("invalid",))
async def kinds(context: RequestContext, query: PageQuery) -> web.Response:
    """List the kinds of task that members offer, with the JSON schema of their params."""
    after = name_after(query.after)
    names, more = cut(
        [kind for kind in sorted(offered_kinds(context.state)) if after is None or kind > after], query.limit
    )
    items = await asyncio.gather(*(_kind(context, kind) for kind in names))
    return context.answer({"items": items, "next": cursor_of(names[-1]) if more else None})


async def _kind(context: RequestContext, kind: str) -> KindView:
    offering = members_offering(context.state, kind)
    return {"kind": kind, "members": sorted(offering), "params": await schema_of(context, kind, offering)}


async def schema_of(context: RequestContext, kind: str, offering: Sequence[str]) -> dict[str, Any] | None:
    """Return the JSON schema of a kind's params, from this member or one of `offering`; None if no member answers."""
    if kind in context.node.kinds.names():
        try:
            return context.node.kinds.schema(kind)
        except KindError:
            pass  # the kind does not load here; ask a member that offers it
    for member in offering:
        if member != context.node.settings.node:
            try:
                return await context.server.peers.schema(member, kind, context.server.limits.peer_s)
            except PeerAway:
                continue
    return None
