"""The health of all members: how far each is behind, how quickly it answers, and what it reports about itself.

A member is asked at most once in `FRESH_S` seconds, however many clients ask.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from aiohttp import web
from typing_extensions import TypedDict

from node.http.api.specs import offered_kinds
from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.request_context import RequestContext
from node.peer.protocol import PeerAway
from node.peer.vitals import TYPES, MemberVitals


class DiskView(TypedDict):
    """The file system of a member's data folder."""

    total_bytes: int
    free_bytes: int


def _disk(told: MemberVitals) -> DiskView | None:
    if told.disk_total_bytes is None or told.disk_free_bytes is None:
        return None
    return {"total_bytes": told.disk_total_bytes, "free_bytes": told.disk_free_bytes}


def _clock_off_s(told: MemberVitals) -> float | None:
    return None if told.clock_off_us is None else told.clock_off_us / 1e6


class _Shown(NamedTuple):
    """How one of the vitals is shown: the field of the view, its type if the member has sent it, and its value."""

    name: str
    kind: Any
    of: Callable[[MemberVitals], Any]


_SHOWN_OTHERWISE: Final = {
    "disk_total_bytes": _Shown("disk", DiskView, _disk),
    "disk_free_bytes": _Shown("disk", DiskView, _disk),
    "clock_off_us": _Shown("clock_off_s", float, _clock_off_s),
}
"""The vitals that are not shown as a member sends them. The others are shown unchanged, under their own names."""

_SHOWN: Final = {
    shown.name: shown
    for name, kind in TYPES.items()
    for shown in [_SHOWN_OTHERWISE.get(name) or _Shown(name, kind, attrgetter(name))]
}

if TYPE_CHECKING:

    class _ToldView(TypedDict):
        """The vitals, as shown. mypy knows none of the fields, since they are derived below."""

else:
    _ToldView = TypedDict("_ToldView", {name: shown.kind | None for name, shown in _SHOWN.items()})


class AnswerView(TypedDict):
    """How a member answers."""

    node: str
    away: str | None
    behind: int | None
    answered_s: float | None


class VitalsView(AnswerView, _ToldView):
    """A member, as it answered a few seconds ago at most.

    `away` says why it does not answer; the fields after it are null then. A member that is down is not asked. `behind`
    is how many log entries it lacks of those that the answering node has applied. The fields after `answered_s` are
    null if the member is of an earlier version. `clock_off_s` is how far its machine's wall clock is ahead of the time
    that the members agree on; null: they have not agreed yet. `unoffered` says why it does not offer a kind.
    `not_kept` has a sentence for each confinement of tasks that is missing, and for each limit that is not enforced.
    """


class VitalsPage(TypedDict):
    """Members, by slot."""

    items: list[VitalsView]


FRESH_S: Final = 2.0
"""How long the members' answers are reused, for all clients, in seconds."""

endpoints = Endpoints("members")


@dataclass(frozen=True, slots=True)
class MemberLag:
    """A member's answer. `behind`: how many log entries it has not applied; None: it does not answer, see `away`.

    `vitals` None: the member does not answer, or is of an earlier version.
    """

    behind: int | None
    answered_s: float = 0.0
    vitals: MemberVitals | None = None
    away: str = ""


@endpoints.add("GET", "/v1/vitals", {200: ResponseSpec("Members, by slot", VitalsPage)})
async def vitals(context: RequestContext) -> web.Response:
    """List each member's vitals: lease, log, disk, clock, version, kinds not offered, and missing confinement.

    Each member is asked at most once in 2 s, however many clients ask.
    """
    lags = await context.server.kept(MemberLags).of(context)
    names = [name for name in context.state.slots if name is not None]
    return context.answer({"items": [vitals_view(name, lags.get(name)) for name in names]})


def vitals_view(name: str, lag: MemberLag | None) -> VitalsView:
    """Return a member's answer, as the API shows it. `lag` None: the member was not asked, since it is down."""
    told = None if lag is None else lag.vitals
    answer: AnswerView = {
        "node": name,
        "away": "it is down" if lag is None else lag.away or None,
        "behind": None if lag is None else lag.behind,
        "answered_s": None if lag is None or lag.behind is None else round(lag.answered_s, 4),
    }
    vitals = {field: None if told is None else shown.of(told) for field, shown in _SHOWN.items()}
    return cast(VitalsView, {**answer, **vitals})


class MemberLags:
    """The latest answers of all members that are not down. `now_s` is a monotonic clock. Used on the event loop."""

    def __init__(self, now_s: Callable[[], float] = monotonic) -> None:
        self._now_s = now_s
        self._lock = asyncio.Lock()
        self._asked_s = float("-inf")
        self._heard: dict[str, MemberLag] = {}

    async def of(self, context: RequestContext) -> dict[str, MemberLag]:
        """Return the latest lag of this member and of each other that is not down. Asks again after `FRESH_S`."""
        async with self._lock:
            if self._now_s() - self._asked_s >= FRESH_S:
                me, state = context.node.settings.node, context.state
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
    """Return this member's vitals. Their `unoffered` covers the kinds installed here or offered by any member."""
    node = context.node
    kinds = sorted(node.kinds.names() | offered_kinds(context.state))
    unoffered = {kind: why for kind in kinds if (why := node.unoffered(kind)) is not None}
    return replace(node.vitals(), unoffered=unoffered)
