"""What a task of kind `ingest` says: which files go into which table, and how."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from spark_tasks.files import is_local, local_path
from spark_tasks.reading import Form
from tasks.access import check_protocol
from tasks.identity import AcceptedSources


def _absolute(url: str) -> str:
    if check_protocol(url) != "":
        return url
    if is_local(url) and not local_path(url).startswith("/"):
        raise ValueError("a local path must begin with '/': the worker has a working folder of its own")
    return url


def _local_table(url: str) -> str:
    if "://" in url and not is_local(url):
        raise ValueError("a table is a local folder (/PATH or file:///PATH): Spark has no jars for object stores here")
    return _absolute(url)


_Url = Annotated[str, Field(min_length=1, max_length=4096)]


class IngestParams(Form):
    """Which files go into which table, and how."""

    source: list[Annotated[_Url, AfterValidator(_absolute)]] | Annotated[_Url, AfterValidator(_absolute)] = Field(
        description="Globs of the files: local paths, or fsspec URLs, which are fetched batch by batch",
        examples=["/data/flights/*.csv"],
    )
    table: Annotated[_Url, AfterValidator(_local_table)] = Field(
        description="The folder of the Delta table, on storage that every member that may run this has at this path"
    )
    shared: bool = Field(
        default=False,
        description="All members that may run this see the same local files, and the table, at these paths",
    )
    accept_source: AcceptedSources = Field(
        default=[],
        description="Ids of disks that hold the same local files as before, moved: the error that refuses one names it",
    )
    batch_files: int = Field(default=8, ge=1, le=10_000, description="Files in a batch; each batch is one commit")
    changed: Literal["fail", "ignore"] = Field(
        default="fail", description="What to do about an ingested file whose size has changed since"
    )
