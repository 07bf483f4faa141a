"""The params of sinks."""

from typing import Literal

from pydantic import Field, model_validator

from spark_tasks.postgres.names import ColumnName, TableName
from tasks.postgres_connection import PostgresConnection
from tasks.reach import Reach


class PostgresTable(PostgresConnection):
    """A table in a PostgreSQL database. A batch is one transaction, which names it in `rota_batches` as well."""

    type: Literal["postgres"] = Field(description="The type of the sink")
    table: TableName = Field(
        description="The table to write, as TABLE or SCHEMA.TABLE. It is made from the first batch's columns if there "
        "is none"
    )
    mode: Literal["append", "upsert", "replace"] = Field(
        description="`append` inserts the rows. `upsert` inserts those whose keys are new and updates the others. "
        "`replace` puts the rows in place of all that was in the table"
    )
    keys: list[ColumnName] = Field(
        default=[],
        max_length=32,
        description="The columns that name a row, for `upsert`. The table must have a unique index on them",
    )
    tombstone: ColumnName | None = Field(
        default=None,
        description="With `upsert`: rows in which this column is true, or is of another type and not null, are deleted "
        "by their keys. The column itself is not written",
    )

    @model_validator(mode="after")
    def _keys_for_upserts(self) -> "PostgresTable":
        if (self.mode == "upsert") != bool(self.keys):
            raise ValueError("`keys` are needed for `mode: upsert`, and for no other mode")
        if self.tombstone is not None and self.mode != "upsert":
            raise ValueError("`tombstone` needs `mode: upsert`")
        return self

    @property
    def replaces(self) -> bool:
        """Whether a batch takes the place of all rows before it, so that the source has to be read whole."""
        return self.mode == "replace"

    @property
    def on_own_disk(self) -> bool:
        """Whether the rows go to the member's own disk, where other members do not see them."""
        return False

    def reach(self, field: str) -> Reach:
        """What `field` of the params names."""
        return Reach(field, "destination", self.url, addresses=self.addresses())


SinkParams = PostgresTable
Sink = SinkParams
