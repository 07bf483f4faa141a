"""The protocol of sources, and `last_rows`, which picks one of several rows with the same keys."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from spark_tasks.sql.names import quoted
from tasks.kind import Unretryable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


Cursor = dict[str, Any]
"""How far a source has been read (JSON). Only the source that made it understands it."""


class SourceUnfit(Unretryable):
    """The source cannot be read as the task says."""


class SourceReplaced(Unretryable):
    """The source is not the one that the sink's last batch was read from, or was restored to an earlier state."""


@dataclass(frozen=True)
class Plan:
    """A batch that has not been read yet. `reaches` is the cursor after the batch; None if the source is read whole.

    `about` is for people and for the checkpoint (JSON), such as the snapshot, the range, and the number of `rows`.
    `more` says that there are more new rows than one batch may have: the run goes on with another batch. Otherwise it
    ends, even if rows have come meanwhile, because at a source that always changes it would never end.
    """

    reaches: Cursor | None
    about: dict[str, Any] = field(default_factory=dict)
    more: bool = False


class RowSource(Protocol):
    """Rows that come in batches, each planned before it is read."""

    def plan(self, after: Cursor | None) -> Plan | None:
        """The plan of the next batch after the cursor; None if nothing is new. A source read whole always has one."""

    def load(self, spark: "SparkSession", plan: Plan) -> "DataFrame":
        """The rows of the plan, without any change that was made after the plan."""

    def release(self) -> None:
        """Release the plan's resources, such as snapshots. Its rows cannot be read any more."""


@runtime_checkable
class ExplainsErrors(Protocol):
    """A source that can give the reason for some of Spark's errors."""

    def explained(self, error: Exception) -> Exception | None:
        """The error to raise instead of `error`; None if `error` is not about this source."""


_PLACE = "_rota_place"


def last_rows(rows: "DataFrame", keys: Sequence[str], order: "Sequence[Column]", *, ties: bool) -> "DataFrame":
    """The first row in `order` for each value of `keys`; with `ties` all rows that share the first place."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    by = Window.partitionBy(*(f.col(quoted(key)) for key in keys)).orderBy(*order)
    place = f.rank() if ties else f.row_number()
    return rows.withColumn(_PLACE, place.over(by)).filter(f.col(_PLACE) == 1).drop(_PLACE)
