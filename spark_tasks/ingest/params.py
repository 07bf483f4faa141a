"""The params of the kind `ingest`: which files to read into which table, and how."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from spark_tasks.files.batching import BATCH_BYTES, BATCH_FILES
from spark_tasks.files.form import Form
from spark_tasks.files.listing import GlobUrl
from spark_tasks.files.ready import Ready
from spark_tasks.ingest.expectations import Expectations
from spark_tasks.storage.params import StoredUrl, StoreOptions
from tasks.access import check_options
from tasks.source_identity import AcceptedSources


class IngestParams(Form):
    """Which files to read into which table, and how."""

    source: Annotated[list[GlobUrl], Field(min_length=1)] | GlobUrl = Field(
        description="The files, as one glob or a list: local paths, or fsspec URLs, which are fetched batch by batch",
        examples=["/data/flights/*.csv"],
    )
    table: StoredUrl = Field(
        description="The Delta table: a folder, on storage that every member that may run the task has at this path, "
        "or s3://BUCKET/PREFIX",
        examples=["/data/tables/flights", "s3://lake/flights"],
    )
    options: StoreOptions = Field(
        default={},
        description="fsspec's options for the table; secrets are given as references",
        examples=[{"key": {"env": "S3_KEY"}, "secret": {"secret": "s3_secret"}, "endpoint_url": "https://s3.internal"}],
    )
    shared: bool = Field(
        default=False,
        description="All members that may run the task see the same local files, and the same table, at these paths",
    )
    accept_source: AcceptedSources = Field(
        default=[],
        description="Ids of disks that hold the same local files as before, moved; the error that refuses a disk names "
        "its id. One id, or a list",
    )
    batch_files: int = Field(
        default=BATCH_FILES, ge=1, le=10_000, description="The most files in a batch; each batch is one commit"
    )
    batch_bytes: int = Field(
        default=BATCH_BYTES,
        ge=1,
        description="The most bytes of files in a batch, as they are stored; a greater file is a batch of its own",
    )
    partition_by: list[str] = Field(
        default=[],
        max_length=8,
        description="The columns by which a new table is partitioned, from the outermost; those of a table that is "
        "there are taken as they are. Each task of Spark writes a file for each of its values: few values are best. "
        "At s3:// they are text, integers, dates or booleans",
        examples=[["year", "month"]],
    )
    expect: Expectations = Field(
        default={},
        max_length=50,
        description="What is true of each row, by a name of your own. The rows of which it is not are counted in the "
        "result, by this name",
    )
    ready: Ready | None = Field(
        default=None,
        description="When a file is complete; one that is not waits for a later run. null: when it has its name, which "
        "does not begin with `.` or `_`",
    )
    changed: Literal["fail", "ignore"] = Field(
        default="fail", description="Whether an ingested file whose size has changed since fails the run or is ignored"
    )

    @model_validator(mode="after")
    def _known_options(self) -> "IngestParams":
        check_options(self.table, self.options)
        return self
