"""The params of sources."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

from spark_tasks.postgres.names import ColumnName, TableName
from spark_tasks.sources.delta_params import DeltaRows
from spark_tasks.sources.file_params import FileRows
from spark_tasks.sources.http_params import CURSOR_KINDS, HttpRows
from tasks.postgres.connection import PostgresConnection
from tasks.postgres.url import parse
from tasks.reach import Reach


class DecimalType(BaseModel):
    """The type of a column of decimals. A value that it does not hold exactly is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    precision: int = Field(ge=1, le=38, description="The number of digits in all")
    scale: int = Field(default=0, ge=0, le=38, description="The number of digits behind the point, of those")

    @model_validator(mode="after")
    def _within(self) -> "DecimalType":
        if self.scale > self.precision:
            raise ValueError(f"the scale {self.scale} is greater than the precision {self.precision}")
        return self


def _none_if_null(value: Any) -> Any:
    """What is asked for by the word `null`, which YAML reads as nothing unless it is quoted."""
    return None if value == "null" else value


class PostgresRows(PostgresConnection):
    """A table, or the result of a query, in a PostgreSQL database, read in parallel under one snapshot."""

    type: Literal["postgres"] = Field(description="The type of the source")
    table: TableName | None = Field(
        default=None,
        description='The table or view to read, as TABLE or SCHEMA.TABLE; `"my.schema"."My Table"` if a name has a dot',
    )
    query: str | None = Field(
        default=None, min_length=1, max_length=20_000, description="A SELECT to read instead of a table"
    )
    partition_by: ColumnName | None = Field(
        default=None,
        description="The integer column by whose ranges the rows are read in parallel; null: a table's primary key, if "
        "it is one integer column, else the rows are read by one reader",
    )
    partitions: int = Field(default=4, ge=1, le=256, description="The number of parallel readers")
    decimal: dict[ColumnName, DecimalType] = Field(
        default={},
        max_length=1600,
        description="Types for columns of type `numeric`, by their names. One without precision becomes decimal(38,18) "
        "otherwise, and one with more than 38 digits becomes text. A value that the type does not hold exactly is "
        "refused. Without a `transform`, a `numeric` goes into a PostgreSQL table as it is, and needs none",
        examples=[{"amount": {"precision": 38, "scale": 4}}],
    )
    infinity: Annotated[Literal["refuse", "ends"] | None, BeforeValidator(_none_if_null)] = Field(
        default="refuse",
        description="What becomes of `infinity` and `-infinity` in columns of type date, timestamp and timestamptz. "
        "`refuse`: they go into a PostgreSQL table as they are if there is no `transform`, and fail the run otherwise. "
        "`null`: they become null. `ends`: the last moment of the year 9999, and the first one of the year 1. In a "
        "cursor they fail the run",
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> "PostgresRows":
        if (self.table is None) == (self.query is None):
            raise ValueError("give either `table` or `query`")
        return self

    @property
    def origin(self) -> str | None:
        """Of which data a cursor is, as people say it: another server may have it by now."""
        what = "a query" if self.table is None else f"table {self.table.removeprefix('public.')}"
        return f"{what} in the database {parse(self.url).database}"

    @property
    def on_own_disk(self) -> bool:
        """Whether the rows are on the member's own disk, and so are others on another member."""
        return False

    def reach(self, field: str) -> Reach:
        """What `field` of the params names."""
        return Reach(field, "source", self.url, addresses=self.addresses())


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
        """Of which data a cursor is, as people say it."""
        return f"table {self.table} in {self.path}"

    @property
    def on_own_disk(self) -> bool:
        """Whether the rows are on the member's own disk, and so are others on another member."""
        return not self.shared

    def reach(self, field: str) -> Reach:
        """What `field` of the params names."""
        return Reach(field, "source", self.path, self.path, beside=True)


SourceParams = PostgresRows | SqliteRows | DeltaRows | FileRows | HttpRows
Source = Annotated[SourceParams, Field(discriminator="type")]


class Incremental(BaseModel):
    """What is new since the last batch. Give one of `cursor`, `xmin`, `versions` and `files`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cursor: ColumnName | None = Field(
        default=None,
        description="postgres, sqlite, http: the column that grows with each insert and update, such as updated_at. "
        "Rows where it is null are not read",
    )
    lag_s: float = Field(
        default=60,
        ge=0,
        le=864_000,
        description="Rows whose cursor, and files whose last change, is younger than this wait for a later batch, in "
        "seconds. A row is lost only if its transaction commits more than `lag_s` after the time in its cursor; a file "
        "only if it comes into its folder more than `lag_s` after its last change. 0 for a cursor that is no time, "
        "which trusts that rows are committed in the order of the cursor",
    )
    xmin: bool = Field(
        default=False,
        description="postgres: find new and updated rows by the transactions that wrote them, as PostgreSQL's xmin "
        "says: no row is lost, however late it is committed, and none comes twice. Reads the whole table for each "
        "batch, and waits for the oldest open transaction that writes",
    )
    batch_rows: int | None = Field(
        default=None,
        ge=1,
        description="postgres, sqlite: about how many rows a batch has, by the cursor; null: all that is new. A run "
        "goes on until it has read what was new. The cursor needs an index",
    )
    parameter: str | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        description="http: the query's parameter that takes the last batch's cursor, such as since; the API sends "
        "what is at or after it. null: it sends everything each time, and what is not new is left out",
    )
    versions: bool = Field(
        default=False,
        description="delta: the first batch has the rows of a version, and later ones what the versions after it bring",
    )
    batch_versions: int | None = Field(
        default=None, ge=1, description="delta: how many versions a batch has at most; null: all that are new"
    )

    files: bool = Field(
        default=False, description="files: read the files that were changed after those of the last batch"
    )

    @model_validator(mode="after")
    def _one_way(self) -> "Incremental":
        given = [name for name, value in self._ways().items() if value]
        if len(given) != 1:
            *most, last = (name if name == "cursor" else f"{name}: true" for name in self._ways())
            raise ValueError(f"give one of {', '.join(f'`{one}`' for one in most)} and `{last}`")
        for field, way in _NEEDS.items():
            if getattr(self, field) is not None and way != given[0]:
                raise ValueError(f"`{field}` needs `{way}`")
        return self

    def _ways(self) -> Mapping[str, bool]:
        given = {"xmin": self.xmin, "versions": self.versions, "files": self.files}
        return {"cursor": self.cursor is not None, **given}

    @property
    def way(self) -> str:
        """How what is new is found: the name of the one field that says it."""
        return next(name for name, given in self._ways().items() if given)


_NEEDS: Final[Mapping[str, str]] = {"batch_rows": "cursor", "parameter": "cursor", "batch_versions": "versions"}
"""Fields of `Incremental`, and the way of finding what is new to which each belongs."""

_WAYS: Final[Mapping[type[SourceParams], tuple[str, ...]]] = {
    PostgresRows: ("cursor", "xmin"),
    SqliteRows: ("cursor",),
    DeltaRows: ("versions",),
    FileRows: ("files",),
    HttpRows: ("cursor",),
}
"""In which ways what is new in a source can be found."""


def check_suits(source: SourceParams, how: Incremental | None) -> None:
    """Raise `ValueError` unless the source can be read as `how` says; None: whole."""
    ways = _WAYS[type(source)]
    if how is not None and how.way not in ways:
        raise ValueError(
            f"what is new in a source of type {source.type} is found by {' or '.join(f'`{way}`' for way in ways)}, and "
            f"not by `{how.way}`"
        )
    if isinstance(source, DeltaRows) and source.tombstone is not None and how is None:
        raise ValueError("`tombstone` is for what later versions bring: it needs `incremental: {versions: true}`")
    if how is not None and how.parameter is not None and not isinstance(source, HttpRows):
        raise ValueError("`parameter` is for a source of type http")
    if isinstance(source, FileRows) and source.ready is not None and how is not None:
        raise ValueError("`ready` is for files that are read whole: with `incremental`, a file waits for `lag_s`")
    if isinstance(source, HttpRows) and how is not None:
        _check_cursor(source, how)


def _check_cursor(source: HttpRows, how: Incremental) -> None:
    kind = source.columns.get(how.cursor or "")
    if kind is None or kind not in CURSOR_KINDS:
        said = "is not one of `columns`" if kind is None else f"is of type {kind}"
        raise ValueError(f"the cursor {how.cursor} {said}: a cursor is one of {', '.join(CURSOR_KINDS)}")
    if how.lag_s and not CURSOR_KINDS[kind]:
        raise ValueError(
            f"the cursor {how.cursor} is of type {kind}, which is no time: set `lag_s: 0`, which trusts that records "
            "are seen in the order of the cursor"
        )
    if how.batch_rows is not None:
        raise ValueError("`batch_rows` is for a source that is read in the order of its cursor, and not for http")
