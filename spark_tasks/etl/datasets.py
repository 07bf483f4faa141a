"""The datasets of an `etl`, by the names of OpenLineage (pure)."""

from spark_tasks.contracts.names import table_parts
from spark_tasks.etl.params import EtlParams, SinkParams, SourceParams
from spark_tasks.etl.parts import named_sources
from spark_tasks.files.params import FileRows
from spark_tasks.http.params import HttpRows
from spark_tasks.postgres.params import PostgresRows, PostgresTable
from spark_tasks.sqlite.params import SqliteRows, SqliteTable
from spark_tasks.webhook.params import Webhook
from tasks.datasets import Dataset, Datasets, postgres_tables, stored_at


def datasets_of_etl(params: EtlParams) -> Datasets:
    """Return the datasets of the source, the lookups and the sink. A query of a database has no dataset's name."""
    inputs = (dataset for _, one in named_sources(params).values() for dataset in _named(one))
    return Datasets(tuple(inputs), _named(params.sink))


def _named(one: SourceParams | SinkParams) -> tuple[Dataset, ...]:
    match one:
        case PostgresRows(table=str() as table) | PostgresTable(table=table):
            schema, name = ("public", *table_parts(table))[-2:]
            return postgres_tables(one.url, [f"{schema}.{name}"])
        case PostgresRows():
            return ()
        case SqliteRows() | SqliteTable():
            return (stored_at(one.path),)
        case FileRows():
            return (stored_at(one.files),)
        case HttpRows() | Webhook():
            return (stored_at(one.url),)
        case _:
            return (stored_at(one.url),)
