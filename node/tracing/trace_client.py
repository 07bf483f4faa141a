"""Sends spans by OpenTelemetry's SDK and its OTLP exporter over HTTP, which their own variables (OTEL_*) configure."""

import logging
import os
import socket
from collections.abc import Sequence
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, Status, StatusCode, TraceFlags, set_span_in_context

from node.tracing.export_thread import NotExported
from node.tracing.spans import SpanRecord
from tasks.version import version

_SPEAKERS: Final = ("opentelemetry.exporter", "opentelemetry.util.re")
"""The loggers that say what is wrong with a variable, and why spans were not sent."""


class _Given(IdGenerator):
    """Gives the ids of the span that is made next."""

    trace_id = span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id


class _Made(SpanProcessor):
    """Keeps the spans that are made, until they are sent."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is not None and span.context.trace_flags.sampled:
            self.spans.append(span)


class _LastSaid(logging.Handler):
    """Keeps the last message of these loggers, without the text of headers, which are secrets."""

    said = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.said = str(record.msg).partition(":")[0] if "eader" in str(record.msg) else record.getMessage()


class TraceClient:
    """Sends spans of the node `node`. Implements `node.tracing.export_thread.ExportClient`.

    Raises `ValueError`, or any exception of the SDK, if one of its variables has no valid value.
    """

    def __init__(self, node: str) -> None:
        self._said = _LastSaid()
        for name in _SPEAKERS:
            # Each batch that fails would be logged, several times; what was lost is counted, and said once.
            logger = logging.getLogger(name)
            logger.handlers, logger.propagate = [self._said], False
        logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)
        own = {
            "service.name": "rota",
            "service.instance.id": node,
            "service.version": version(),
            "host.name": socket.gethostname(),
        }
        resource = Resource.create(own).merge(OTELResourceDetector().detect())
        self._ids, self._made = _Given(), _Made()
        self._provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        self._provider.add_span_processor(self._made)
        self._tracer = self._provider.get_tracer("rota", version())
        for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
            if (protocol := os.environ.get(name, "").strip()) not in ("", "http/protobuf"):
                raise ValueError(
                    f"{name}={protocol}: spans are sent by http/protobuf only (port 4318 of most collectors)"
                )
        self._exporter = OTLPSpanExporter()
        if self._said.said:  # the exporter would go on with a default
            raise ValueError(self._said.said)

    def sampled(self, trace_id: int) -> bool:
        """Return whether the sampler takes a trace. All members with the same variables say the same."""
        decision = self._provider.sampler.should_sample(None, trace_id, "run").decision
        return decision is Decision.RECORD_AND_SAMPLE

    def send(self, records: Sequence[SpanRecord], /) -> None:
        """Send spans. Raises `NotExported`."""
        for record in records:
            self._make(record)
        spans, self._made.spans = self._made.spans, []
        if spans and self._exporter.export(spans) is not SpanExportResult.SUCCESS:
            raise NotExported(self._said.said or "the receiver did not take them")

    def _make(self, record: SpanRecord) -> None:
        self._ids.trace_id, self._ids.span_id = record.trace_id, record.span_id
        within = Context()
        if record.parent_id is not None:
            flags = TraceFlags(TraceFlags.SAMPLED if self.sampled(record.trace_id) else TraceFlags.DEFAULT)
            parent = SpanContext(record.trace_id, record.parent_id, is_remote=True, trace_flags=flags)
            within = set_span_in_context(NonRecordingSpan(parent), within)
        span = self._tracer.start_span(
            record.name,
            context=within,
            attributes=dict(record.attributes),
            links=[Link(SpanContext(*link, is_remote=True)) for link in record.links],
            start_time=record.start_us * 1000,
        )
        if record.error is not None:
            kind = str(record.attributes.get("error.type", "error"))
            said = {"exception.type": kind, "exception.message": record.error}
            span.add_event("exception", said, record.end_us * 1000)
            span.set_status(Status(StatusCode.ERROR, record.error))
        span.end(record.end_us * 1000)
