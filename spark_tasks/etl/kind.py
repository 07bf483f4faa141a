"""The kind `etl`: source, transform, sink, in batches that each count once.

The steps of a batch: the source plans it (a range and a snapshot); a checkpoint says what is planned, and raises
`Fenced` if the run has been taken over; Spark reads, transforms and writes where nobody sees it; the sink commits the
rows together with the batch's number, token and cursor, and refuses if another attempt has committed the batch or holds
the sink; a checkpoint says what is visible. Every attempt starts by asking the sink for its last batch and cursor, so a
crash between any two steps neither loses nor doubles a row. The sink decides; the checkpoint is only a check of it.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from spark_tasks.etl import parts
from spark_tasks.etl.params import EtlParams
from spark_tasks.spark.session import AT_ONCE, ENVIRONMENT, prepare, spark_session
from spark_tasks.spark.stopping import stopping
from spark_tasks.transform.params import SOURCE
from tasks.kind import Context
from tasks.reach import Reach

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESULT = {
    "rows": "the number of rows that this attempt has put into the sink",
    "deleted": "the number of rows that it has deleted there by their tombstones",
    "batches": "the number of batches that it has committed",
    "cursor": "how far the source has been read; null if it is read whole",
    "seconds": "how long the attempt took",
}
"""The fields of a run's result, for the reference."""


class Etl:
    """Reads rows from a source, transforms them with Spark and writes them to a sink, each batch once."""

    Params = EtlParams
    requires = ("pyspark", "pyarrow", "adbc_driver_postgresql")
    environment = ENVIRONMENT
    prepare = staticmethod(prepare)
    at_once = AT_ONCE

    @staticmethod
    def local_data(params: EtlParams) -> list[str]:
        """The params that name data on the member's own disk (`tasks.kind.Kind`)."""
        return parts.on_own_disk(params)

    @staticmethod
    def reaches(params: EtlParams, task: str) -> list[Reach]:
        """The servers and files that the params of `task` name (`tasks.kind.Kind`)."""
        return parts.reaches(params)

    def run(self, ctx: Context[EtlParams]) -> dict[str, Any]:
        """Commit what is new in the source. Result: rows, deleted rows and batches of this attempt, and the cursor.

        Raises `AccessRefused`, `BatchFailed`, `BatchUnfit`, `EtlStopped`, `Fenced`, `MissingSecret`, `SinkReplaced`,
        and what `sources`, `sinks`, `transform`, `postgres.session` and `java` name.
        """
        from spark_tasks.etl.attempt import EtlAttempt

        began_s = time.monotonic()
        sources = parts.sources_of(ctx)
        attempt = EtlAttempt(ctx, sources.pop(SOURCE), sources, parts.sink_of(ctx))
        attempt.run(lambda: _spark(ctx))
        return {
            "rows": attempt.figures.rows,
            "deleted": attempt.figures.deleted,
            "batches": attempt.figures.batches,
            "cursor": None if attempt.last is None else attempt.last.cursor,
            "seconds": round(time.monotonic() - began_s, 3),
        }


@contextmanager
def _spark(ctx: Context[EtlParams]) -> "Iterator[SparkSession]":
    with spark_session(f"{ctx.task} {ctx.run_id}", ctx.scratch) as spark, stopping(ctx, spark):
        yield spark
