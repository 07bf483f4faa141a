"""One attempt at an ETL run: batch by batch, until all new rows are in the sink (`kind` describes the steps)."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from spark_tasks.contracts.batch_loop import become_holder, commit_batches
from spark_tasks.contracts.sink import About, CursorSink, DeliveringSink, Sink, SinkOvertaken, Visible
from spark_tasks.contracts.source import ExplainsErrors, Plan, RowSource
from spark_tasks.etl.continuing import kept, resume_cursor
from spark_tasks.etl.cursors import lag_text, now
from spark_tasks.etl.errors import BatchFailed, CursorUnfit, EtlStopped, SinkReplaced, failure
from spark_tasks.etl.params import EtlParams
from spark_tasks.etl.transform import transformed
from spark_tasks.spark.causes import is_sparks
from spark_tasks.spark.progress import followed, speed_text
from spark_tasks.table.ledger import Mark
from tasks.kind import Context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


STOP_CHECK_S: Final = 0.2
"""The time between two checks of whether an attempt that waits for new rows should stop."""


@dataclass
class EtlFigures:
    """The numbers of rows and batches that this attempt has committed."""

    rows: int = 0
    deleted: int = 0
    batches: int = 0


class EtlAttempt:
    """One attempt at an ETL run."""

    def __init__(
        self,
        ctx: Context[EtlParams],
        source: RowSource,
        lookups: Mapping[str, RowSource],
        sink: Sink,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.ctx = ctx
        self.source = source
        self.lookups = lookups
        self.sink = sink
        self.clock = clock
        self.sleep = sleep
        self.poll_s = ctx.params.poll_s
        self.figures = EtlFigures()
        self.last: Visible | None = None
        #: Whether the source had more new rows than the last batch could take.
        self._more = False

    def run(self, start_spark: "Callable[[], AbstractContextManager[SparkSession]]") -> None:
        """Commit the new rows. Spark is started only if there are any. Raises the errors that `kind` names."""
        try:
            self._see()
            self._check_promised()
            if isinstance(self.sink, DeliveringSink) and self.sink.undelivered():
                self._claim()
            if self._next() is None:
                self.ctx.log.info("nothing is new; the last batch in the sink is %d", self._number())
                return
            self._claim()
            with start_spark() as spark:
                self._run(spark)
            self._sweep()
        finally:
            self._release()

    def _run(self, spark: "SparkSession") -> None:
        def commit(plan: Plan) -> None:
            self._more = plan.more
            try:
                self._batch(spark, plan)
            finally:
                self._release()

        commit_batches(self._next(), commit, self._following, SinkOvertaken, self._read_again)

    def _read_again(self, overtaken: Exception) -> None:
        self.ctx.log.warning("%s: reading the sink again", overtaken)
        self._claim()
        self._more = True

    def _following(self) -> Plan | None:
        """Plan the next batch after a commit: at once if the source had more rows, else after waiting `poll_s` if that
        is set.
        """
        if not self._more:
            if self.poll_s is None:
                return None
            self._pause()
        return self._next()

    def _next(self) -> Plan | None:
        """Plan the next batch. With `poll_s`, waits until there is one; else None if all rows are in the sink."""
        while (plan := self._plan()) is None and self.poll_s is not None:
            self._release()
            self._pause()
        return plan

    def _pause(self) -> None:
        """Wait for `poll_s`, or until the attempt is asked to stop."""
        until_s = self.clock() + (self.poll_s or 0)
        while (left_s := until_s - self.clock()) > 0 and not self.ctx.cancelled:
            self.sleep(min(left_s, STOP_CHECK_S))

    def _see(self) -> None:
        self.last = self.sink.last()

    def _check_promised(self) -> None:
        """Raise `SinkReplaced` if the sink lacks a batch that the run's last checkpoint says is in it."""
        promised, there = self._promised(), self._number()
        if promised > there:
            raise SinkReplaced(
                f"this run has committed batch {promised}, but the last batch in the sink is {there}: it was restored "
                "or replaced. To go on with the sink as it is, start a new run"
            )

    def _promised(self) -> int:
        return int(self.ctx.checkpoint.get("batch", 0)) if isinstance(self.ctx.checkpoint, dict) else 0

    def _plan(self) -> Plan | None:
        """Plan the next batch. Returns None if all rows are in the sink."""
        if self.ctx.cancelled:
            raise EtlStopped(f"asked to stop; {self.figures.batches} batches were committed")
        # A run that reads its source whole is one batch: an earlier attempt may have committed it, and then died.
        if self.ctx.params.incremental is None and self.sink.has_run(self.ctx.run_id):
            return None
        last = None if self.last is None else self.last.cursor
        return self.source.plan(resume_cursor(self.ctx.params, self.ctx.task, last))

    def _claim(self) -> None:
        """Become the sink's holder, and read which batch is its last. Raises `Fenced` if the run was taken over.

        The checkpoint makes sure that this attempt's own token is current. Then a greater token in the sink is from an
        abandoned cluster, because a new cluster counts from 1 again.
        """
        self._release()  # a batch that was planned before is out of date: another attempt may have committed since
        become_holder(self.ctx.token, self.sink.holder, lambda _: self._save(None), self.sink.claim)
        self._sweep()
        self._deliver()
        self._see()

    def _number(self) -> int:
        return 0 if self.last is None else self.last.mark.batch

    def _save(self, plan: dict[str, Any] | None) -> None:
        """Commit a checkpoint with the last visible batch and the plan of the next one. Raises `Fenced`."""
        self.ctx.save_checkpoint({"batch": max(self._promised(), self._number()), "plan": plan})

    def _batch(self, spark: "SparkSession", plan: Plan) -> None:
        mark, began_s = Mark(self._number() + 1, self.ctx.token), self.clock()
        others = {name: source.plan(None) for name, source in self.lookups.items()}
        self._save({"batch": mark.batch, "reaches": plan.reaches, **plan.about})
        self.ctx.log.info("batch %d is planned: %s", mark.batch, plan.about)
        try:
            views = {name: self.lookups[name].load(spark, one) for name, one in others.items() if one is not None}
            rows = transformed(self.ctx.params.transform, self.source.load(spark, plan), views)
            with followed(spark, lambda text: self._progress(f"batch {mark.batch}: {text}")):
                written = self.sink.write(rows, mark)
        except Exception as error:
            if self.ctx.cancelled:
                raise EtlStopped("asked to stop") from None
            if (holder := self.sink.holder()) != self.ctx.token:
                # The other attempt has swept the rows that this one had staged, which is why it failed.
                raise SinkOvertaken(f"the attempt with token {holder}, not {mark.token}, holds the sink") from None
            if not is_sparks(error):
                raise
            raise self._explained(error) or _of_batch(failure(error), mark) from None
        self.ctx.log.info("batch %d: %d rows are staged", mark.batch, written.rows)
        if self.ctx.cancelled:
            raise EtlStopped("asked to stop")
        about = About(self.ctx.run_id, kept(self.ctx.params, plan.reaches))
        done = self.sink.commit(mark, written, about)
        self.ctx.log.info(
            "batch %d is committed: %d rows, %d deleted%s; %s%s",
            mark.batch,
            done.rows,
            done.deleted,
            f", of {plan.about['rows']} read" if "rows" in plan.about else "",
            speed_text(written.rows, self.clock() - began_s),
            lag_text(plan.reaches, now()),
        )
        self.last = Visible(mark, about.run_id, about.cursor)
        self.figures.rows += done.rows
        self.figures.deleted += done.deleted
        self.figures.batches += 1
        self._save(None)
        self._deliver()
        self._progress()

    def _progress(self, inside: str = "") -> None:
        """Report how many rows are committed, and the progress of the present batch."""
        self.ctx.progress(self.figures.rows, None, f"rows; {inside}" if inside else "rows")

    def reset(self, cursor: dict[str, Any] | None) -> None:
        """Commit a batch without rows that has this cursor: the next run starts from there.

        The batch is numbered and fenced as every batch is. Raises `CursorUnfit`, `SinkOvertaken`, and the errors that
        `kind` names.
        """
        if not isinstance(self.sink, CursorSink):
            raise CursorUnfit("this sink cannot set its cursor")
        self._claim()
        mark = Mark(self._number() + 1, self.ctx.token)
        about = About(self.ctx.run_id, kept(self.ctx.params, cursor))
        self.sink.move(mark, about)
        self.last = Visible(mark, about.run_id, about.cursor)

    def _deliver(self) -> None:
        """Deliver the last batch if the sink is a `DeliveringSink`. Raises `EtlStopped` if asked to stop meanwhile."""
        if isinstance(self.sink, DeliveringSink) and not self.sink.deliver():
            raise EtlStopped("asked to stop; the next attempt delivers the rest of the last batch")

    def _explained(self, error: Exception) -> Exception | None:
        """Return the error with which a source explains this error of Spark; None if no source explains it."""
        asked = (one for one in (self.source, *self.lookups.values()) if isinstance(one, ExplainsErrors))
        return next((why for one in asked if (why := one.explained(error)) is not None), None)

    def _sweep(self) -> None:
        for name in self.sink.sweep():
            self.ctx.log.info("removed %s, which an attempt had written and not committed", name)

    def _release(self) -> None:
        for source in (self.source, *self.lookups.values()):
            source.release()


def _of_batch(error: BatchFailed, mark: Mark) -> BatchFailed:
    return type(error)(f"batch {mark.batch}: {error}")
