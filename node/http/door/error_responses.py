"""The middleware that turns every exception into a problem document (RFC 9457)."""

import asyncio
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from node.http.door.header_checks import check_host, check_target
from node.http.door.problems import Problem
from node.http.door.request_context import KNOWN
from node.http.door.server_context import SERVER
from node.http.node_port import NodePort
from node.storage.disk_full import is_full

_log = logging.getLogger("rota.http")
_CLOSING: Final = (401, 403, 408, 413, 415, 429)
"""Statuses after which the connection is closed: the rest of the request is not read, or its length is unknown."""


@web.middleware
async def problem_responses(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Check that the request is for this node, let `handler` answer, and turn its exceptions into responses."""
    server = request.app[SERVER]
    try:
        check_target(request.raw_path)
        check_host(request.headers.get("Host", ""), _HostNames(server.node))
        request[KNOWN] = server.node.settings.token is None  # until `admit` finds out who asks
        return await handler(request)
    except Problem as problem:
        return closing(problem.response())
    except web.HTTPException as error:
        # aiohttp keeps the error of an unknown path in the request, and its frames would keep the request in memory.
        error.__traceback__ = None
        return _problem_of_aiohttp(request, error).response()
    except (asyncio.CancelledError, ConnectionResetError):
        raise
    except sqlite3.Error as error:
        # The disk is full, or a file is damaged: not a bug, and other members can answer.
        _log.error("answering %s %s failed: %s", request.method, request.path, error)
        # "not-ready" promises that nothing was proposed, which only a read can promise.
        kind = "not-ready" if request.method == "GET" else "internal"
        full = "; the disk is full: delete something on the file system of its ROTA_DATA" if is_full(error) else ""
        detail = f"the files of {server.node.settings.node} cannot be used now ({error}): ask another member{full}"
        return Problem(kind, detail).response()
    except Exception:  # noqa: BLE001 - the last handler: it logs the traceback and answers
        # One failed request must not end the others.
        _log.exception("answering %s %s failed", request.method, request.path)
        return Problem("internal", "this node failed to answer: see its log for the reason").response()


def closing(response: web.Response) -> web.Response:
    """Return the response to a `Problem`, set to end the connection if the request's body may be unread."""
    if response.status in _CLOSING:
        response.force_close()
    return response


class _HostNames:
    """The host names that this node accepts, lower case: those of all members, and ROTA_HOSTS."""

    def __init__(self, node: NodePort) -> None:
        self._node = node

    def __contains__(self, name: object) -> bool:
        members = self._node.state().members.values()
        return any(member.host.lower() == name for member in members) or any(
            host.lower() == name for host in self._node.settings.hosts
        )


def _problem_of_aiohttp(request: web.Request, error: web.HTTPException) -> Problem:
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        return Problem(
            "method-not-allowed",
            f"{request.method} is not supported on this path, which supports {allowed}",
            headers={"Allow": allowed},
        )
    if error.status == 404:
        hint = "; a task's name has no slash" if request.path.startswith("/v1/tasks/") else ""
        return Problem(
            "not-found", f"there is no resource at {request.path[:200]!r}{hint}; /openapi.json lists all paths"
        )
    if error.status == 413:
        return Problem("too-large", "the request is too large")
    return Problem("bad-request", error.text or error.reason)
