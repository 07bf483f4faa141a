"""What would be if members were down, or drained ones back."""

import asyncio

from aiohttp import web
from pydantic_core import to_json

from node.duty.what_if import Supposition, WhatIf
from node.http.endpoint import Endpoints, ResponseSpec
from node.http.request_context import RequestContext
from node.http.requests import WhatIfQuery
from node.http.responses.placement import WhatIfView
from node.http.what_if_view import what_if_view
from node.http.what_ifs import members_named, what_if_of

endpoints = Endpoints("placement")


@endpoints.add(
    "GET", "/v1/placement/what-if", {200: ResponseSpec("What would be, and what is due", WhatIfView)}, ("invalid",)
)
async def what_if(context: RequestContext, query: WhatIfQuery) -> web.Response:
    """What would be without some members: who runs what is due, what moves, what nobody could run, and a majority.

    Nothing is changed. Without `without` and `back` it is what is due as things are. An answer that was dear to compute
    is given again for up to a minute, unless members or settings change: `index` says of which state it is.
    """
    state = context.state
    without = frozenset[str]() if query.without is None else members_named(state, "without", query.without)
    back = frozenset[str]() if query.back is None else members_named(state, "back", query.back)
    found = await what_if_of(context, Supposition(without, back - without), query.ahead_s)
    return context.answer_packed(await asyncio.to_thread(_packed, found, query.limit))


def _packed(found: WhatIf, limit: int) -> bytes:
    return to_json(what_if_view(found, limit))
