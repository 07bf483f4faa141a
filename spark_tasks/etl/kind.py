"""The kind `etl`: source, transform, sink, in batches that each count once.

The steps of a batch: (1) The source plans it (a range and a snapshot). (2) A checkpoint records the plan, and raises
`Fenced` if the run has been taken over. (3) Spark reads and transforms the rows, and writes them where no reader sees
them. (4) The sink commits the rows together with the batch's number, token and cursor; it refuses if another attempt
has committed the batch or holds the sink. (5) A checkpoint records the visible batch.

Every attempt starts by reading the last batch and cursor from the sink, so a crash between any two steps neither loses
nor duplicates a row. The sink decides which batches count; the checkpoint only serves to check that the sink was not
replaced.
"""

import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

from spark_tasks.contracts.source import SourceReplaced
from spark_tasks.etl import parts
from spark_tasks.etl.continuing import kept_cursor, resume_cursor
from spark_tasks.etl.cursors import ResetArgs, ShowArgs, cursor_at, lag_s, now
from spark_tasks.etl.datasets import datasets_of_etl
from spark_tasks.etl.params import EtlParams
from spark_tasks.etl.transform import SOURCE
from spark_tasks.spark.exchange import sweep_exchange
from spark_tasks.spark.sample import PreviewArgs
from spark_tasks.spark.session import AT_ONCE, ENVIRONMENT, prepare, session_of
from spark_tasks.spark.tools import SPARK_TOOLS
from tasks.datasets import Datasets
from tasks.kind import Context
from tasks.needs import Needs
from tasks.reach import Reach

if TYPE_CHECKING:
    from spark_tasks.contracts.sink import Visible

RESULT = {
    "rows": "the number of rows that this attempt has put into the sink",
    "deleted": "the number of rows that it has deleted there by their tombstones",
    "batches": "the number of batches that it has committed",
    "cursor": "how far the source has been read; null if it is read whole",
    "lag_s": "by how much the cursor is behind the clock, in seconds; null if it is no time with an offset",
    "seconds": "how long the attempt took",
}
"""The fields of a run's result, for the reference."""


SHOWN = {
    "batch": "the number of the last batch in the sink; 0: there is none",
    "token": "the fencing token of the attempt that committed it",
    "run_id": "the run that committed it",
    "cursor": "how far the source has been read; null: from its beginning",
    "lag_s": "by how much the cursor is behind the clock, in seconds; null if it is no time with an offset",
    "next": "what the next batch would read; `{whole: true}`: each run reads the source whole; `{refused: why}`: the "
    "next run would fail, since it has another source than the cursor; null: nothing is new",
}
"""The fields that `rota etl show` prints, for the reference."""


class Etl:
    """Reads rows from a source, transforms them with Spark and writes them to a sink, each batch once."""

    Params = EtlParams
    requires = ("pyspark", "pyarrow", "deltalake", "adbc_driver_postgresql")
    environment = ENVIRONMENT
    prepare = staticmethod(prepare)
    prepare_tools = (SPARK_TOOLS,)
    at_once = AT_ONCE
    one_at_a_time = True

    @staticmethod
    def no_backfill(params: EtlParams) -> str:
        """Say what to do instead of runs for past times, if each run goes on where the one before it ended."""
        if params.incremental is None:
            return ""
        return (
            "it is incremental: each run goes on where the one before it ended, whatever time it is for. Instead, set "
            "its cursor back (rota etl reset TASK --to CURSOR): the next run reads all that came since"
        )

    @staticmethod
    def local_data(params: EtlParams) -> list[str]:
        """Return the params that name data on the member's own disk (`tasks.kind.Kind`)."""
        return parts.on_own_disk(params)

    @staticmethod
    def reaches(params: EtlParams, task: str) -> list[Reach]:
        """Return the servers and files that the params of `task` name (`tasks.kind.Kind`)."""
        return parts.reaches(params)

    @staticmethod
    def datasets(params: EtlParams, task: str) -> Datasets:
        """Return the datasets that the params name (`tasks.kind.Kind`)."""
        return datasets_of_etl(params)

    @staticmethod
    def needs(params: EtlParams, task: str) -> Needs:
        """Return the needs of an attempt: paths, servers, tools and credentials (`tasks.kind.Kind`)."""
        return Needs(
            reaches=(*parts.reaches(params), *parts.certificates(params)),
            tools=(SPARK_TOOLS,),
            own_credentials=parts.own_credentials(params),
        )

    actions: ClassVar[Mapping[str, type[BaseModel]]] = {"preview": PreviewArgs, "show": ShowArgs, "reset": ResetArgs}

    def preview(self, ctx: Context[EtlParams], args: PreviewArgs) -> dict[str, Any]:
        """Return the first transformed rows, and Spark's plan (`sample.RESULT`). Nothing is written."""
        from spark_tasks.etl.previewing import preview_transformed

        return preview_transformed(ctx, args.rows, lambda: session_of(ctx))

    def show(self, ctx: Context[EtlParams], args: ShowArgs) -> dict[str, Any]:
        """Return the task's last batch in the sink, its cursor, and a description of the next batch.

        Raises the errors of sources and sinks. If the source is not the one that the cursor belongs to, the field
        `next` says so instead.
        """
        source, sink = parts.sources_of(ctx)[SOURCE], parts.sink_of(ctx)
        last = sink.last()
        following: dict[str, Any] | None
        try:
            cursor = resume_cursor(ctx.params, ctx.task, None if last is None else last.cursor)
            if ctx.params.incremental is None:
                following = {"whole": True}
            else:
                plan = source.plan(cursor)
                following = None if plan is None else plan.about
        except SourceReplaced as error:
            following = {"refused": str(error)}
        finally:
            source.release()
        return _standing(last) | {"next": following}

    def reset(self, ctx: Context[EtlParams], args: ResetArgs) -> dict[str, Any]:
        """Set the cursor in the sink. A run in progress continues from there, too.

        Raises `CursorUnfit`, `SinkOvertaken`, and the errors of sources and sinks. A cursor that the source cannot
        interpret is refused, and the sink keeps its present cursor.
        """
        from spark_tasks.etl.attempt import EtlAttempt

        cursor = cursor_at(ctx.params, args.to)
        source = parts.sources_of(ctx)[SOURCE]
        try:
            source.plan(cursor)
        finally:
            source.release()
        attempt = EtlAttempt(ctx, source, {}, parts.sink_of(ctx))
        attempt.reset(cursor)
        return _standing(attempt.last)

    def run(self, ctx: Context[EtlParams]) -> dict[str, Any]:
        """Commit the new rows of the source. Result: rows, deleted rows and batches of this attempt, and the cursor.

        Raises `AccessRefused`, `BatchFailed`, `BatchUnfit`, `EtlStopped`, `Fenced`, `MissingSecret`, `SinkReplaced`,
        and the errors of the source, the sink, `transform`, `postgres.session` and `java`.
        """
        from spark_tasks.etl.attempt import EtlAttempt

        began_s = time.monotonic()
        sweep_exchange(os.environ, ctx.task, ctx.token)
        sources = parts.sources_of(ctx)
        attempt = EtlAttempt(ctx, sources.pop(SOURCE), sources, parts.sink_of(ctx))
        attempt.run(lambda: session_of(ctx))
        cursor = None if attempt.last is None else kept_cursor(attempt.last.cursor)
        return {
            "rows": attempt.figures.rows,
            "deleted": attempt.figures.deleted,
            "batches": attempt.figures.batches,
            "cursor": cursor,
            "lag_s": lag_s(cursor, now()),
            "seconds": round(time.monotonic() - began_s, 3),
        }


def _standing(last: "Visible | None") -> dict[str, Any]:
    cursor = None if last is None else kept_cursor(last.cursor)
    return {
        "batch": 0 if last is None else last.mark.batch,
        "token": None if last is None else last.mark.token,
        "run_id": None if last is None else last.run_id,
        "cursor": cursor,
        "lag_s": lag_s(cursor, now()),
    }
