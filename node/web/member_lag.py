"""How far the other members are behind this one, and how quickly they answer: asked at most every few seconds."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Final

from node.http.request_context import RequestContext
from node.peer.protocol import PeerAway

FRESH_S: Final = 2.0
"""What was heard is used again for this long, whoever asks."""


@dataclass(frozen=True, slots=True)
class MemberLag:
    """What a member answered. `behind`: log entries that it has not applied yet; None: it does not answer."""

    behind: int | None
    answered_s: float = 0.0


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
                self._heard = {**dict(zip(others, heard, strict=True)), me: MemberLag(0)}
                self._asked_s = self._now_s()
            return self._heard

    async def _ask(self, context: RequestContext, member: str) -> MemberLag:
        index, began_s = context.state.index, self._now_s()
        try:
            roster = await context.server.peers.roster(member, context.server.limits.peer_s)
        except PeerAway:
            return MemberLag(None)
        return MemberLag(max(0, index - roster.index), self._now_s() - began_s)
