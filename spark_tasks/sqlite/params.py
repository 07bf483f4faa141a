"""The params of SQLite files as source and sink."""

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from spark_tasks.contracts.sink import KeyedRows
from tasks.reach import Reach

SINKS: Final = "rota_sinks"
BATCHES: Final = "rota_batches"


def _table_of_a_file(text: str) -> str:
    if text.lower() in (SINKS, BATCHES) or text.lower().startswith("sqlite_") or "\0" in text:
        raise ValueError(f"{text!r} cannot be the table: SQLite or Rota uses this name itself")
    return text


class SqliteRows(BaseModel):
    """A table or view in an SQLite file on the member that runs the task."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["sqlite"] = Field(description="The type of the source")
    path: Annotated[str, StringConstraints(pattern=r"^/[^\x00]*$")] = Field(
        description="The database file's absolute path", examples=["/srv/app/app.db"]
    )
    table: str = Field(min_length=1, max_length=200, description="The table or view to read")
    shared: bool = Field(default=False, description="All members that may run the task see the same file at this path")

    @property
    def origin(self) -> str | None:
        """The data that a cursor belongs to, in words."""
        return f"table {self.table} in {self.path}"

    @property
    def on_own_disk(self) -> bool:
        """Whether the rows are on the member's own disk, so that another member would read other rows."""
        return not self.shared

    def reach(self, field: str) -> Reach:
        """Return the file that `field` of the params names."""
        return Reach(field, "source", self.path, self.path, beside=True)


class SqliteTable(KeyedRows):
    """A table in an SQLite file. A batch is one transaction, which also records it in `rota_batches` in the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["sqlite"] = Field(description="The type of the sink")
    path: Annotated[str, StringConstraints(pattern=r"^/[^\x00]*[^/\x00]$", max_length=4096)] = Field(
        description="The database file's absolute path. It is made if there is none, in a folder that is there",
        examples=["/srv/app/report.db"],
    )
    table: Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_table_of_a_file)] = Field(
        description="The table to write. It is made from the first batch's columns if there is none"
    )
    shared: bool = Field(
        default=False,
        description="All members that may run the task see the same file at this path, and its file system keeps locks "
        "between them",
    )

    @property
    def on_own_disk(self) -> bool:
        """Whether the rows are written to the member's own disk, where other members do not see them."""
        return not self.shared

    def reach(self, field: str) -> Reach:
        """Return the file that `field` of the params names."""
        return Reach(field, "destination", self.path, self.path, beside=True)
