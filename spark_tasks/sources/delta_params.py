"""The params of the source `delta`."""

from typing import Literal, Self

from pydantic import Field, model_validator

from spark_tasks.postgres.names import ColumnName
from spark_tasks.storage.params import StoredTable


class DeltaRows(StoredTable):
    """A Delta table: the rows of one version, or with `incremental: {versions: true}` what later versions bring."""

    use = "source"

    type: Literal["delta"] = Field(description="The type of the source")
    tombstone: ColumnName | None = Field(
        default=None,
        description="Read the table's change data feed, and say in this column, which is added, whether the row was "
        "deleted. The table needs `delta.enableChangeDataFeed`. null: only rows that were appended are read",
    )
    keys: list[ColumnName] = Field(
        default=[],
        max_length=32,
        description="With `tombstone`: the columns that name a row. Of several changes of a row in a batch only the "
        "last is read, and a row whose keys were updated is deleted under its old ones. An upsert needs them",
    )
    on_rewrite: Literal["fail", "skip"] = Field(
        default="fail",
        description="What a version does that updated or deleted rows, of which the change data feed does not tell or "
        "is not read: it fails the run, or brings nothing, the rows that it inserted included",
    )

    @property
    def origin(self) -> str | None:
        """Of which data a cursor is: None, since a cursor of a table has the table's id in it."""
        return None

    @model_validator(mode="after")
    def _keys_of_changes(self) -> Self:
        if self.keys and self.tombstone is None:
            raise ValueError("`keys` are for the change data feed: give `tombstone` as well")
        return self
