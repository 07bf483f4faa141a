"""Opens the sources and the sink that a task's params name, for one attempt.

A module that only one type of source or sink needs is imported only for that type.
"""

import os
from typing import Any

from spark_tasks.contracts.incremental import Incremental
from spark_tasks.contracts.sink import Sink, SinkUnfit
from spark_tasks.contracts.source import RowSource
from spark_tasks.delta.params import DeltaRows, DeltaTarget, ParquetTarget
from spark_tasks.etl.params import SinkParams, SourceParams
from spark_tasks.files.params import FileRows
from spark_tasks.http.params import HttpRows, header_text
from spark_tasks.postgres.local_copy import LocalCopy
from spark_tasks.postgres.params import PostgresTable
from spark_tasks.postgres.session import BatchSnapshots, uri
from spark_tasks.postgres.sink import PostgresSink
from spark_tasks.postgres.source import PostgresReader
from spark_tasks.spark.exchange import exchange_folder
from spark_tasks.spark.session import is_local_master
from spark_tasks.sqlite.params import SqliteRows, SqliteTable
from spark_tasks.sqlite.sink import SqliteSink
from spark_tasks.sqlite.source import SqliteReader
from spark_tasks.storage.stored import open_place
from spark_tasks.webhook.delivery import Receiver
from spark_tasks.webhook.params import FOLDERS, Webhook, check_header
from spark_tasks.webhook.sink import WebhookSink
from tasks.access import addresses, check_address
from tasks.errors import MissingSecret
from tasks.file_guard import FileGuard
from tasks.kind import Context
from tasks.places.place import Place, resolved
from tasks.webhook_signing import signing_keys


class SourceOpener:
    """Opens the sources of one attempt. Sources in one PostgreSQL database are read under one snapshot for each batch.

    `whole`: all rows will be read, not only the first ones. `carried`: rows from PostgreSQL are written to a PostgreSQL
    table without a transform.
    """

    def __init__(self, ctx: Context[Any], whole: bool = True, carried: bool = False) -> None:
        self._ctx = ctx
        self._whole = whole
        self._carried = carried
        self._snapshots = BatchSnapshots()

    def open(self, view: str, params: SourceParams, incremental: Incremental | None) -> RowSource:
        """Open the source for the view `view`. Raises `AccessRefused`, `BadDestination` and `MissingSecret`."""
        ctx = self._ctx
        if isinstance(params, SqliteRows):
            return SqliteReader(view, params, FileGuard(ctx.access, "source"), ctx.scratch / "rows", incremental)
        if isinstance(params, DeltaRows):
            return self._delta(params, incremental)
        if isinstance(params, FileRows):
            return self._files(view, params, incremental)
        if isinstance(params, HttpRows):
            return self._http(view, params, incremental)
        params.check(ctx.access)
        database, copies = uri(params, ctx.secret), self._copies(view)
        return PostgresReader(view, params, database, self._snapshots, incremental, copies, self._carried)

    def _copies(self, view: str) -> LocalCopy | None:
        if not self._whole or not is_local_master(os.environ):
            return None
        return LocalCopy(self._ctx.scratch / "rows" / view, lambda: self._ctx.cancelled)

    def _delta(self, params: DeltaRows, incremental: Incremental | None) -> RowSource:
        from spark_tasks.delta.source import DeltaReader

        if params.is_local:
            guard = FileGuard(self._ctx.access, "source")
            return DeltaReader(params, Place(str(guard.resolve(params.at))), guard, incremental)
        options = resolved(params.options, self._ctx.secret)
        for address in addresses(params.at, options):
            check_address(self._ctx.access, "source", address, params.at)
        return DeltaReader(params, Place(params.at, options), None, incremental)

    def _http(self, view: str, params: HttpRows, incremental: Incremental | None) -> RowSource:
        from spark_tasks.http.client import ApiClient
        from spark_tasks.http.source import HttpReader

        ctx = self._ctx
        for address in params.addresses():
            check_address(ctx.access, "source", address, params.url)
        headers = resolved(params.headers, ctx.secret)
        if params.bearer is not None:
            headers["Authorization"] = f"Bearer {ctx.secret(params.bearer)}"
        for name, value in headers.items():
            try:
                header_text(name, value)
            except ValueError as error:
                raise MissingSecret(str(error)) from None
        client = ApiClient(params, headers, resolved(params.parameters, ctx.secret), lambda: ctx.cancelled)
        return HttpReader(view, params, client, ctx.scratch / "rows", incremental)

    def _files(self, view: str, params: FileRows, incremental: Incremental | None) -> RowSource:
        from spark_tasks.files.source import FilesReader

        ctx = self._ctx
        # Spark on other machines can open files only by their own paths.
        pins = FileGuard(ctx.access, "source") if is_local_master(os.environ) else None
        folder = exchange_folder(os.environ, ctx.scratch, ctx.task, ctx.token)
        return FilesReader(view, params, ctx.access, pins, folder / "files", incremental)


def open_sink(ctx: Context[Any], params: SinkParams) -> Sink:
    """Open the sink of the attempt's task.

    Raises `AccessRefused`, `BadDestination`, `MissingSecret`, `SinkUnfit`, and the errors of `Session`.
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
            from spark_tasks.delta.sink import DeltaSink

            inner = ("_delta_log", "_rota", f"_rota/{ctx.task}", ctx.task)
            return DeltaSink(params, open_place(ctx, params, inner), ctx.task, ctx.scratch / "staged")
        case ParquetTarget():
            from spark_tasks.delta.parquet_sink import LEDGER, ParquetSink

            ledger = (f"{LEDGER}/{name}" for name in ("_delta_log", "_rota", f"_rota/{ctx.task}", ctx.task))
            return ParquetSink(open_place(ctx, params, (LEDGER, *ledger)), ctx.task, ctx.scratch / "staged")
        case Webhook():
            return WebhookSink(ctx, params, _receiver(ctx, params), _ledger(ctx, params), local)


def _ledger(ctx: Context[Any], params: Webhook) -> Place:
    place = Place(f"{params.ledger}/{ctx.task}", resolved(params.options, ctx.secret), ctx.access)
    if place.is_local:
        guard = FileGuard(ctx.access, "destination")
        for folder in FOLDERS:
            guard.resolve(f"{place.path}/{folder}")  # follows a symlink there
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
