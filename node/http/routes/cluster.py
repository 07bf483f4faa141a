"""The cluster as a whole, and its settings."""

from aiohttp import web

from node.http.answers import ClusterView, SettingsView
from node.http.call import Call
from node.http.endpoint import Endpoints, Says
from node.http.models import SettingsBody
from node.http.views import members_view, settings_view
from node.state.entries import Change

endpoints = Endpoints("cluster")


@endpoints.add("GET", "/v1/cluster", {200: Says("The cluster", ClusterView)})
async def cluster(call: Call) -> web.Response:
    """The cluster as this member sees it.

    `quorum` false: what is told may be old, and nothing can be changed until a majority is back.
    """
    ownership = await call.ownership()
    state, role = call.state, call.node.role
    view: ClusterView = {
        "id": state.cluster_id,
        "node": call.node.facts.node,
        "leader": role.leader,
        "term": role.term,
        "index": state.index,
        "epoch": state.epoch,
        "quorum": role.has_quorum,
        "settings": settings_view(state.settings),
        "members": members_view(state, ownership),
    }
    return call.answer(view)


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
        await call.propose(Change(call.service.now_us(), changed))
    return call.answer(settings_view(call.state.settings))
