"""A server on loopback that takes spans by OTLP over HTTP and OpenLineage's events, as a collector does.

`silent_listener` is one that accepts connections and never answers.
"""

import asyncio
import gzip
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Status


@dataclass(frozen=True)
class SpanTaken:
    """A span as it came."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Any]
    resource: Mapping[str, Any]
    error: str | None
    links: tuple[tuple[str, str], ...]

    @property
    def seconds(self) -> float:
        return (self.end_ns - self.start_ns) / 1e9


@dataclass
class Collector:
    """What came. While `refuses` is set, all is answered with that status."""

    url: str = ""
    refuses: int | None = None
    spans: list[SpanTaken] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)

    def of_run(self, run_id: str) -> list[SpanTaken]:
        """The spans of a run's trace, in the order of their starts; empty until its root is there."""
        spans = list(self.spans)
        roots = [span.trace_id for span in spans if span.attributes.get("rota.run_id") == run_id]
        return sorted((span for span in spans if span.trace_id in roots), key=lambda span: span.start_ns)

    async def take_spans(self, request: web.Request) -> web.Response:
        self.headers.append(dict(request.headers))
        body = await request.read()
        if self.refuses is not None:
            return web.Response(status=self.refuses)
        assert request.headers["Content-Type"] == "application/x-protobuf"
        sent = ExportTraceServiceRequest.FromString(
            gzip.decompress(body) if request.headers.get("Content-Encoding") == "gzip" else body
        )
        for of_resource in sent.resource_spans:
            resource = {each.key: _value(each.value) for each in of_resource.resource.attributes}
            for span in (span for scope in of_resource.scope_spans for span in scope.spans):
                failed = span.status.code == Status.STATUS_CODE_ERROR
                taken = SpanTaken(
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    {each.key: _value(each.value) for each in span.attributes},
                    resource,
                    span.status.message if failed else None,
                    tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
                )
                self.spans.append(taken)
        answer = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=answer, content_type="application/x-protobuf")

    async def take_event(self, request: web.Request) -> web.Response:
        self.headers.append(dict(request.headers))
        body = await request.read()
        if self.refuses is not None:
            return web.Response(status=self.refuses)
        self.events.append(json.loads(body))
        return web.Response(status=201)


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return None if kind is None else getattr(value, kind)


@contextmanager
def collector() -> Iterator[Collector]:
    """A collector on loopback that lasts as long as the block."""
    found = Collector()
    loop = asyncio.new_event_loop()
    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/v1/traces", found.take_spans)
    app.router.add_post("/api/v1/lineage", found.take_event)
    runner = web.AppRunner(app, shutdown_timeout=1)

    async def start() -> int:
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return int(runner.addresses[0][1])

    found.url = f"http://127.0.0.1:{loop.run_until_complete(start())}"
    serving = threading.Thread(target=loop.run_forever, name="collector")
    serving.start()
    try:
        yield found
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        serving.join()
        loop.close()


@contextmanager
def silent_listener() -> Iterator[str]:
    """A listener on loopback that accepts connections and never answers; its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        kept: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    kept.append(listening.accept()[0])
                except OSError:
                    return

        accepting = threading.Thread(target=accept, name="silent-listener", daemon=True)
        accepting.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            accepting.join(10)
            for one in kept:
                one.close()
