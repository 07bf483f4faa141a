"""The protocol of sinks, and the params of sinks whose rows have keys."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, runtime_checkable

from pydantic import BaseModel, Field, model_validator

from spark_tasks.contracts.names import ColumnName
from spark_tasks.table.ledger import Mark
from tasks.kind import Away, Unretryable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class SinkOvertaken(Exception):
    """Another attempt has committed this batch, or holds the sink now. The sink has no row of this attempt's batch."""


class SinkUnfit(Unretryable):
    """The sink cannot write these rows with the settings of the task."""


class SinkAway(Away):
    """The sink cannot be reached or written now: it is locked, full, overloaded or silent. Try again later."""


@dataclass(frozen=True)
class Visible:
    """The last batch in a sink: its mark (batch number and token), the run that committed it, and the cursor that was
    stored with it (JSON).
    """

    mark: Mark
    run_id: str
    cursor: dict[str, Any] | None


@dataclass(frozen=True)
class About:
    """The values that a commit stores beside the batch's mark."""

    run_id: str
    cursor: dict[str, Any] | None


@dataclass(frozen=True)
class Staged:
    """Rows that are written, but not visible yet. `parts` has one value from each writer, for the sink's own
    `commit`.
    """

    rows: int
    parts: tuple[Any, ...]


@dataclass(frozen=True)
class Committed:
    """The number of rows that a batch wrote to the sink, and the number of rows that its tombstones deleted there."""

    rows: int
    deleted: int


class Sink(Protocol):
    """Receives batches. All rows of a batch become visible at once, and only once. Batches are numbered from 1."""

    def last(self) -> Visible | None:
        """Return the last visible batch; None if no batch is visible."""

    def has_run(self, run_id: str) -> bool:
        """Whether a batch of that run is visible."""

    def holder(self) -> int | None:
        """Return the token of the attempt that holds the sink for this task."""

    def claim(self, token: int, instead_of: int | None) -> bool:
        """Make the attempt with `token` the holder in place of `instead_of`. Returns False if another attempt is the
        holder.
        """

    def write(self, rows: "DataFrame", mark: Mark) -> Staged:
        """Write the batch's rows where they are not visible."""

    def commit(self, mark: Mark, written: Staged, about: About) -> Committed:
        """Make the batch visible in one transaction. If it raises `SinkOvertaken`, no row of the batch is visible."""

    def sweep(self) -> list[str]:
        """Remove files or tables that can never be committed, and return their names."""


@runtime_checkable
class CursorSink(Sink, Protocol):
    """A sink whose cursor can be set without rows."""

    def move(self, mark: Mark, about: About) -> None:
        """Commit a batch without rows, with the cursor of `about`. Raises `SinkOvertaken`."""


@runtime_checkable
class DeliveringSink(Protocol):
    """A sink that sends committed batches on to a receiver that takes part in no transaction."""

    def undelivered(self) -> bool:
        """Whether some part of a committed batch is still not acknowledged by the receiver."""

    def deliver(self) -> bool:
        """Send the requests that were not acknowledged. Returns False if asked to stop before the end.

        This attempt has to be the holder: raises `SinkOvertaken` if another attempt holds the sink now.
        """


def is_in(mark: Mark, last: Visible | None, holder: int | None, target: str) -> bool:
    """Return True if this attempt has committed the batch already, False if the batch is the next one and may be
    committed.

    `last` and `holder` must be read in the sink's transaction. Raises `SinkOvertaken`, and `SinkUnfit` if an earlier
    batch is missing.

    >>> is_in(Mark(2, 7), Visible(Mark(1, 5), "run", None), 7, "t")
    False
    >>> is_in(Mark(2, 7), Visible(Mark(2, 7), "run", None), 7, "t")
    True
    """
    if last is not None and last.mark == mark:
        return True
    if last is not None and last.mark.batch >= mark.batch:
        raise SinkOvertaken(
            f"the attempt with token {last.mark.token}, not {mark.token}, has committed batch {mark.batch} to {target}"
        )
    if holder != mark.token:
        raise SinkOvertaken(f"the attempt with token {holder}, not {mark.token}, holds {target}")
    due = 1 if last is None else last.mark.batch + 1
    if mark.batch != due:
        raise SinkUnfit(f"the ledger of {target} lacks batches {due} to {mark.batch - 1}: it was restored")
    return False


class KeyedRows(BaseModel):
    """How a batch's rows are written to a table of a database."""

    mode: Literal["append", "upsert", "replace"] = Field(
        description="`append` inserts the rows. `upsert` inserts those whose keys are new and updates the others. "
        "`replace` puts the rows in place of all that was in the table"
    )
    keys: list[ColumnName] = Field(
        default=[],
        max_length=32,
        description="The columns that name a row, for `upsert`. The table must have a unique index on them",
    )
    tombstone: ColumnName | None = Field(
        default=None,
        description="With `upsert`: rows in which this column is true, or is of another type and not null, are deleted "
        "by their keys. The column itself is not written",
    )

    @model_validator(mode="after")
    def _keys_for_upserts(self) -> Self:
        if (self.mode == "upsert") != bool(self.keys):
            raise ValueError("`keys` are needed for `mode: upsert`, and for no other mode")
        if self.tombstone is not None and self.mode != "upsert":
            raise ValueError("`tombstone` needs `mode: upsert`")
        return self

    @property
    def replaces(self) -> bool:
        """Whether a batch replaces all earlier rows, so that the source has to be read whole."""
        return self.mode == "replace"

    @property
    def adds(self) -> bool:
        """Whether a row that is written twice is in the table twice."""
        return self.mode == "append"
