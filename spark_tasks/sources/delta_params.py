"""The params of the source `delta`."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from spark_tasks.files.listing import is_local, local_path
from spark_tasks.postgres.names import ColumnName
from spark_tasks.storage.url import table_url
from tasks.access import check_options
from tasks.reach import Reach, remote
from tasks.secret import Reference


def _absolute(url: str) -> str:
    url = table_url(url)
    if is_local(url) and not local_path(url).startswith("/"):
        raise ValueError("a local path must begin with '/': a worker's current folder is its scratch folder")
    return url


class DeltaRows(BaseModel):
    """A Delta table: the rows of one version, or with `incremental: {versions: true}` what later versions bring."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["delta"] = Field(description="The type of the source")
    table: Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(_absolute)] = Field(
        description="The table: a folder's absolute path, or s3://BUCKET/PREFIX",
        examples=["/data/tables/flights", "s3://lake/flights"],
    )
    options: dict[str, Reference | str | int | bool | None] = Field(
        default={}, description="fsspec's options for the table; secrets are given as references"
    )
    shared: bool = Field(default=False, description="All members that may run the task see the same table at this path")
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

    @model_validator(mode="after")
    def _fits_together(self) -> "DeltaRows":
        check_options(self.table, self.options)
        if self.keys and self.tombstone is None:
            raise ValueError("`keys` are for the change data feed: give `tombstone` as well")
        return self

    @property
    def at(self) -> str:
        """The path of the table's folder, or its URL."""
        return local_path(self.table) if is_local(self.table) else self.table

    @property
    def on_own_disk(self) -> bool:
        """Whether the rows are on the member's own disk, and so are others on another member."""
        return is_local(self.table) and not self.shared

    def reach(self, field: str) -> Reach:
        """What `field` of the params names."""
        if is_local(self.table):
            return Reach(field, "source", self.table, self.at)
        return remote(field, "source", self.table, self.options)
