"""The cluster as a whole, and its settings."""

from aiohttp import web

from node.http.endpoint import Endpoints, Says
from node.http.problems import Problem
from node.http.request_context import Call
from node.http.requests import FoundBody, SettingsBody
from node.http.responses import ClusterView, FoundingView, SettingsView
from node.http.views import members_view, settings_view
from node.raft.errors import RaftStopped
from node.state.entries import ChangeSettings

endpoints = Endpoints("cluster")


@endpoints.add("GET", "/v1/cluster", {200: Says("The cluster", ClusterView)})
async def cluster(call: Call) -> web.Response:
    """The cluster as this member sees it.

    `quorum` false: what is told may be old, and nothing can be changed until a majority is back.
    """
    ownership = await call.ownership()
    state, role, outlook = call.state, call.node.role, call.node.outlook
    view: ClusterView = {
        "id": state.cluster_id,
        "node": call.node.facts.node,
        "leader": role.leader,
        "term": role.term,
        "index": state.index,
        "epoch": state.epoch,
        "quorum": role.has_quorum,
        "waiting_for": None if outlook is None else str(outlook),
        "settings": settings_view(state.settings),
        "members": members_view(state, ownership),
    }
    return call.answer(view)


@endpoints.add(
    "POST",
    "/v1/cluster/found",
    {202: Says("It founds without them, once the others accept it", FoundingView)},
    ("invalid", "conflict", "not-ready"),
    body=FoundBody,
)
async def found(call: Call) -> web.Response:
    """Found a cluster without members that are lost. To be asked of a node that waits to found one.

    The others that wait accept it by themselves, each unless it hears one of those that are to be left out. Refused
    where a cluster is known. Make sure before that those members are off, and have never been of a cluster.
    """
    without = frozenset((await call.model(FoundBody)).without)
    try:
        refused = await call.node.leave_out(without, call.service.limits.write_s)
    except (TimeoutError, RaftStopped) as error:
        raise Problem("not-ready", "this node is stopping, or its disk does not answer: ask again") from error
    if refused is not None:
        raise Problem("conflict", refused)
    outlook = call.node.outlook
    view: FoundingView = {"without": sorted(without), "waiting_for": None if outlook is None else str(outlook)}
    return call.answer(view, status=202)


@endpoints.add("GET", "/v1/settings", {200: Says("The settings", SettingsView)})
async def settings(call: Call) -> web.Response:
    """The cluster's settings."""
    return call.answer(settings_view(call.state.settings))


@endpoints.add(
    "PATCH",
    "/v1/settings",
    {200: Says("The settings as they are now", SettingsView)},
    ("invalid", "no-quorum", "outcome-unknown"),
    body=SettingsBody,
)
async def change_settings(call: Call) -> web.Response:
    """Change settings; those that are not named stay."""
    changed = (await call.model(SettingsBody)).changed()
    if changed:
        await call.propose(ChangeSettings(call.service.now_us(), changed))
    return call.answer(settings_view(call.state.settings))
