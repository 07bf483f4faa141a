"""The params of plain Parquet files as a sink."""

from typing import Literal

from pydantic import Field

from spark_tasks.sinks.stored_params import StoredSink, StoredUrl


class ParquetTarget(StoredSink):
    """Plain Parquet files in a folder or at s3://. A batch adds files of its own, and changes no other."""

    type: Literal["parquet"] = Field(description="The type of the sink")
    folder: StoredUrl = Field(
        description="The folder, or s3://BUCKET/PREFIX. What the task notes for itself is in `_rota` in it, which "
        "readers of Parquet skip",
        examples=["/data/exports/orders", "s3://lake/orders"],
    )

    @property
    def at(self) -> str:
        """The path or the URL of the folder."""
        return self.folder

    @property
    def replaces(self) -> bool:
        """Whether a batch takes the place of all rows before it: never, since files are only added."""
        return False
