"""The source, the lookups and the sink that an ETL task names, opened for one attempt."""

from typing import TYPE_CHECKING

from spark_tasks.etl.params import EtlParams, SourceParams
from spark_tasks.etl.transform import SOURCE
from spark_tasks.files.params import FileRows
from spark_tasks.postgres.params import PostgresTable
from spark_tasks.storage.stored import Stored
from spark_tasks.webhook.params import Webhook
from tasks.kind import Context
from tasks.needs import CredentialGroup, credential_groups
from tasks.postgres.connection import PostgresConnection
from tasks.reach import Reach

if TYPE_CHECKING:
    from spark_tasks.contracts.sink import Sink
    from spark_tasks.contracts.source import RowSource


def named_sources(params: EtlParams) -> dict[str, tuple[str, SourceParams]]:
    """Return the field of the params and its value for the source and each lookup, by view name."""
    lookups = {name: (f"lookups.{name}", one) for name, one in params.lookups.items()}
    return {SOURCE: ("source", params.source), **lookups}


def reaches(params: EtlParams) -> list[Reach]:
    """Return the servers and files that the params name."""
    named = [one.reach(field) for field, one in named_sources(params).values()]
    ledger = [params.sink.ledger_reach("sink")] if isinstance(params.sink, Webhook) else []
    return [*named, params.sink.reach("sink"), *ledger]


def certificates(params: EtlParams) -> list[Reach]:
    """Return the files of root certificates that the URLs of PostgreSQL servers name."""
    named = [*named_sources(params).values(), ("sink", params.sink)]
    return [reach for field, one in named if isinstance(one, PostgresConnection) for reach in one.certificate(field)]


def own_credentials(params: EtlParams) -> tuple[CredentialGroup, ...]:
    """Return the node user's own credential files for these servers and stores."""
    found: set[CredentialGroup] = set()
    for one in (*(one for _, one in named_sources(params).values()), params.sink):
        match one:
            case PostgresConnection() | Stored():
                found.update(one.own_credentials)
            case FileRows():
                found.update(credential_groups(one.files, {}))
            case Webhook():
                found.update(credential_groups(one.ledger, one.options))
    return tuple(sorted(found))


def on_own_disk(params: EtlParams) -> list[str]:
    """Return the params that name data on the member's own disk."""
    fields = [field for field, one in named_sources(params).values() if one.on_own_disk]
    if params.sink.on_own_disk:
        fields.append("sink")
    return list(dict.fromkeys(field.partition(".")[0] for field in fields))


def sources_of(ctx: Context[EtlParams], whole: bool = True) -> "dict[str, RowSource]":
    """Open the sources. Returns them by view name. `whole`: all rows will be read, not only the first ones.

    Raises `AccessRefused` and `MissingSecret`.
    """
    from spark_tasks.etl.opening import SourceOpener

    untouched = ctx.params.transform is None and isinstance(ctx.params.sink, PostgresTable)
    opener = SourceOpener(ctx, whole, carried=untouched)
    return {
        view: opener.open(view, one, ctx.params.incremental if view == SOURCE else None)
        for view, (_, one) in named_sources(ctx.params).items()
    }


def sink_of(ctx: Context[EtlParams]) -> "Sink":
    """Open the sink. Raises `AccessRefused`, `MissingSecret`, and the errors of the sinks."""
    from spark_tasks.etl.opening import open_sink

    return open_sink(ctx, ctx.params.sink)
