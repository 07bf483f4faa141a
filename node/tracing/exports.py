"""A node's traces and lineage: the clients that are asked for, a thread for each, and what decides what they send."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

from node.replication.state_machine import StateChange
from node.tracing.export_thread import ExportClient, ExportCount, ExportThread
from node.tracing.follower import RunFollower
from node.tracing.lineage import LineageRecord
from node.tracing.spans import Progress, SpanRecord, trace_id_of, traceparent_of
from tasks.datasets import Datasets

_log = logging.getLogger("rota.tracing")

SPANS_MAX: Final = 10_000
EVENTS_MAX: Final = 2_000
"""How many spans, and events, wait to be sent at most: some 10 MB each."""

TOGETHER: Final = 512
"""How many spans are sent in one request at most."""

CLOSE_S: Final = 2.0
"""How long a node that stops goes on sending, at most."""


class CannotExport(Exception):
    """Traces or lineage are asked for, and cannot be sent from this node. The text says what to do."""


class SpanClient(ExportClient[SpanRecord], Protocol):
    """Sends spans: `node.tracing.trace_client.TraceClient`."""

    def sampled(self, trace_id: int) -> bool:
        """Return whether a trace is sent at all."""


class Exports:
    """The traces and the lineage that a member sends. Without either, it does nothing.

    Call `applied` in Raft's thread, `delivered` on the event loop.
    """

    def __init__(
        self,
        me: str,
        traces: SpanClient | None,
        lineage: ExportClient[LineageRecord] | None,
        progress: Callable[[str], Progress | None],
        now_us: Callable[[], int],
        ready: Callable[[], bool],
    ) -> None:
        self._traces = traces
        self._spans: ExportThread[SpanRecord] | None = None
        self._events: ExportThread[LineageRecord] | None = None
        if traces is not None:
            self._spans = ExportThread("spans", traces, together=TOGETHER, room=SPANS_MAX)
        if lineage is not None:
            self._events = ExportThread("lineage", lineage, together=1, room=EVENTS_MAX)
        self._threads = [thread for thread in (self._spans, self._events) if thread is not None]
        self._follower = RunFollower(me, progress)
        self._now_us = now_us
        self._ready = ready
        self._from: int | None = None
        self._failing = False

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Send what is queued, for `CLOSE_S` at most. Not for the event loop."""
        for thread in self._threads:
            thread.close(CLOSE_S)

    def applied(self, change: StateChange) -> None:
        """Note from which change on to tell: before this member was ready, entries of an earlier start come again."""
        if self._from is None and self._threads and self._ready():
            self._from = change.before.index

    def delivered(self, changes: Sequence[StateChange]) -> None:
        """Queue what follows from changes. An error is logged: it ends nothing but the telling of these changes."""
        if not self._threads or self._from is None:
            return
        new = [change for change in changes if change.before.index >= self._from]
        try:
            spans, events = self._follower.follow(new, self._now_us())
        except Exception:  # noqa: BLE001 - an error here must not end the node
            if not self._failing:
                _log.exception("some runs are not traced, because of a bug in Rota")
            self._failing = True
            return
        if self._spans is not None:
            self._spans.put(spans)
        if self._events is not None:
            self._events.put(events)

    def traceparent(self, run_id: str, cluster: str, token: int) -> str:
        """Return the `traceparent` for an attempt's work; "": no traces are sent."""
        if self._traces is None:
            return ""
        sampled = self._traces.sampled(trace_id_of(run_id, cluster))
        return traceparent_of(run_id, cluster, token, sampled=sampled)

    @property
    def counts(self) -> list[ExportCount]:
        """How much was sent and dropped since this process started. Any thread may ask."""
        return [thread.count for thread in self._threads]


def trace_client(node: str, secrets: Mapping[str, str]) -> SpanClient:
    """Make the client for traces, with the variables in `secrets` beside the environment's. Raises `CannotExport`."""
    try:
        from node.tracing.trace_client import TraceClient
    except ImportError as error:
        raise CannotExport(_no_extra("ROTA_TRACES", "otel", error)) from None
    with _set_for_now(secrets):
        try:
            return TraceClient(node)
        except Exception as error:
            raise CannotExport(f"ROTA_TRACES=1, and a variable of OpenTelemetry (OTEL_*) is wrong: {error}") from error


def lineage_client(
    secrets: Mapping[str, str], datasets_of: Callable[[str, Mapping[str, Any], str], Datasets]
) -> ExportClient[LineageRecord]:
    """Make the client for lineage, with the variables in `secrets` beside the environment's. Raises `CannotExport`."""
    try:
        from node.tracing.lineage_client import LineageClient, NoReceiver
    except ImportError as error:
        raise CannotExport(_no_extra("ROTA_LINEAGE", "lineage", error)) from None
    with _set_for_now(secrets):
        try:
            return LineageClient(datasets_of)
        except NoReceiver as error:
            raise CannotExport(f"ROTA_LINEAGE=1, and {error}") from None
        except Exception as error:
            raise CannotExport(f"ROTA_LINEAGE=1, and a variable of OpenLineage is wrong: {error}") from error


def _no_extra(setting: str, extra: str, error: ImportError) -> str:
    return (
        f"{setting}=1, and the extra `{extra}` is not installed here ({error}): pip install 'rota[{extra}]' on this "
        f"node, or leave {setting} unset"
    )


@contextmanager
def _set_for_now(variables: Mapping[str, str]) -> Iterator[None]:
    """Have these variables in the environment while the block runs. Whatever it sets there is taken out again."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
