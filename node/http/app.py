"""The aiohttp application: its endpoints, its life cycle, and the headers of every response."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic, perf_counter
from typing import Final

from aiohttp import HttpVersion11, web
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client import CollectorRegistry

from node.http.api import (
    backfills,
    blackouts,
    bootstraps,
    calendars,
    channels,
    cluster,
    docs,
    due_times,
    events,
    graphs,
    health,
    kinds,
    logs,
    members,
    metrics,
    params_at,
    peer,
    placement,
    pools,
    registration,
    run_starts,
    runs,
    saved,
    tasks,
    vitals,
    weeks,
    what_if,
    why,
)
from node.http.api.event_hub import EventHub
from node.http.api.metrics import NodeMetrics
from node.http.door.admission import INDEX, PEER_REQUEST_MAC, admit
from node.http.door.authentication import tokens_of
from node.http.door.connection import SNIFF_NOTHING, ConnectionTimeouts
from node.http.door.connection_limits import ConnectionLimits
from node.http.door.endpoint import Endpoint
from node.http.door.error_responses import closing, problem_responses
from node.http.door.listener import Listener
from node.http.door.problems import Problem
from node.http.door.request_context import KNOWN, RequestContext, serve
from node.http.door.request_metrics import RequestMetrics
from node.http.door.server_context import SERVER, RequestLimits, ServerContext
from node.http.door.session import SessionSigner
from node.http.door.streaming import StreamLimit
from node.http.node_port import NodePort
from node.liveness.wall_clock import now_us as clock_us
from node.peer.client import PeerClient
from node.peer.protocol import CLUSTER
from node.peer.signing import CHALLENGE, SIGNED, SignatureVerifier, response_mac, signing_key
from node.runtime.descriptors import CLIENTS_MAX

EPOCH: Final = "Rota-Epoch"

ENDPOINTS: Final[tuple[Endpoint, ...]] = tuple(
    endpoint
    for topic in (
        health,
        cluster,
        saved,
        members,
        vitals,
        kinds,
        pools,
        calendars,
        blackouts,
        weeks,
        registration,
        tasks,
        due_times,
        params_at,
        graphs,
        placement,
        what_if,
        why,
        bootstraps,
        run_starts,
        runs,
        backfills,
        channels,
        logs,
        events,
        metrics,
        docs,
        peer,
    )
    for endpoint in topic.endpoints.all
)
"""All endpoints that the application serves and /openapi.json describes, in the order of the description."""

_STREAMS: Final = ("/v1/events", "/live", "/v1/cluster/saved", "/v1/runs/{run_id}/log", "/peer/log")
_OFTEN: Final = ("/v1/tasks/{name}", "/v1/tasks/{name}/owner", "/v1/tasks/{name}/runs", "/v1/runs/{run_id}")
"""The paths that are asked for most. aiohttp tries the patterns below one prefix in the order in which they were added,
and each costs a request microseconds."""
_FOLLOWING: Final = web.AppKey("following", asyncio.Task[None])
"""The task that feeds the node's updates to the event hub."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build_app(
    node: NodePort,
    peers: PeerClient,
    limits: RequestLimits | None = None,
    now_us: Callable[[], int] = clock_us,
    pages: Sequence[Endpoint] = (),
) -> web.Application:
    """Make the application for `node`. It serves `node.changes()` as events, and closes `peers` at its cleanup.

    `now_us` is the wall clock, in microseconds since the epoch. `pages` are served too, but not in /openapi.json.
    """
    limits = limits or RequestLimits()
    registry = CollectorRegistry(auto_describe=False)
    of_node = NodeMetrics(node, registry)
    server = ServerContext(
        node=node,
        peers=peers,
        limits=limits,
        metrics=RequestMetrics(registry),
        now_us=now_us,
        verifier=SignatureVerifier(signing_key(node.settings.secret), node.settings.node),
        signer=SessionSigner(node.settings.secret, tokens_of(node.settings)),
        streams=StreamLimit(limits.streams),
        endpoints=ENDPOINTS,
        pages=tuple(pages),
    )
    server.keep(of_node)
    server.keep(EventHub(os.urandom(4).hex(), node.settings.node, now_us=now_us))
    # `RequestContext.body` enforces the same limit while it reads.
    app = web.Application(middlewares=[problem_responses], client_max_size=limits.body_bytes)
    app[SERVER] = server
    for endpoint in sorted((*ENDPOINTS, *pages), key=lambda endpoint: endpoint.path not in _OFTEN):
        handler = _handler(endpoint, server)
        app.router.add_route(endpoint.method, endpoint.path, handler, expect_handler=_check_expect)
        if endpoint.method == "GET" and endpoint.path not in _STREAMS:
            # RFC 9110, section 9.1: HEAD is supported wherever GET is. Load balancers probe with it.
            app.router.add_route("HEAD", endpoint.path, handler, expect_handler=_check_expect)
    app.on_response_prepare.append(_add_headers)
    app.on_startup.append(_follow_updates)
    app.on_shutdown.append(_end_streams)
    app.on_cleanup.append(_close)
    return app


async def serve_on(
    app: web.Application, host: str, port: int, clients: int = CLIENTS_MAX, timeouts: ConnectionTimeouts | None = None
) -> tuple[web.AppRunner, int]:
    """Serve on an address (port 0: chosen by the kernel), for at most `clients` connections at once.

    Returns the runner, which the caller cleans up, and the port. Raises `OSError`.
    """
    logging.getLogger("aiohttp.server").addFilter(_is_worth_logging)
    # `handler_cancellation`: a stream ends when its client disconnects, even if idle. Proposals are shielded from it.
    runner = web.AppRunner(
        app,
        access_log=None,
        handle_signals=False,
        handler_cancellation=True,
        shutdown_timeout=2.0,
    )
    await runner.setup()
    site = Listener(
        runner,
        host,
        port,
        ConnectionLimits(clients),
        timeouts or ConnectionTimeouts(),
    )
    try:
        await site.start()
    except OSError:
        await runner.cleanup()
        raise
    return runner, site.port


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """Return False for errors from bytes that are not HTTP: a port scan must not fill the log with tracebacks."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError | web.RequestPayloadError))


def _handler(endpoint: Endpoint, server: ServerContext) -> Handler:
    streams = endpoint.path in _STREAMS

    async def handle(request: web.Request) -> web.StreamResponse:
        begun_s = perf_counter()
        context = RequestContext(request, server)
        status = 500
        try:
            await admit(endpoint, context)
            response = await serve(endpoint, context)
            status = response.status
            return response
        except Problem as problem:
            status = problem.status
            if endpoint.on_problem is None:
                raise
            return closing(endpoint.on_problem(context, problem))
        finally:
            if not streams:
                server.metrics.request(endpoint.method, endpoint.path, status, perf_counter() - begun_s)

    return handle


async def _check_expect(request: web.Request) -> web.StreamResponse | None:
    """Refuse an Expect header other than 100-continue. `admit` sends the 100 once the request has passed its checks."""
    if request.version >= HttpVersion11 and request.headers["Expect"].strip().lower() != "100-continue":
        return Problem("bad-request", "the only supported value of the header Expect is 100-continue").response()
    return None


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers of every response. Those for strangers name neither the cluster nor the server's software."""
    server, known = request.app[SERVER], request.get(KNOWN, False)
    response.headers.update(SNIFF_NOTHING)
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers.pop("Server", None)  # aiohttp's, which names the versions in use
    if known:
        state = server.node.state()
        response.headers.update({INDEX: str(state.index), EPOCH: str(state.epoch), "Server": "rota"})
    if not request.path.startswith("/peer/"):
        return
    response.headers[CHALLENGE] = server.verifier.challenge(monotonic())
    if (request_mac := request.get(PEER_REQUEST_MAC)) is not None:
        key = signing_key(server.node.settings.secret)
        response.headers[SIGNED] = response_mac(key, request_mac, response.status, _body_of(response))
    if known and (cluster := server.peers.cluster.known):
        response.headers[CLUSTER] = cluster


def _body_of(response: web.StreamResponse) -> bytes | None:
    """Return the body that a signature covers; None for a streamed body."""
    body = getattr(response, "body", None)
    if isinstance(body, bytes):
        return body
    return b"" if body is None and isinstance(response, web.Response) else None


async def _follow_updates(app: web.Application) -> None:
    server = app[SERVER]
    app[_FOLLOWING] = asyncio.create_task(server.kept(EventHub).follow(server.node.changes), name="http-events")


async def _end_streams(app: web.Application) -> None:
    app[SERVER].kept(EventHub).close()


async def _close(app: web.Application) -> None:
    app[_FOLLOWING].cancel()
    await asyncio.gather(app[_FOLLOWING], return_exceptions=True)
    await app[SERVER].peers.close()
