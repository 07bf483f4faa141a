"""The aiohttp application: routes from the table, and what every request goes through before it is served."""

import asyncio
import logging
import os
import sqlite3
from collections.abc import Awaitable, Callable
from time import monotonic, perf_counter
from typing import Final

from aiohttp import HttpVersion11, web
from aiohttp.http_exceptions import HttpProcessingError

from node.http.auth import (
    check_content_type,
    check_encoding,
    check_host,
    check_origin,
    check_target,
    same,
    shown_token,
)
from node.http.connection import Patience
from node.http.connection_limits import Doors
from node.http.endpoint import Endpoint
from node.http.events import Hub
from node.http.listener import Listening
from node.http.metrics import Metrics
from node.http.node_port import Node
from node.http.problems import Problem, invalid_field
from node.http.request_context import COMMON_QUERY, Call, serve
from node.http.request_limits import RequestLimits
from node.http.routes import ENDPOINTS
from node.http.service import Service
from node.http.streaming import Streams
from node.liveness.wall_clock import now_us as clock_us
from node.peer.client import Peers
from node.peer.protocol import CLUSTER, MEMBER
from node.peer.signing import CHALLENGE, SCHEME, SIGNED, Question, Receiver, Unsigned, answer_mac, digest, member_key
from node.runtime.descriptors import CLIENTS_MAX
from node.storage.disk_full import is_full

INDEX: Final = "Rota-Index"
EPOCH: Final = "Rota-Epoch"
SERVICE: Final = web.AppKey("service", Service)

_log = logging.getLogger(__name__)

_STREAMS: Final = ("/v1/events", "/v1/cluster/saved", "/v1/runs/{run_id}/log", "/peer/log")

_ASKED: Final = web.RequestKey("question", str)
"""A request of a member's keeps its signature here: the answer is signed over it."""

_CLOSING: Final = (401, 403, 408, 413, 415)
"""Refusals after which the connection is closed: what else was sent is not read, or nobody knows how far it goes."""

_INDEX_MAX: Final = 2**63 - 1

Answering = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build_app(
    node: Node,
    peers: Peers,
    limits: RequestLimits | None = None,
    now_us: Callable[[], int] = clock_us,
) -> web.Application:
    """The application. It tells listeners what `node.changes()` tells, and closes `peers` when it is cleaned up."""
    limits = limits or RequestLimits()
    service = Service(
        node=node,
        peers=peers,
        limits=limits,
        metrics=Metrics(node),
        hub=Hub(os.urandom(4).hex()),
        now_us=now_us,
        receiver=Receiver(member_key(node.facts.secret), node.facts.node),
        streams=Streams(limits.streams),
        endpoints=ENDPOINTS,
    )
    # Bodies are counted as they are read, in `Call.body`.
    app = web.Application(middlewares=[_problems], client_max_size=limits.body_bytes)
    app[SERVICE] = service
    for endpoint in ENDPOINTS:
        handler = _handler(endpoint, service)
        app.router.add_route(endpoint.method, endpoint.path, handler, expect_handler=_expected)
        if endpoint.method == "GET" and endpoint.path not in _STREAMS:
            # RFC 9110, section 9.1: what answers GET answers HEAD; load balancers ask so.
            app.router.add_route("HEAD", endpoint.path, handler, expect_handler=_expected)
    app.on_response_prepare.append(_bear_index)
    app.on_startup.append(_listen)
    app.on_shutdown.append(_end_streams)
    app.on_cleanup.append(_close)
    return app


async def serve_on(
    app: web.Application, host: str, port: int, clients: int = CLIENTS_MAX, patience: Patience | None = None
) -> tuple[web.AppRunner, int]:
    """Serve on an address (port 0: the kernel gives one), to `clients` connections at once. The runner (clean it up)
    and the port.

    Raises `OSError`.
    """
    logging.getLogger("aiohttp.server").addFilter(_worth_a_line)
    # A client that goes away ends its stream, also one that has nothing to send; proposals are shielded.
    runner = web.AppRunner(
        app,
        access_log=None,
        handle_signals=False,
        handler_cancellation=True,
        shutdown_timeout=2.0,
    )
    await runner.setup()
    site = Listening(runner, host, port, Doors(clients), patience or Patience(), lambda: _borne(app[SERVICE]))
    try:
        await site.start()
    except OSError:
        await runner.cleanup()
        raise
    return runner, site.port


def _worth_a_line(record: logging.LogRecord) -> bool:
    """Not what is no HTTP at all: whoever scans ports must not fill the log with tracebacks."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError | web.RequestPayloadError))


def _handler(endpoint: Endpoint, service: Service) -> Answering:
    streams = endpoint.path in _STREAMS

    async def handle(request: web.Request) -> web.StreamResponse:
        begun = perf_counter()
        call = Call(request, service)
        status = 500
        try:
            await _admit(endpoint, call)
            response = await serve(endpoint, call)
            status = response.status
            return response
        except Problem as problem:
            status = problem.status
            raise
        finally:
            if not streams:
                service.metrics.request(endpoint.method, endpoint.path, status, perf_counter() - begun)

    return handle


async def _expected(request: web.Request) -> web.StreamResponse | None:
    """Refuse an Expect header that is not understood. What is expected is sent when the request may go on."""
    if request.version >= HttpVersion11 and request.headers["Expect"].strip().lower() != "100-continue":
        return Problem("bad-request", "the header Expect is understood as 100-continue").response()
    return None


async def _admit(endpoint: Endpoint, call: Call) -> None:
    """All checks before a handler sees the request, and the waits that the client asked for."""
    request = call.request
    question = None
    if endpoint.access == "member":
        question = _check_signature(endpoint, call)
        _check_cluster(call)
    else:
        _check_token(endpoint, call)
    check_encoding(request)
    if endpoint.access != "anyone":
        check_origin(request, call.node.facts.hosts, reads=endpoint.method == "GET", page=endpoint.access == "page")
    if endpoint.method != "GET":
        check_content_type(request)
    if "Expect" in request.headers and request.version >= HttpVersion11:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # the answer proper has not begun
    if question is not None and not same(digest(await call.body()), question.body_digest):
        raise Problem("unauthorized", "the body is not the one that was signed")
    if INDEX in request.headers and endpoint.access != "anyone":
        await _wait_for_index(call)
    if COMMON_QUERY in request.query:
        if not endpoint.reads:
            raise invalid_field(COMMON_QUERY, "there is no such parameter here", "the query")
        match request.query[COMMON_QUERY].lower():
            case "true" | "1":
                await call.barrier()
            case "false" | "0" | "":
                pass
            case _:
                raise invalid_field(COMMON_QUERY, "must be true or false", "the query")


def _check_token(endpoint: Endpoint, call: Call) -> None:
    expected = call.node.facts.token
    if endpoint.access == "anyone" or expected is None:
        return
    authorization = call.request.headers.get("Authorization")
    shown = shown_token(authorization, basic=endpoint.access == "page")
    if shown is not None and same(shown, expected):
        return
    # One challenge, and not two in a line: browsers look at the first, and ask for a password where it is Basic.
    challenge = 'Basic realm="rota", charset="UTF-8"' if endpoint.access == "page" else 'Bearer realm="rota"'
    if shown is not None:
        code, detail = "wrong-token", "the token is wrong: it is not this node's ROTA_TOKEN"
    elif authorization:
        code, detail = "no-token", "the Authorization header bears no token: send Authorization: Bearer and ROTA_TOKEN"
    else:
        code, detail = "no-token", "there is no token: send Authorization: Bearer and ROTA_TOKEN"
    raise Problem("unauthorized", detail, headers={"WWW-Authenticate": challenge}, code=code)


def _check_signature(endpoint: Endpoint, call: Call) -> Question:
    request, receiver = call.request, call.service.receiver
    try:
        question = receiver.check(
            request.headers.get("Authorization"),
            request.method,
            request.raw_path,
            call.header(CLUSTER) or "",
            monotonic(),
            joining=endpoint.path == "/peer/members",
        )
    except Unsigned as unsigned:
        raise Problem("unauthorized", str(unsigned), headers={"WWW-Authenticate": SCHEME}) from None
    request[_ASKED] = question.mac(member_key(call.node.facts.secret))
    return question


def _check_cluster(call: Call) -> None:
    """What is asked by a member of another cluster was meant for somebody else."""
    who = f"{call.header(MEMBER) or 'a node'} at {call.request.remote}"
    if (why := call.service.peers.cluster.stranger(who, call.header(CLUSTER) or "")) is not None:
        raise Problem("other-cluster", why)


async def _wait_for_index(call: Call) -> None:
    text = call.request.headers[INDEX].strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= _INDEX_MAX):
        raise Problem("bad-request", f"{INDEX} must be a whole number from 0 to 2^63 - 1: that of an earlier answer")
    index, limit_s = int(text), call.service.limits.index_s
    if call.state.index >= index or await call.node.wait_index(index, limit_s):
        return
    at = call.state.index
    detail = (
        f"index {index} has not been applied here within {limit_s:g} s (it is at {at}): ask again, or another member"
    )
    raise Problem("behind", detail, index=at)


@web.middleware
async def _problems(request: web.Request, handler: Answering) -> web.StreamResponse:
    """Turn whatever is raised into a problem document; check first that the request is meant for this node."""
    service = request.app[SERVICE]
    try:
        check_target(request.raw_path)
        check_host(request.headers.get("Host", ""), _Names(service.node))
        return await handler(request)
    except Problem as problem:
        response = problem.response()
        if problem.status in _CLOSING:
            response.force_close()  # whatever else is sent on this connection is not worth reading
        return response
    except web.HTTPException as error:
        return _of_aiohttp(request, error).response()
    except (asyncio.CancelledError, ConnectionResetError):
        raise
    except sqlite3.Error as error:
        # The disk is full, or what is read is damaged: no mistake of Rota's, and others can answer.
        _log.error("answering %s %s failed: %s", request.method, request.path, error)
        # Where something may have been proposed, it is not to be said that nothing was.
        kind = "not-ready" if request.method == "GET" else "internal"
        full = "; there is no room: delete something on the file system of its ROTA_DATA" if is_full(error) else ""
        detail = f"the files of {service.node.facts.node} cannot be used now ({error}): ask another member{full}"
        return Problem(kind, detail).response()
    except Exception:  # noqa: BLE001 - the last line of defence: logged, and answered
        # Whatever it is: the client gets an answer, the log the traceback, and other requests go on.
        _log.exception("answering %s %s failed", request.method, request.path)
        return Problem("internal", "this node failed to answer: its log says why").response()


class _Names:
    """The names by which this node may be called, lower case."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def __contains__(self, name: object) -> bool:
        members = self._node.state().members.values()
        return any(member.host.lower() == name for member in members) or any(
            host.lower() == name for host in self._node.facts.hosts
        )


def _of_aiohttp(request: web.Request, error: web.HTTPException) -> Problem:
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        return Problem(
            "method-not-allowed", f"{request.method} is not for this path: {allowed}", headers={"Allow": allowed}
        )
    if error.status == 404:
        hint = ""
        if request.path.startswith("/v1/tasks/"):
            hint = "; a task's name holds no slash"
        return Problem(
            "not-found", f"there is nothing at {request.path[:200]!r}{hint}; /openapi.json lists what there is"
        )
    if error.status == 413:
        return Problem("too-large", "the request is too large")
    return Problem("bad-request", error.text or error.reason)


def _borne(service: Service) -> dict[str, str]:
    """The headers that every answer bears. aiohttp's own Server would name the versions of what runs here."""
    state = service.node.state()
    return {INDEX: str(state.index), EPOCH: str(state.epoch), "Server": "rota"}


async def _bear_index(request: web.Request, response: web.StreamResponse) -> None:
    service = request.app[SERVICE]
    response.headers.update(_borne(service))
    if request.path.startswith("/peer/"):
        response.headers[CHALLENGE] = service.receiver.challenge(monotonic())
        if (question := request.get(_ASKED)) is not None:
            key, body = member_key(service.node.facts.secret), getattr(response, "body", None)
            told = (
                body
                if isinstance(body, bytes)
                else b""
                if body is None and isinstance(response, web.Response)
                else None
            )
            response.headers[SIGNED] = answer_mac(key, question, response.status, told)
    if request.path.startswith("/peer/") and (known := service.peers.cluster.known):
        response.headers[CLUSTER] = known


async def _listen(app: web.Application) -> None:
    service = app[SERVICE]
    app[_TELLING] = asyncio.create_task(service.hub.follow(service.node.changes), name="http-events")


async def _end_streams(app: web.Application) -> None:
    app[SERVICE].hub.close()


async def _close(app: web.Application) -> None:
    app[_TELLING].cancel()
    await asyncio.gather(app[_TELLING], return_exceptions=True)
    await app[SERVICE].peers.close()


_TELLING: Final = web.AppKey("telling", asyncio.Task[None])
