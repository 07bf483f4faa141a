"""The kinds of task that the cluster offers."""

import asyncio
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from node.http.endpoint import Endpoints, ResponseSpec
from node.http.pages import cursor_of, cut, name_after
from node.http.request_context import RequestContext
from node.http.requests import PageQuery
from node.http.responses.cluster import KindPage, KindView
from node.http.specs import members_offering, offered_kinds
from node.peer.protocol import PeerAway
from tasks.installed_kinds import KindError

endpoints = Endpoints("kinds")


@endpoints.add("GET", "/v1/kinds", {200: ResponseSpec("KindsPort, by name", KindPage)}, ("invalid",))
async def kinds(context: RequestContext, query: PageQuery) -> web.Response:
    """The kinds of task that members offer, with the JSON schema of their params."""
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
    """The JSON schema of a kind's params, from this member or one that is `offering` it; None if none answers."""
    if kind in context.node.kinds.names():
        try:
            return context.node.kinds.schema(kind)
        except KindError:
            pass  # it does not load here; ask a member that offers it
    for member in offering:
        if member != context.node.facts.node:
            try:
                return await context.server.peers.schema(member, kind, context.server.limits.peer_s)
            except PeerAway:
                continue
    return None
