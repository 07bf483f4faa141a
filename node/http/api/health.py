"""Liveness and readiness of this process."""

from typing import Final, Literal, NotRequired

from aiohttp import web
from typing_extensions import TypedDict

from node.http.door.endpoint import Endpoints, ResponseSpec
from node.http.door.problems import Problem
from node.http.door.request_context import KNOWN, RequestContext


class HealthView(TypedDict):
    """The process answers requests."""

    status: Literal["ok"]


class ReadyView(TypedDict):
    """The member has caught up, knows the leader, and holds a lease. `leader`: shown only to clients with the token."""

    status: Literal["ready"]
    leader: NotRequired[str]


endpoints = Endpoints("health")

LACKS: Final = {
    "no-cluster": "it belongs to no cluster yet, or to one that has not let it in",
    "behind": "it has not caught up with the log, or cannot write to it",
    "no-leader": "it knows no leader",
    "no-lease": "it holds no lease",
}
"""Why a node is not ready: all codes, with their meanings. Strangers see these, and nothing about the cluster."""


@endpoints.add("GET", "/healthz", {200: ResponseSpec("It answers requests", HealthView)}, access="anyone")
async def healthz(context: RequestContext) -> web.Response:
    """Say whether the process answers requests."""
    return context.answer({"status": "ok"})


@endpoints.add(
    "GET", "/readyz", {200: ResponseSpec("It is ready", ReadyView)}, ("not-ready", "wrong-tokens"), access="anyone"
)
async def readyz(context: RequestContext) -> web.Response:
    """Say whether this member has caught up, knows the leader, and holds a lease. `codes` says what is lacking.

    With the token, `leader` names the leader, and `why` says what a node without a cluster waits for.
    """
    role, outlook, known = context.node.role, context.node.outlook, context.request.get(KNOWN, False)
    lacking = {
        "no-cluster": outlook is not None,
        "behind": not role.ready,
        "no-leader": role.leader is None,
        "no-lease": not context.node.lease_held,
    }
    codes = ["no-cluster"] if outlook is not None else [code for code, is_lacking in lacking.items() if is_lacking]
    if codes:
        why = [str(outlook)] if known and outlook is not None else [LACKS[code] for code in codes]
        raise Problem("not-ready", "; ".join(why), why=why, codes=codes)
    return context.answer({"status": "ready", "leader": role.leader} if known else {"status": "ready"})
