"""The params of a Delta table as source and sink, and of plain Parquet files as sink."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from spark_tasks.contracts.names import ColumnName
from spark_tasks.storage.stored import INNER, Stored, StoredTable, StoredUrl


class DeltaRows(StoredTable):
    """A Delta table: the rows of one version, or with `incremental: {versions: true}` the changes of later versions."""

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
        """The data that a cursor belongs to: None, because a table's cursor has the table's id in it."""
        return None

    @model_validator(mode="after")
    def _keys_of_changes(self) -> Self:
        if self.keys and self.tombstone is None:
            raise ValueError("`keys` are for the change data feed: give `tombstone` as well")
        return self


DeltaColumn = Annotated[str, Field(min_length=1, max_length=255)]


class DeltaTarget(StoredTable):
    """A Delta table in a folder or at s3://. A batch is one commit of its log, which also names the batch.

    If there is no table, it is created with the first batch's columns; later batches must have the same columns.
    """

    use = "destination"

    type: Literal["delta"] = Field(description="The type of the sink")
    mode: Literal["append", "merge", "overwrite_partitions", "replace"] = Field(
        description="`append` adds the rows. `merge` adds those whose keys are new and puts the others in place of the "
        "rows with their keys. `overwrite_partitions` puts the rows in place of all that was in the partitions that "
        "they are in, and `replace` in place of all that was in the table"
    )
    keys: list[DeltaColumn] = Field(
        default=[], max_length=32, description="The columns that name a row, for `merge`. A batch has each key once"
    )
    tombstone: DeltaColumn | None = Field(
        default=None,
        description="With `merge`: rows in which this column is true, or is of another type and not null, are deleted "
        "by their keys. The column itself is not written",
    )
    partition_by: list[DeltaColumn] = Field(
        default=[],
        max_length=8,
        description="The columns by which a new table is partitioned, from the outermost; those of a table that is "
        "there are taken as they are. Few values are best",
        examples=[["day"]],
    )

    @property
    def replaces(self) -> bool:
        """Whether a batch replaces all earlier rows, so that the source has to be read whole."""
        return self.mode == "replace"

    @property
    def adds(self) -> bool:
        """Whether a row that is written twice is in the table twice."""
        return self.mode == "append"

    @model_validator(mode="after")
    def _keys_for_merges(self) -> "DeltaTarget":
        if (self.mode == "merge") != bool(self.keys):
            raise ValueError("`keys` are needed for `mode: merge`, and for no other mode")
        if self.tombstone is not None and self.mode != "merge":
            raise ValueError("`tombstone` needs `mode: merge`")
        if self.tombstone in (*self.keys, *self.partition_by):
            raise ValueError("`tombstone` is not written: it cannot be one of `keys` or `partition_by`")
        return self

    @model_validator(mode="after")
    def _partitions_to_overwrite(self) -> "DeltaTarget":
        if self.mode == "overwrite_partitions" and not self.partition_by:
            raise ValueError("`mode: overwrite_partitions` needs `partition_by`")
        return self


class ParquetTarget(Stored):
    """Plain Parquet files in a folder or at s3://. A batch adds files of its own, and changes no other."""

    inner = ("_rota", *(f"_rota/{name}" for name in INNER))
    use = "destination"

    type: Literal["parquet"] = Field(description="The type of the sink")
    folder: StoredUrl = Field(
        description="The folder's absolute path, or s3://BUCKET/PREFIX. What the task notes for itself is in `_rota` "
        "in it, which readers of Parquet skip",
        examples=["/data/exports/orders", "s3://lake/orders"],
    )

    @property
    def url(self) -> str:
        """The path or URL of the folder, as the params give it."""
        return self.folder

    @property
    def replaces(self) -> bool:
        """Whether a batch replaces all earlier rows: never, since files are only added."""
        return False

    @property
    def adds(self) -> bool:
        """Whether a row that is written twice is in the folder twice."""
        return True
