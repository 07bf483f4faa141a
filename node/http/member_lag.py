"""How the other members are: how far behind, how quickly they answer, what they say of themselves.

They are asked at most every few seconds, whoever wants to know.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic
from typing import Final

from node.http.request_context import RequestContext
from node.http.specs import offered_kinds
from node.peer.protocol import PeerAway
from node.peer.vitals import MemberVitals

FRESH_S: Final = 2.0
"""What was heard is used again for this long, whoever asks."""


@dataclass(frozen=True, slots=True)
class MemberLag:
    """The answer of a member. `behind`: log entries that it has not applied yet; None: it does not answer (`away`).

    `vitals` None: it does not answer, or is of an earlier version.
    """

    behind: int | None
    answered_s: float = 0.0
    vitals: MemberVitals | None = None
    away: str = ""


class MemberLags:
    """The latest answers of all members that are not down. `now_s` is a monotonic clock. Used on the event loop."""

    def __init__(self, now_s: Callable[[], float] = monotonic) -> None:
        self._now_s = now_s
        self._lock = asyncio.Lock()
        self._asked_s = float("-inf")
        self._heard: dict[str, MemberLag] = {}

    async def of(self, context: RequestContext) -> dict[str, MemberLag]:
        """The lag of each member that is asked, this node's own among them."""
        async with self._lock:
            if self._now_s() - self._asked_s >= FRESH_S:
                me, state = context.node.facts.node, context.state
                others = [name for name, row in state.members.items() if name != me and row.status != "down"]
                heard = await asyncio.gather(*(self._ask(context, name) for name in others))
                here = MemberLag(0, vitals=vitals_here(context))
                self._heard = {**dict(zip(others, heard, strict=True)), me: here}
                self._asked_s = self._now_s()
            return self._heard

    async def _ask(self, context: RequestContext, member: str) -> MemberLag:
        index, began_s = context.state.index, self._now_s()
        try:
            roster = await context.server.peers.roster(member, context.server.limits.peer_s)
        except PeerAway as away:
            return MemberLag(None, away=str(away))
        return MemberLag(max(0, index - roster.index), self._now_s() - began_s, roster.vitals)


def vitals_here(context: RequestContext) -> MemberVitals:
    """What this member says of itself, with why it does not offer each kind that is known here or offered elsewhere."""
    node = context.node
    kinds = sorted(node.kinds.names() | offered_kinds(context.state))
    unoffered = {kind: why for kind in kinds if (why := node.unoffered(kind)) is not None}
    return replace(node.vitals(), unoffered=unoffered)
