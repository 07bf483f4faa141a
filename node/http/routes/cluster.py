"""The cluster as a whole, and its settings."""

from aiohttp import web

from node.http.endpoint import Endpoints, ResponseSpec
from node.http.problems import Problem
from node.http.request_context import RequestContext
from node.http.requests import FoundBody, SettingsBody
from node.http.responses.cluster import ClusterView, FoundingView, PingedView, SettingsView
from node.http.views import members_view, mismatch_view, settings_view
from node.raft.errors import RaftStopped
from node.state.settings import ChangeSettings
from node.state.times import rfc3339
from tasks.version import version

endpoints = Endpoints("cluster")


@endpoints.add("GET", "/v1/cluster", {200: ResponseSpec("The cluster", ClusterView)})
async def cluster(context: RequestContext) -> web.Response:
    """The cluster as this member sees it.

    `quorum` false: the answer may be stale, and nothing can be changed until a quorum is back.
    """
    ownership = await context.ownership()
    state, role, outlook = context.state, context.node.role, context.node.outlook
    view: ClusterView = {
        "id": state.cluster_id,
        "node": context.node.facts.node,
        "version": version(),
        "leader": role.leader,
        "term": role.term,
        "index": state.index,
        "epoch": state.epoch,
        "quorum": role.has_quorum,
        "waiting_for": None if outlook is None else str(outlook),
        "mismatches": [mismatch_view(one, context.node.facts.node) for one in context.node.mismatches],
        "settings": settings_view(state.settings),
        "watchdog": _pinged(context),
        "members": members_view(state, ownership, context.node.bootstraps.known(state)),
    }
    return context.answer(view)


def _pinged(context: RequestContext) -> PingedView | None:
    watchdog, last = context.state.settings.watchdog, context.node.pinged
    if watchdog is None:
        return None
    return {
        "node": context.node.role.leader,
        "every_s": watchdog.every_s,
        "at": None if last is None else rfc3339(last.at_us),
        "withheld": None if last is None else last.withheld,
        "error": None if last is None else last.error,
    }


@endpoints.add(
    "POST",
    "/v1/cluster/found",
    {202: ResponseSpec("The cluster will be founded without them, once the others accept it", FoundingView)},
    ("invalid", "conflict", "not-ready"),
    body=FoundBody,
)
async def found(context: RequestContext) -> web.Response:
    """Found a cluster without members that are lost. Send it to a node that waits for the founding.

    The other waiting nodes accept it by themselves, unless they hear one of the members that are left out. Refused if a
    cluster is known. Make sure first that the lost members are off and have never been in a cluster.
    """
    without = frozenset((await context.model(FoundBody)).without)
    try:
        refused = await context.node.leave_out(without, context.server.limits.write_s)
    except (TimeoutError, RaftStopped) as error:
        raise Problem("not-ready", "this node is stopping, or its disk does not answer: try again") from error
    if refused is not None:
        raise Problem("conflict", refused)
    outlook = context.node.outlook
    view: FoundingView = {"without": sorted(without), "waiting_for": None if outlook is None else str(outlook)}
    return context.answer(view, status=202)


@endpoints.add("GET", "/v1/settings", {200: ResponseSpec("The settings", SettingsView)})
async def settings(context: RequestContext) -> web.Response:
    """The cluster's settings."""
    return context.answer(settings_view(context.state.settings))


@endpoints.add(
    "PATCH",
    "/v1/settings",
    {200: ResponseSpec("The changed settings", SettingsView)},
    ("invalid", "no-quorum", "outcome-unknown"),
    body=SettingsBody,
)
async def change_settings(context: RequestContext) -> web.Response:
    """Change settings; the others stay as they are."""
    changed = (await context.model(SettingsBody)).changed()
    if changed:
        await context.propose(ChangeSettings(context.server.now_us(), changed))
    return context.answer(settings_view(context.state.settings))
