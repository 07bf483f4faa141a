"""The source, the lookups and the sink that an ETL task names, made for one attempt."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from spark_tasks.etl.params import EtlParams, SourceParams
from spark_tasks.sources.params import Incremental, SqliteRows
from spark_tasks.transform.params import SOURCE
from tasks.file_guard import FileGuard
from tasks.kind import Context
from tasks.postgres_connection import PostgresConnection
from tasks.postgres_url import with_password
from tasks.reach import Reach

if TYPE_CHECKING:
    from spark_tasks.postgres.snapshots import BatchSnapshots
    from spark_tasks.sinks.postgres import PostgresSink
    from spark_tasks.sources.port import RowSource

PATIENCE: Final[Mapping[str, str]] = {
    "connect_timeout": "15",
    "keepalives_idle": "60",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}
"""How long libpq waits for a server, in seconds, unless a URL says otherwise: a server that is gone is noticed."""


def named_sources(params: EtlParams) -> dict[str, tuple[str, SourceParams]]:
    """The source and the lookups: by the name of the view, the field of the params and what it holds."""
    lookups = {name: (f"lookups.{name}", one) for name, one in params.lookups.items()}
    return {SOURCE: ("source", params.source), **lookups}


def reaches(params: EtlParams) -> list[Reach]:
    """The servers and files that the params name."""
    found = [
        Reach(field, "source", one.path, one.path)
        if isinstance(one, SqliteRows)
        else Reach(field, "source", one.url, addresses=one.addresses())
        for field, one in named_sources(params).values()
    ]
    return [*found, Reach("sink", "destination", params.sink.url, addresses=params.sink.addresses())]


def on_own_disk(params: EtlParams) -> list[str]:
    """The params that name data on the member's own disk."""
    fields = [field for field, one in named_sources(params).values() if isinstance(one, SqliteRows) and not one.shared]
    return list(dict.fromkeys(field.partition(".")[0] for field in fields))


def sources_of(ctx: Context[EtlParams]) -> "dict[str, RowSource]":
    """The sources by the names of their views. Raises `AccessRefused` and `MissingSecret`."""
    from spark_tasks.postgres.snapshots import BatchSnapshots

    snapshots = BatchSnapshots()
    return {
        view: _source(ctx, view, one, snapshots, ctx.params.incremental if view == SOURCE else None)
        for view, (_, one) in named_sources(ctx.params).items()
    }


def _source(
    ctx: Context[EtlParams],
    view: str,
    params: SourceParams,
    snapshots: "BatchSnapshots",
    incremental: Incremental | None,
) -> "RowSource":
    from spark_tasks.sources.postgres import PostgresReader
    from spark_tasks.sources.sqlite import SqliteReader

    if isinstance(params, SqliteRows):
        return SqliteReader(view, params, FileGuard(ctx.access, "source"), ctx.scratch / "rows", incremental)
    params.check(ctx.access)
    return PostgresReader(view, params, _uri(ctx, params), snapshots, incremental)


def sink_of(ctx: Context[EtlParams]) -> "PostgresSink":
    """The sink. Raises `AccessRefused`, `MissingSecret`, and what a `Session` raises."""
    from spark_tasks.sinks.postgres import PostgresSink

    ctx.params.sink.check(ctx.access, "destination")
    return PostgresSink(ctx.params.sink, _uri(ctx, ctx.params.sink), ctx.task, ctx.scratch / "staged")


def _uri(ctx: Context[Any], connection: PostgresConnection) -> str:
    password = None if connection.password is None else ctx.secret(connection.password)
    return with_password(connection.url, password, **PATIENCE)
