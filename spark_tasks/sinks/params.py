"""The params of sinks."""

from typing import Annotated, Literal

from pydantic import Field

from spark_tasks.postgres.names import TableName
from spark_tasks.sinks.delta_params import DeltaTarget
from spark_tasks.sinks.keyed_params import KeyedRows
from spark_tasks.sinks.parquet_params import ParquetTarget
from spark_tasks.sinks.sqlite_params import SqliteTable
from spark_tasks.sinks.webhook_params import Webhook
from tasks.postgres.connection import PostgresConnection
from tasks.reach import Reach


class PostgresTable(KeyedRows, PostgresConnection):
    """A table in a PostgreSQL database. A batch is one transaction, which names it in `rota_batches` as well."""

    type: Literal["postgres"] = Field(description="The type of the sink")
    table: TableName = Field(
        description='The table to write, as TABLE or SCHEMA.TABLE; `"my.schema"."My Table"` if a name has a dot. It is '
        "made from the first batch's columns if there is none"
    )

    @property
    def on_own_disk(self) -> bool:
        """Whether the rows go to the member's own disk, where other members do not see them."""
        return False

    def reach(self, field: str) -> Reach:
        """What `field` of the params names."""
        return Reach(field, "destination", self.url, addresses=self.addresses())


SinkParams = PostgresTable | SqliteTable | DeltaTarget | ParquetTarget | Webhook
Sink = Annotated[SinkParams, Field(discriminator="type")]


def sink_reaches(sink: SinkParams, field: str) -> list[Reach]:
    """All that `field` of the params, which is `sink`, names."""
    return [sink.reach(field), *([sink.ledger_reach(field)] if isinstance(sink, Webhook) else [])]
