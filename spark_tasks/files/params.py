"""The params of the source `files`."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from spark_tasks.files.form import ColumnsText, Form
from spark_tasks.files.listing import BATCH_BYTES, BATCH_FILES, GlobUrl, fixed_folder
from spark_tasks.files.ready import Ready
from spark_tasks.storage.url import is_local, without_protocol
from tasks.reach import Reach, remote


class FileRows(Form):
    """Files: all that the glob finds, or with `incremental: {files: true}` those that are newer than the last batch."""

    type: Literal["files"] = Field(description="The type of the source")
    files: GlobUrl = Field(
        description="The files, as a glob: a local path, or an fsspec URL, whose files are fetched batch by batch",
        examples=["/data/flights/*.csv"],
    )
    shared: bool = Field(
        default=False, description="All members that may run the task see the same files at these paths"
    )
    columns: ColumnsText | None = Field(
        default=None,
        max_length=20_000,
        description="The columns and their types as in SQL. Required for CSV, JSON and TBL. null: those of the first "
        "Parquet or Avro file of a batch",
        examples=["flight INT, tailnum STRING, time_hour TIMESTAMP"],
    )
    malformed: Literal["fail"] = Field(
        default="fail", description="A row that does not fit the columns fails the batch"
    )
    schema_evolution: Literal["fail"] = Field(default="fail", description="A file with other columns fails the batch")
    rescue: Literal[False] = Field(default=False, description="Fields without a column are not kept")
    ready: Ready | None = Field(
        default=None,
        description="When a file is complete, if all files are read. With `incremental`, one is once it was not "
        "changed for `lag_s`",
    )
    batch_files: int = Field(
        default=BATCH_FILES, ge=1, le=10_000, description="With `incremental`: about how many files a batch has"
    )
    batch_bytes: int = Field(
        default=BATCH_BYTES,
        ge=1,
        description="With `incremental`: about how many bytes of files a batch has, as they are stored",
    )

    def wrong_together(self) -> Iterator[str]:
        """Yield the errors of fields that are valid alone, but not together (`Form`)."""
        yield from super().wrong_together()
        if self.format in ("csv", "json") and self.columns is None:
            yield f"`columns` is required for format {self.format}: the types of text are not guessed"

    @property
    def origin(self) -> str | None:
        """The data that a cursor belongs to, in words."""
        return f"the files {self.files}"

    @property
    def on_own_disk(self) -> bool:
        """Whether the rows are on the member's own disk, so that another member would read other rows."""
        return is_local(self.files) and not self.shared

    def reach(self, field: str) -> Reach:
        """Return the files that `field` of the params names."""
        if is_local(self.files):
            return Reach(field, "source", self.files, fixed_folder(without_protocol(self.files)), links=True)
        return remote(field, "source", self.files, {})
