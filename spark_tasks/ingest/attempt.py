"""One attempt at an ingest: plans the batches, and ingests them one after another (`kind` has the order of steps)."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_tasks.files.batching import batches
from spark_tasks.files.columns import evolve, loads_columns, settle
from spark_tasks.files.disks import check_same, disks_of
from spark_tasks.files.evolving import widened
from spark_tasks.files.faults import BadFile, MalformedRows, explained
from spark_tasks.files.layouts import Layout
from spark_tasks.files.listing import (
    Source,
    SourceChanged,
    canonical,
    check_allowed,
    check_globs,
    listing,
    new_and_changed,
)
from spark_tasks.files.malformed import first_bad
from spark_tasks.files.reading import check_fields, layouts_of
from spark_tasks.files.ready import complete
from spark_tasks.files.staging import check_unchanged, staged
from spark_tasks.files.text_checks import check_text
from spark_tasks.ingest.errors import FilesRefused, FilesUnfit, IngestFailed, IngestStopped
from spark_tasks.ingest.figures import Figures
from spark_tasks.ingest.params import IngestParams
from spark_tasks.ingest.planned import again, planned
from spark_tasks.ingest.reachable import check_reachable
from spark_tasks.ingest.standing import check_hint
from spark_tasks.ingest.widening import rewritten
from spark_tasks.ingest.writing import BatchWriter, Counts, check_counts
from spark_tasks.spark.causes import cause, is_sparks
from spark_tasks.spark.exchange import exchange_folder
from spark_tasks.spark.progress import followed, speed_text
from spark_tasks.spark.session import is_local_master, spark_session
from spark_tasks.spark.stopping import stopping
from spark_tasks.storage.errors import store_errors
from spark_tasks.table.ledger import Mark, Page, quarantine_of
from tasks.file_guard import FileGuard
from tasks.kind import Context, Fenced, Unretryable
from tasks.source_identity import Facts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from spark_tasks.table.delta import Table
    from spark_tasks.table.part import Part
    from spark_tasks.table.quarantine import Quarantine
    from spark_tasks.table.writing import Write

REFUSED_LISTED = 5
"""The most refused files that a run's error describes. Its log describes all of them."""


class IngestAttempt:
    """One attempt, batch by batch. `open_quarantine` is called once there are rows for it."""

    def __init__(self, ctx: Context[IngestParams], table: "Table", open_quarantine: "Callable[[], Quarantine]") -> None:
        self.ctx = ctx
        self.table = table
        self.open_quarantine = open_quarantine
        self.quarantine: Quarantine | None = None
        self.figures = Figures()
        self.last: Mark | None = None
        self.version: int | None = None
        self.refused: dict[str, Exception] = {}
        self.waiting = self.total = 0
        self.disks: dict[str, Facts] = {}
        self.write: Write | None = None
        before = ctx.checkpoint.get("intent") if isinstance(ctx.checkpoint, dict) else None
        self.written: int | None = before

    def plan(self) -> list[tuple[Source, ...]]:
        """Read the table's log and list the sources; the new files, in batches."""
        ctx, self.figures, taken = self.ctx, Figures(), dict[str, int]()
        self.table.sync_log()
        self.last, self.version = self.table.last(), self.table.version()
        globs = [ctx.params.source] if isinstance(ctx.params.source, str) else ctx.params.source
        check_globs(globs, ctx.access)
        self.disks = disks_of(globs, ctx.node)
        if isinstance(ctx.checkpoint, dict):
            self._check_disks(ctx.checkpoint.get("disks"), "what this run has committed to the table")
        newest = next(self.table.ledger.pages(self.last), None)
        if newest is not None:
            self._check_disks(newest.disks, f"batch {newest.mark.batch} of the table")
        pages = list(self.table.ledger.pages(self.last))
        for page in reversed(pages):
            self._quarantine(page)  # an attempt may have been killed between its commit and this
        for page in pages:
            # Earlier versions wrote a path as its glob spelled it.
            taken.update((canonical(path), size_bytes) for path, size_bytes in page.files)
            if page.run_id == ctx.run_id:
                self.figures.add(page)
        check_hint(ctx.checkpoint, self.table, self.last, self.version)
        found = listing(globs, ctx.access)
        if not found:
            ctx.log.warning("no file matches %s", ", ".join(globs))
        fresh = new_and_changed(found, taken)
        _handle_changed(ctx, [source.path for source in fresh.changed])
        ready = complete(fresh.new, ctx.params.ready, time.time())
        self.waiting = len(fresh.new) - len(ready)
        standing = self.last.batch if self.last else 0
        ctx.log.info("%d files, %d of them new; last batch in the table: %d", len(found), len(fresh.new), standing)
        if self.waiting:
            ctx.log.info("%d new files are not complete yet, and wait", self.waiting)
        return batches(ready, ctx.params.batch_files, ctx.params.batch_bytes)

    def _check_disks(self, before: Any, whence: str) -> None:
        check_same(before, self.disks, self.ctx.params.accept_source, self.ctx.node, whence)

    def run(self, work: list[tuple[Source, ...]]) -> None:
        """Ingest all batches of `work`."""
        from spark_tasks.table.delta import Overtaken

        self._claim(first=True)
        with spark_session(f"{self.ctx.task} {self.ctx.run_id}", self.ctx.scratch) as spark, stopping(self.ctx, spark):
            while work:
                try:
                    self._ingest_all(spark, work)
                    break
                except Overtaken as error:
                    self.ctx.log.warning("%s: reading the table again", error)
                    work = self.plan()
                    self._save()
                    self._claim(first=False)
        self._raise_refused()

    def _raise_refused(self) -> None:
        if not self.refused:
            return
        whys = list(self.refused.values())
        listed = "; ".join(map(str, whys[:REFUSED_LISTED])) + ("; ..." if len(whys) > REFUSED_LISTED else "")
        final = all(isinstance(why, Unretryable) for why in whys)
        raise (FilesUnfit if final else FilesRefused)(
            f"{len(whys)} of {len(whys) + self.figures.files} files were not ingested, the others were: {listed}"
        )

    def _claim(self, *, first: bool) -> None:
        """Make this attempt the holder of the table, if there is a table. Raises `Fenced` if the run was taken over.

        If the attempt's own token is current, a greater token that it finds at its beginning is from an abandoned
        cluster: a new cluster counts from 1 again. One that it finds later is from another run of the task.
        """
        token = self.ctx.token
        while self.version is not None and (holder := self.table.holder()) != token:
            self._save()
            if holder is not None and holder > token and not first:
                raise Fenced(f"another run of {self.ctx.task}, with token {holder}, holds {self.table.shown}")
            self.table.claim(token, instead_of=holder)
            self.version = self.table.version()

    def _ingest_all(self, spark: "SparkSession", work: list[tuple[Source, ...]]) -> None:
        self.total = total = self.figures.files + sum(map(len, work))
        self._progress()
        schema: StructType | None = None
        for batch in work:
            rest = tuple(source for source in batch if source.path not in self.refused)
            while rest:
                if self.ctx.cancelled:
                    raise IngestStopped(f"asked to stop; {self.figures.files} of {total} files were ingested")
                try:
                    schema = self._ingest(spark, schema, rest)
                    break
                except BadFile as bad:
                    if bad.path not in {source.path for source in rest}:
                        raise bad.why from None  # leaving it out would change nothing
                    self.ctx.log.error("left out: %s", bad.why)  # noqa: TRY400 - the message names the file
                    self.refused[bad.path] = bad.why
                    rest = tuple(source for source in rest if source.path != bad.path)
            self._progress()

    def _progress(self, inside: str = "") -> None:
        """Say how many files are in the table, and how far the present batch is."""
        self.ctx.progress(self.figures.files, self.total, f"files; {inside}" if inside else "files")

    def _ingest(self, spark: "SparkSession", schema: "StructType | None", batch: tuple[Source, ...]) -> "StructType":
        mark, began_s = Mark(1 if self.last is None else self.last.batch + 1, self.ctx.token), time.monotonic()
        check_allowed(batch, self.ctx.access)
        plan = planned(mark.batch, batch)
        self._save(plan)
        said = again(self.ctx.checkpoint, plan)
        self.ctx.log.info("batch %d is planned: %d files, %d bytes%s", mark.batch, len(batch), plan["bytes"], said)
        # A Spark on other machines can open files only by their own paths.
        pins = FileGuard(self.ctx.access, "source") if is_local_master(os.environ) else None
        folder = exchange_folder(os.environ, self.ctx.scratch, self.ctx.task, self.ctx.token)
        with staged(batch, folder / "fetched" / mark.name, pins) as places:
            try:
                if pins is None:
                    check_reachable(spark, self.table, mark, places)
                check_text(self.ctx.params, places)
                found = layouts_of(spark, self.ctx.params, places)
                schema = self._columns(spark, schema, places, found)
                check_fields(spark, self.ctx.params, schema, places, found)
                with followed(spark, lambda text: self._progress(f"batch {mark.batch}: {text}")):
                    parts, counts = self._write(spark, schema, places, found, mark)
                replaced, widened_parts = self._widened(spark, schema, mark)
            except BadFile:
                raise
            except Exception as error:
                if self.ctx.cancelled:
                    raise IngestStopped("asked to stop") from error
                better = self._explained(spark, schema, error, places)
                if better is None and not is_sparks(error):
                    raise
                raise better or IngestFailed(f"batch {mark.batch}: {cause(str(error)).said}") from None
            check_unchanged(places)
        if self.ctx.cancelled:
            raise IngestStopped("asked to stop")
        page = Page(
            mark=mark,
            previous=self.last,
            run_id=self.ctx.run_id,
            rows=sum(part.rows for part in parts),
            quarantined=counts.quarantined,
            files=tuple((source.path, source.size_bytes) for source in batch),
            disks=self.disks,
            dropped=counts.dropped,
            failed=counts.failed,
            parts=tuple(part.path for part in parts),
        )
        check_counts(counts, page.rows)
        self.table.ledger.write(page)
        self.written = mark.batch
        self._save(plan)
        self.version = self.table.commit(mark, schema.json(), parts + widened_parts, replaced)
        self.last = mark
        self.figures.add(page)
        self._quarantine(page)
        self._save()
        self.ctx.log.info(
            "batch %d: %d rows from %d files, version %d; %d rows read, %d quarantined, %d dropped; %d bytes; %s",
            mark.batch,
            page.rows,
            len(batch),
            self.version,
            counts.read,
            counts.quarantined,
            counts.dropped,
            sum(source.size_bytes for source in batch),
            speed_text(counts.read, time.monotonic() - began_s),
        )
        if counts.quarantined:
            where = quarantine_of(self.table.shown)
            self.ctx.log.warning("batch %d: %d malformed rows are in %s", mark.batch, counts.quarantined, where)
        return schema

    def _save(self, plan: dict[str, Any] | None = None) -> None:
        """Commit a checkpoint of the present state. Raises `Fenced` if the run has been taken over.

        `plan` is that of the batch at work. The checkpoint's `intent` is the batch whose page was written, by this
        attempt or an earlier one, and that is not in the table yet: its page must be there wherever the run goes on.
        """
        batch = 0 if self.last is None else self.last.batch
        intent = self.written if self.written is not None and self.written > batch else None
        standing = {"batch": batch, "version": self.version, "intent": intent, "plan": plan}
        figures = {"rows": self.figures.rows, "files": self.figures.files}
        self.ctx.save_checkpoint(standing | figures | {"disks": self.disks})

    def _columns(
        self,
        spark: "SparkSession",
        schema: "StructType | None",
        places: Mapping[Path, Source],
        found: Sequence[Layout] | None,
    ) -> "StructType":
        """The columns of the table with this batch in it; `schema` has those that it has before, if they are known."""
        if schema is None:
            standing, by = self.table.schema_json(), self.table.partitioned_by()
            schema = settle(spark, self.ctx.params, standing, places, by, found)
        return evolve(schema, self.ctx.params, places, found)

    def _widened(
        self, spark: "SparkSession", schema: "StructType", mark: Mark
    ) -> "tuple[frozenset[str] | None, tuple[Part, ...]]":
        """The files of the table whose rows were written again with wider columns, and into which; None if none."""
        standing = self.table.schema_json() if self.ctx.params.schema_evolution == "widen" else None
        names = [] if standing is None else widened(loads_columns(standing), schema)
        if not names:
            return None, ()
        self.ctx.log.info("batch %d: writing the table again with wider columns: %s", mark.batch, ", ".join(names))
        return rewritten(spark, self.table, schema, mark)

    def _write(
        self,
        spark: "SparkSession",
        schema: "StructType",
        places: Mapping[Path, Source],
        found: Sequence[Layout] | None,
        mark: Mark,
    ) -> "tuple[tuple[Part, ...], Counts]":
        from spark_tasks.table.writing import writer

        if self.write is None:
            self.write = writer(spark, self.table, self.ctx.scratch)
        return BatchWriter(spark, self.ctx.params, schema, self.table, self.write).write(places, found, mark)

    def _explained(
        self, spark: "SparkSession", schema: "StructType | None", error: Exception, places: Mapping[Path, Source]
    ) -> BadFile | None:
        """The file that an error of Spark is about; for a row that does not fit, also its line and the reason."""
        found = explained(error, places)
        if found is None or schema is None or not isinstance(found.why, MalformedRows):
            return found
        its = {place: source for place, source in places.items() if source.path == found.path}
        return (first_bad(spark, self.ctx.params, schema, its) if its else None) or found

    def _quarantine(self, page: Page) -> None:
        """Put the malformed rows of a committed batch into the quarantine, if they are not there yet."""
        if not page.quarantined:
            return
        with store_errors(self.table.place):
            if self.table.place.read(self.table.ledger.malformed(page.mark)) is None:
                return
        if self.quarantine is None:
            self.quarantine = self.open_quarantine()
        self.quarantine.put(page)


def _handle_changed(ctx: Context[IngestParams], changed: list[str]) -> None:
    if not changed:
        return
    if ctx.params.changed == "fail":
        raise SourceChanged(
            f"{', '.join(changed[:5])}: the size has changed since the file was ingested. Put new rows into new files, "
            "or set `changed: ignore`"
        )
    ctx.log.warning("ignored, because they have changed since they were ingested: %s", ", ".join(changed[:20]))
