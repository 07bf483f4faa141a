"""The params of the kind `ingest`: which files to read into which table, and how."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field

from spark_tasks.files.evolving import check_name
from spark_tasks.files.form import Form
from spark_tasks.files.listing import BATCH_BYTES, BATCH_FILES, GlobUrl
from spark_tasks.files.ready import Ready
from spark_tasks.ingest.expectations import Expectations
from spark_tasks.storage.stored import StoredUrl, StoreOptions
from spark_tasks.storage.url import is_local
from spark_tasks.table.part import PLAIN_PARTITIONS
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

    def wrong_together(self) -> Iterator[str]:
        """Yield the errors of fields that are valid alone, but not together (`Form`)."""
        yield from super().wrong_together()
        try:
            check_options(self.table, self.options)
        except ValueError as error:
            yield str(error)
        kinds = {column.name: column.kind for column in self.named}
        yield from (f"`columns`: {said}" for name in kinds if (said := check_name(name)))
        if kinds:
            yield from self._wrong_partitions(kinds)

    def _wrong_partitions(self, kinds: Mapping[str, str]) -> Iterator[str]:
        named = f"`columns` are {', '.join(kinds)}"
        yield from (f"`partition_by` names {name}, and {named}" for name in self.partition_by if name not in kinds)
        if self.partition_by and not kinds.keys() - set(self.partition_by):
            yield f"`partition_by` names all columns ({named}): a table needs one that it is not partitioned by"
        for name in self.partition_by:
            if "<" in kinds.get(name, ""):
                yield f"`partition_by` names {name}, which is {kinds[name]}: a table is partitioned by single values"
            elif not is_local(self.table) and name in kinds and kinds[name] not in PLAIN_PARTITIONS:
                yield (
                    f"`partition_by` names {name}, which is {kinds[name]}: only a table in a folder may be partitioned "
                    "by another type than text, integer, date or boolean"
                )
