"""The params of a Delta table as a sink."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from spark_tasks.storage.params import StoredTable

DeltaColumn = Annotated[str, Field(min_length=1, max_length=255)]


class DeltaTarget(StoredTable):
    """A Delta table in a folder or at s3://. A batch is one commit of its log, which names the batch as well.

    The table is made from the first batch's columns if there is none; a later batch must have the same.
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
        """Whether a batch takes the place of all rows before it, so that the source has to be read whole."""
        return self.mode == "replace"

    @property
    def adds(self) -> bool:
        """Whether a row that comes again is there twice."""
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
