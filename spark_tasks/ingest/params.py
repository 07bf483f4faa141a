"""The params of the kind `ingest`: which files to read into which table, and how."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from spark_tasks.files.listing import is_local, local_path
from spark_tasks.files.reading import Form
from spark_tasks.storage.url import table_url
from tasks.access import check_options, check_protocol
from tasks.secret import Reference
from tasks.source_identity import AcceptedSources


def _absolute(url: str) -> str:
    if check_protocol(url) != "":
        return url
    if is_local(url) and not local_path(url).startswith("/"):
        raise ValueError("a local path must begin with '/': a worker's current folder is its scratch folder")
    return url


_Url = Annotated[str, Field(min_length=1, max_length=4096)]


class IngestParams(Form):
    """Which files to read into which table, and how."""

    source: list[Annotated[_Url, AfterValidator(_absolute)]] | Annotated[_Url, AfterValidator(_absolute)] = Field(
        description="The files, as one glob or a list: local paths, or fsspec URLs, which are fetched batch by batch",
        examples=["/data/flights/*.csv"],
    )
    table: Annotated[_Url, AfterValidator(table_url)] = Field(
        description="The Delta table: a folder, on storage that every member that may run the task has at this path, "
        "or s3://BUCKET/PREFIX",
        examples=["/data/tables/flights", "s3://lake/flights"],
    )
    options: dict[str, Reference | str | int | bool | None] = Field(
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
        default=8, ge=1, le=10_000, description="The number of files in a batch; each batch is one commit"
    )
    changed: Literal["fail", "ignore"] = Field(
        default="fail", description="Whether an ingested file whose size has changed since fails the run or is ignored"
    )

    @model_validator(mode="after")
    def _known_options(self) -> "IngestParams":
        check_options(self.table, self.options)
        return self
