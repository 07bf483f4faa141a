"""Opens the sink that params name, for one attempt. What only one type of sink needs is imported for it alone."""

import os
from typing import Any

from spark_tasks.postgres.uri import uri
from spark_tasks.sinks.delta_params import DeltaTarget
from spark_tasks.sinks.params import PostgresTable, SinkParams
from spark_tasks.sinks.parquet_params import ParquetTarget
from spark_tasks.sinks.places import open_place
from spark_tasks.sinks.port import Sink, SinkUnfit
from spark_tasks.sinks.postgres import PostgresSink
from spark_tasks.sinks.sqlite import SqliteSink
from spark_tasks.sinks.sqlite_params import SqliteTable
from spark_tasks.sinks.webhook import WebhookSink
from spark_tasks.sinks.webhook_delivery import Receiver
from spark_tasks.sinks.webhook_params import FOLDERS, Webhook, check_header
from spark_tasks.spark.session import is_local_master
from tasks.access import addresses, check_address
from tasks.file_guard import FileGuard
from tasks.kind import Context
from tasks.places.place import Place, resolved
from tasks.webhook_signing import signing_keys


def open_sink(ctx: Context[Any], params: SinkParams) -> Sink:
    """The sink of the attempt's task.

    Raises `AccessRefused`, `BadDestination`, `MissingSecret`, `SinkUnfit`, and what a `Session` raises.
    """
    local = is_local_master(os.environ)
    match params:
        case PostgresTable():
            params.check(ctx.access, "destination")
            return PostgresSink(params, uri(params, ctx.secret), ctx.task, ctx.scratch / "staged", local)
        case SqliteTable():
            guard = FileGuard(ctx.access, "destination")
            guard.resolve(params.path)
            return SqliteSink(params, guard, ctx.task, ctx.scratch / "staged", local)
        case DeltaTarget():
            from spark_tasks.sinks.delta import DeltaSink

            inner = ("_delta_log", "_rota", f"_rota/{ctx.task}", ctx.task)
            return DeltaSink(params, open_place(ctx, params, inner), ctx.task, ctx.scratch / "staged")
        case ParquetTarget():
            from spark_tasks.sinks.parquet import LEDGER, ParquetSink

            ledger = (f"{LEDGER}/{name}" for name in ("_delta_log", "_rota", f"_rota/{ctx.task}", ctx.task))
            return ParquetSink(open_place(ctx, params, (LEDGER, *ledger)), ctx.task, ctx.scratch / "staged")
        case Webhook():
            return WebhookSink(ctx, params, _receiver(ctx, params), _ledger(ctx, params), local)


def _ledger(ctx: Context[Any], params: Webhook) -> Place:
    place = Place(f"{params.ledger}/{ctx.task}", resolved(params.options, ctx.secret), ctx.access)
    if place.is_local:
        guard = FileGuard(ctx.access, "destination")
        for folder in FOLDERS:
            guard.resolve(f"{place.path}/{folder}")  # where a link there leads
    return place


def _receiver(ctx: Context[Any], params: Webhook) -> Receiver:
    for address in addresses(params.url, {}):
        check_address(ctx.access, "destination", address, params.url.partition("?")[0])
    headers = resolved(params.headers, ctx.secret)
    try:
        for name, value in headers.items():
            check_header(name, value)
        keys = [] if params.secret is None else signing_keys(ctx.secret(params.secret))
    except ValueError as error:
        raise SinkUnfit(f"{params.url.partition('?')[0]}: {error}") from None
    return Receiver(params.url, headers, keys, params.timeout_s)
