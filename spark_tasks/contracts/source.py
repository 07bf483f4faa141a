"""The protocol of sources, and `last_rows`, which picks one of several rows with the same keys."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from spark_tasks.sql.names import quoted
from tasks.kind import Unretryable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


Cursor = dict[str, Any]
"""How far a source has been read (JSON). Only the source that made a cursor can interpret it."""


class SourceUnfit(Unretryable):
    """The source cannot be read with the settings of the task."""


class SourceReplaced(Unretryable):
    """The source is not the one that the sink's last batch was read from, or was restored to an earlier state."""


@dataclass(frozen=True)
class Plan:
    """A batch that has not been read yet. `reaches` is the cursor after the batch; None if the source is read whole.

    `about` (JSON) describes the batch for users and in the checkpoint, for example its snapshot, its range and its
    number of `rows`. `more`: there are more new rows than one batch may have, so the run continues with another batch.
    Otherwise the run ends, even if rows have arrived meanwhile, because with a source that always changes it would
    never end.
    """

    reaches: Cursor | None
    about: dict[str, Any] = field(default_factory=dict)
    more: bool = False


class RowSource(Protocol):
    """Rows that come in batches, each planned before it is read."""

    def plan(self, after: Cursor | None) -> Plan | None:
        """Plan the next batch after the cursor. Returns None if no rows are new; a source that is read whole always has
        a plan.
        """

    def load(self, spark: "SparkSession", plan: Plan) -> "DataFrame":
        """Return the rows of the plan, without any change that was made after the plan."""

    def release(self) -> None:
        """Release the plan's resources, such as snapshots. Its rows cannot be read any more."""


@runtime_checkable
class ExplainsErrors(Protocol):
    """A source that can give the reason for some of Spark's errors."""

    def explained(self, error: Exception) -> Exception | None:
        """Return the error to raise instead of `error`; None if `error` is not about this source."""


_PLACE = "_rota_place"


def last_rows(rows: "DataFrame", keys: Sequence[str], order: "Sequence[Column]", *, ties: bool) -> "DataFrame":
    """Return the first row in `order` for each value of `keys`; with `ties`, all rows that share the first place."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    by = Window.partitionBy(*(f.col(quoted(key)) for key in keys)).orderBy(*order)
    place = f.rank() if ties else f.row_number()
    return rows.withColumn(_PLACE, place.over(by)).filter(f.col(_PLACE) == 1).drop(_PLACE)
