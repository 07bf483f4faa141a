"""Opens the source that params name, for one attempt."""

import os
from typing import Any

from spark_tasks.postgres.snapshots import BatchSnapshots
from spark_tasks.postgres.uri import uri
from spark_tasks.sources.delta_params import DeltaRows
from spark_tasks.sources.file_params import FileRows
from spark_tasks.sources.http_params import HttpRows, header_text
from spark_tasks.sources.params import Incremental, SourceParams, SqliteRows
from spark_tasks.sources.port import RowSource
from spark_tasks.sources.postgres import PostgresReader
from spark_tasks.sources.postgres_copy import LocalCopy
from spark_tasks.sources.sqlite import SqliteReader
from spark_tasks.spark.exchange import exchange_folder
from spark_tasks.spark.session import is_local_master
from tasks.access import addresses, check_address
from tasks.errors import MissingSecret
from tasks.file_guard import FileGuard
from tasks.kind import Context
from tasks.places.place import Place, resolved


class SourceOpener:
    """Opens the sources of one attempt. Those in one PostgreSQL database are read under one snapshot for each batch.

    `whole` says that all their rows will be wanted, not only the first; `carried`, that those of PostgreSQL go into a
    PostgreSQL table untouched.
    """

    def __init__(self, ctx: Context[Any], whole: bool = True, carried: bool = False) -> None:
        self._ctx = ctx
        self._whole = whole
        self._carried = carried
        self._snapshots = BatchSnapshots()

    def open(self, view: str, params: SourceParams, incremental: Incremental | None) -> RowSource:
        """The source whose rows are the view `view`. Raises `AccessRefused`, `BadDestination` and `MissingSecret`."""
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
        from spark_tasks.sources.delta import DeltaReader

        if params.is_local:
            guard = FileGuard(self._ctx.access, "source")
            return DeltaReader(params, Place(str(guard.resolve(params.at))), guard, incremental)
        options = resolved(params.options, self._ctx.secret)
        for address in addresses(params.at, options):
            check_address(self._ctx.access, "source", address, params.at)
        return DeltaReader(params, Place(params.at, options), None, incremental)

    def _http(self, view: str, params: HttpRows, incremental: Incremental | None) -> RowSource:
        from spark_tasks.sources.http import HttpReader
        from spark_tasks.sources.http_client import ApiClient

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
        from spark_tasks.sources.files import FilesReader

        ctx = self._ctx
        # A Spark on other machines can open files only by their own paths.
        pins = FileGuard(ctx.access, "source") if is_local_master(os.environ) else None
        folder = exchange_folder(os.environ, ctx.scratch, ctx.task, ctx.token)
        return FilesReader(view, params, ctx.access, pins, folder / "files", incremental)
