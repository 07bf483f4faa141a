"""The params of the kind `etl`: which sources and sinks a task can name, and which params fit together."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

from spark_tasks.contracts.incremental import Incremental
from spark_tasks.delta.params import DeltaRows, DeltaTarget, ParquetTarget
from spark_tasks.etl.transform import Transform, ViewName
from spark_tasks.files.params import FileRows
from spark_tasks.http.params import CURSOR_KINDS, HttpRows
from spark_tasks.postgres.params import PostgresRows, PostgresTable
from spark_tasks.sqlite.params import SqliteRows, SqliteTable
from spark_tasks.webhook.params import Webhook
from tasks.definition.field_errors import raise_all

SourceParams = PostgresRows | SqliteRows | DeltaRows | FileRows | HttpRows
Source = Annotated[SourceParams, Field(discriminator="type")]

SinkParams = PostgresTable | SqliteTable | DeltaTarget | ParquetTarget | Webhook
Sink = Annotated[SinkParams, Field(discriminator="type")]

_WAYS: Final[Mapping[type[SourceParams], tuple[str, ...]]] = {
    PostgresRows: ("cursor", "xmin"),
    SqliteRows: ("cursor",),
    DeltaRows: ("versions",),
    FileRows: ("files",),
    HttpRows: ("cursor",),
}
"""The ways of finding new rows that each type of source supports."""


def check_suits(source: SourceParams, how: Incremental | None) -> None:
    """Raise `ValueError` unless new rows of the source can be found by `how`; None: the source is read whole."""
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


class EtlParams(BaseModel):
    """The source of the rows, their transform, and their sink."""

    model_config = ConfigDict(extra="forbid")

    source: Source = Field(description="Where the rows come from")
    incremental: Incremental | None = Field(
        default=None, description="Read only what is new since the last batch; null: each run reads the source whole"
    )
    poll_s: float | None = Field(
        default=None,
        ge=0.1,
        le=3600,
        description="A run does not end when nothing is new, but asks the source again after this long, in the same "
        "Spark session: a subscription. For tasks with `schedule: {continuous: true}`; null: a run ends",
    )
    lookups: dict[ViewName, Source] = Field(
        default={}, max_length=32, description="More sources, which are read whole for each batch, as views by name"
    )
    transform: Transform | None = Field(default=None, description="What is made of the rows; null: they stay the same")
    sink: Sink = Field(description="Where the rows go")

    @model_validator(mode="after")
    def _check_together(self) -> "EtlParams":
        raise_all("EtlParams", self._wrong_together())
        return self

    def _wrong_together(self) -> Iterator[str]:
        lookups = ((f"lookups.{name}: ", one, None) for name, one in self.lookups.items())
        for within, source, how in [("", self.source, self.incremental), *lookups]:
            try:
                check_suits(source, how)
            except ValueError as error:
                yield f"{within}{error}"
        if self.incremental is not None and self.sink.replaces:
            yield "`mode: replace` is for a source that is read whole: leave `incremental` out"
        if self.poll_s is not None and self.incremental is None:
            yield "`poll_s` needs `incremental`: without it each run reads its source whole"
