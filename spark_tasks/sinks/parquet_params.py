"""The params of plain Parquet files as a sink."""

from typing import Literal

from pydantic import Field

from spark_tasks.storage.params import INNER, Stored, StoredUrl


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
        """The folder's path or URL, as the params say it."""
        return self.folder

    @property
    def replaces(self) -> bool:
        """Whether a batch takes the place of all rows before it: never, since files are only added."""
        return False

    @property
    def adds(self) -> bool:
        """Whether a row that comes again is there twice."""
        return True
