"""How the members are, as they say themselves."""

from aiohttp import web

from node.http.endpoint import Endpoints, ResponseSpec
from node.http.member_lag import MemberLag, MemberLags
from node.http.request_context import RequestContext
from node.http.responses.vitals import DiskView, VitalsPage, VitalsView

endpoints = Endpoints("members")


@endpoints.add("GET", "/v1/vitals", {200: ResponseSpec("Members, by slot", VitalsPage)})
async def vitals(context: RequestContext) -> web.Response:
    """What each member says of itself: lease, log, disk, clock, version, why it does not offer a kind, and from
    what tasks on it are not kept.

    Each is asked every 2 s at most, however often this is asked.
    """
    lags = await context.server.kept(MemberLags).of(context)
    names = [name for name in context.state.slots if name is not None]
    return context.answer({"items": [vitals_view(name, lags.get(name)) for name in names]})


def vitals_view(name: str, lag: MemberLag | None) -> VitalsView:
    """A member's answer; None: it was not asked, since it is down."""
    told = None if lag is None else lag.vitals
    disk: DiskView | None = None
    if told is not None and told.disk_total_bytes is not None and told.disk_free_bytes is not None:
        disk = {"total_bytes": told.disk_total_bytes, "free_bytes": told.disk_free_bytes}
    return {
        "node": name,
        "away": "it is down" if lag is None else lag.away or None,
        "behind": None if lag is None else lag.behind,
        "answered_s": None if lag is None or lag.behind is None else round(lag.answered_s, 4),
        "version": None if told is None else told.version,
        "lease_held": None if told is None else told.lease_held,
        "disk": disk,
        "clock_off_s": None if told is None or told.clock_off_us is None else told.clock_off_us / 1e6,
        "unoffered": None if told is None else dict(told.unoffered),
        "not_kept": None if told is None else list(told.not_kept),
    }
