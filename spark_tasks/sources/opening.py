"""Opens the source that params name, for one attempt."""

from typing import Any

from spark_tasks.postgres.snapshots import BatchSnapshots
from spark_tasks.postgres.uri import uri
from spark_tasks.sources.params import Incremental, SourceParams, SqliteRows
from spark_tasks.sources.port import RowSource
from spark_tasks.sources.postgres import PostgresReader
from spark_tasks.sources.sqlite import SqliteReader
from tasks.file_guard import FileGuard
from tasks.kind import Context


class SourceOpener:
    """Opens the sources of one attempt. Those in one PostgreSQL database are read under one snapshot for each batch."""

    def __init__(self, ctx: Context[Any]) -> None:
        self._ctx = ctx
        self._snapshots = BatchSnapshots()

    def open(self, view: str, params: SourceParams, incremental: Incremental | None) -> RowSource:
        """The source whose rows are the view `view`. Raises `AccessRefused` and `MissingSecret`."""
        ctx = self._ctx
        if isinstance(params, SqliteRows):
            return SqliteReader(view, params, FileGuard(ctx.access, "source"), ctx.scratch / "rows", incremental)
        params.check(ctx.access)
        return PostgresReader(view, params, uri(params, ctx.secret), self._snapshots, incremental)
