"""Whether this process serves, and whether it is of use."""

from aiohttp import web

from node.http.endpoint import Endpoints, Says
from node.http.problems import Problem
from node.http.request_context import Call
from node.http.responses import HealthView, ReadyView

endpoints = Endpoints("health")


@endpoints.add("GET", "/healthz", {200: Says("It serves", HealthView)}, access="anyone")
async def healthz(call: Call) -> web.Response:
    """Whether the process serves."""
    return call.answer({"status": "ok"})


@endpoints.add("GET", "/readyz", {200: Says("It is of use", ReadyView)}, ("not-ready",), access="anyone")
async def readyz(call: Call) -> web.Response:
    """Whether this member has caught up, and has a leader and a lease."""
    role, outlook = call.node.role, call.node.outlook
    if outlook is not None:
        raise Problem("not-ready", str(outlook), why=[str(outlook)])
    why = [
        reason
        for missing, reason in (
            (not role.ready, "it has not caught up with the log, or cannot write to it"),
            (role.leader is None, "it knows no leader"),
            (not call.node.lease_held, "it has no lease"),
        )
        if missing
    ]
    if why:
        raise Problem("not-ready", "; ".join(why), why=why)
    return call.answer({"status": "ready", "leader": role.leader})
