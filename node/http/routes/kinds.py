"""The kinds of task that the cluster offers."""

import asyncio
from typing import Any

from aiohttp import web

from node.http.endpoint import Endpoints, Says
from node.http.pages import cursor_of, cut, name_after
from node.http.request_context import Call
from node.http.requests import PageQuery
from node.http.responses import KindPage, KindView
from node.http.specs import members_offering, offered_kinds
from node.peer.protocol import PeerAway
from tasks.kinds import KindError

endpoints = Endpoints("kinds")


@endpoints.add("GET", "/v1/kinds", {200: Says("Kinds, by name", KindPage)}, ("invalid",))
async def kinds(call: Call, query: PageQuery) -> web.Response:
    """The kinds that members offer, with the JSON schema of their params."""
    after = name_after(query.after)
    names, more = cut(
        [kind for kind in sorted(offered_kinds(call.state)) if after is None or kind > after], query.limit
    )
    items = await asyncio.gather(*(_kind(call, kind) for kind in names))
    return call.answer({"items": items, "next": cursor_of(names[-1]) if more else None})


async def _kind(call: Call, kind: str) -> KindView:
    having = members_offering(call.state, kind)
    return {"kind": kind, "members": sorted(having), "params": await _schema(call, kind, having)}


async def _schema(call: Call, kind: str, having: list[str]) -> dict[str, Any] | None:
    if kind in call.node.kinds.names():
        try:
            return call.node.kinds.schema(kind)
        except KindError:
            pass  # it does not load here; it may elsewhere
    for member in having:
        if member != call.node.facts.node:
            try:
                return await call.service.peers.schema(member, kind, call.service.limits.peer_s)
            except PeerAway:
                continue
    return None
