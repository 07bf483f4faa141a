"""Opens the sink that params name, for one attempt."""

from typing import Any

from spark_tasks.postgres.uri import uri
from spark_tasks.sinks.params import SinkParams
from spark_tasks.sinks.port import Sink
from spark_tasks.sinks.postgres import PostgresSink
from tasks.kind import Context


def open_sink(ctx: Context[Any], params: SinkParams) -> Sink:
    """The sink of the attempt's task. Raises `AccessRefused`, `MissingSecret`, and what a `Session` raises."""
    params.check(ctx.access, "destination")
    return PostgresSink(params, uri(params, ctx.secret), ctx.task, ctx.scratch / "staged")
