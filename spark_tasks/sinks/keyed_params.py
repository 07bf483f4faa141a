"""What the params of sinks have in common whose rows have keys."""

from typing import Literal, Self

from pydantic import BaseModel, Field, model_validator

from spark_tasks.postgres.names import ColumnName


class KeyedRows(BaseModel):
    """How a batch's rows go into a table of a database."""

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
    def _keys_for_upserts(self) -> Self:
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
    def adds(self) -> bool:
        """Whether a row that comes again is there twice."""
        return self.mode == "append"
