"""The params of PostgreSQL as source and sink: a table or a query to read, and a table to write."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from spark_tasks.contracts.names import ColumnName, TableName
from spark_tasks.contracts.sink import KeyedRows
from tasks.postgres.connection import PostgresConnection
from tasks.postgres.url import parse
from tasks.reach import Reach


class DecimalType(BaseModel):
    """The type of a column of decimals. A value that it does not hold exactly is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    precision: int = Field(ge=1, le=38, description="The number of digits in all")
    scale: int = Field(default=0, ge=0, le=38, description="The number of digits behind the point, of those")

    @model_validator(mode="after")
    def _within(self) -> "DecimalType":
        if self.scale > self.precision:
            raise ValueError(f"the scale {self.scale} is greater than the precision {self.precision}")
        return self


def _none_if_null(value: Any) -> Any:
    """Return None for the word `null`, because YAML reads it as None only if it is not quoted."""
    return None if value == "null" else value


class PostgresRows(PostgresConnection):
    """A table, or the result of a query, in a PostgreSQL database, read in parallel under one snapshot."""

    type: Literal["postgres"] = Field(description="The type of the source")
    table: TableName | None = Field(
        default=None,
        description='The table or view to read, as TABLE or SCHEMA.TABLE; `"my.schema"."My Table"` if a name has a dot',
    )
    query: str | None = Field(
        default=None, min_length=1, max_length=20_000, description="A SELECT to read instead of a table"
    )
    partition_by: ColumnName | None = Field(
        default=None,
        description="The integer column by whose ranges the rows are read in parallel; null: a table's primary key, if "
        "it is one integer column, else the rows are read by one reader",
    )
    partitions: int = Field(default=4, ge=1, le=256, description="The number of parallel readers")
    decimal: dict[ColumnName, DecimalType] = Field(
        default={},
        max_length=1600,
        description="Types for columns of type `numeric`, by their names. One without precision becomes decimal(38,18) "
        "otherwise, and one with more than 38 digits becomes text. A value that the type does not hold exactly is "
        "refused. Without a `transform`, a `numeric` goes into a PostgreSQL table as it is, and needs none",
        examples=[{"amount": {"precision": 38, "scale": 4}}],
    )
    infinity: Annotated[Literal["refuse", "ends"] | None, BeforeValidator(_none_if_null)] = Field(
        default="refuse",
        description="What becomes of `infinity` and `-infinity` in columns of type date, timestamp and timestamptz. "
        "`refuse`: they go into a PostgreSQL table as they are if there is no `transform`, and fail the run otherwise. "
        "`null`: they become null. `ends`: the last moment of the year 9999, and the first one of the year 1. In a "
        "cursor they fail the run",
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> "PostgresRows":
        if (self.table is None) == (self.query is None):
            raise ValueError("give either `table` or `query`")
        return self

    @property
    def origin(self) -> str | None:
        """The data that a cursor belongs to, in words. It lacks the server, because the data may have moved to another
        server.
        """
        what = "a query" if self.table is None else f"table {self.table.removeprefix('public.')}"
        return f"{what} in the database {parse(self.url).database}"

    @property
    def on_own_disk(self) -> bool:
        """Whether the rows are on the member's own disk, so that another member would read other rows."""
        return False

    def reach(self, field: str) -> Reach:
        """Return the servers and files that `field` of the params names."""
        return Reach(field, "source", self.url, addresses=self.addresses())


class PostgresTable(KeyedRows, PostgresConnection):
    """A table in a PostgreSQL database. A batch is one transaction, which also records it in `rota_batches`."""

    type: Literal["postgres"] = Field(description="The type of the sink")
    table: TableName = Field(
        description='The table to write, as TABLE or SCHEMA.TABLE; `"my.schema"."My Table"` if a name has a dot. It is '
        "made from the first batch's columns if there is none"
    )

    @property
    def on_own_disk(self) -> bool:
        """Whether the rows are written to the member's own disk, where other members do not see them."""
        return False

    def reach(self, field: str) -> Reach:
        """Return the servers and files that `field` of the params names."""
        return Reach(field, "destination", self.url, addresses=self.addresses())
