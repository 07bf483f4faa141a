"""Liveness and readiness of this process."""

from aiohttp import web

from node.http.endpoint import Endpoints, ResponseSpec
from node.http.problems import Problem
from node.http.request_context import RequestContext
from node.http.responses.cluster import HealthView, ReadyView

endpoints = Endpoints("health")


@endpoints.add("GET", "/healthz", {200: ResponseSpec("It answers requests", HealthView)}, access="anyone")
async def healthz(context: RequestContext) -> web.Response:
    """Whether the process answers requests."""
    return context.answer({"status": "ok"})


@endpoints.add("GET", "/readyz", {200: ResponseSpec("It is ready", ReadyView)}, ("not-ready",), access="anyone")
async def readyz(context: RequestContext) -> web.Response:
    """Whether this member has caught up, knows the leader, and holds a lease."""
    role, outlook = context.node.role, context.node.outlook
    if outlook is not None:
        raise Problem("not-ready", str(outlook), why=[str(outlook)])
    why = [
        reason
        for missing, reason in (
            (not role.ready, "it has not caught up with the log, or cannot write to it"),
            (role.leader is None, "it knows no leader"),
            (not context.node.lease_held, "it holds no lease"),
        )
        if missing
    ]
    if why:
        raise Problem("not-ready", "; ".join(why), why=why)
    return context.answer({"status": "ready", "leader": role.leader})
