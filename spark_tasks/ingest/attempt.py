"""One attempt at an ingest: plans the batches, and ingests them one after another (`kind` describes the steps)."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from spark_tasks.contracts.batch_loop import become_holder, commit_batches
from spark_tasks.files.faults import BadFile
from spark_tasks.files.listing import (
    Source,
    SourceChanged,
    batches,
    canonical,
    check_allowed,
    check_globs,
    listing,
    new_and_changed,
)
from spark_tasks.files.ready import complete
from spark_tasks.ingest.checkpoint import again, check_hint, check_same, disks_of, planned
from spark_tasks.ingest.converting import BatchConverter, Converted
from spark_tasks.ingest.errors import FilesRefused, FilesUnfit, IngestStopped
from spark_tasks.ingest.params import IngestParams
from spark_tasks.ingest.writing import check_counts
from spark_tasks.spark.progress import speed_text
from spark_tasks.spark.session import session_of
from spark_tasks.storage.errors import store_errors
from spark_tasks.table.ledger import Mark, Page, quarantine_of
from tasks.kind import Context, Fenced, Unretryable
from tasks.source_identity import Facts

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from spark_tasks.table.delta import Table
    from spark_tasks.table.quarantine import Quarantine

LATEST_MAX: Final = 50
"""The number of latest batches whose figures are listed one by one."""


@dataclass
class Figures:
    """Sums over the batches that all attempts at this run have committed."""

    #: The number of rows.
    rows: int = 0
    #: The number of source files.
    files: int = 0
    #: The number of batches.
    batches: int = 0
    #: The number of rows that went to the quarantine.
    quarantined: int = 0
    #: The number of rows that were dropped.
    dropped: int = 0
    #: The size of the source files, in bytes.
    bytes: int = 0

    failed: Counter[str] = field(default_factory=Counter)
    """How many rows do not meet an expectation, by the expectation's name."""

    #: The figures of the latest `LATEST_MAX` batches, by number.
    _listed: dict[int, dict[str, int]] = field(default_factory=dict)

    def latest(self) -> list[dict[str, int]]:
        """Return the latest batches, oldest first: the number of each, its files, their bytes, and its rows."""
        return [self._listed[batch] for batch in sorted(self._listed)]

    def add(self, page: Page) -> None:
        """Add a batch's figures."""
        size_bytes = sum(size_bytes for _, size_bytes in page.files)
        batch = {"batch": page.mark.batch, "files": len(page.files), "bytes": size_bytes, "rows": page.rows}
        self._listed[page.mark.batch] = batch
        if len(self._listed) > LATEST_MAX:
            del self._listed[min(self._listed)]
        self.rows += page.rows
        self.files += len(page.files)
        self.batches += 1
        self.quarantined += page.quarantined
        self.dropped += page.dropped
        self.bytes += size_bytes
        self.failed.update(page.failed)


REFUSED_LISTED = 5
"""The most refused files that a run's error describes. The run's log describes all of them."""


class IngestAttempt:
    """One attempt, batch by batch. `open_quarantine` is called once there are rows for the quarantine."""

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
        before = ctx.checkpoint.get("intent") if isinstance(ctx.checkpoint, dict) else None
        self.written: int | None = before
        #: The batches that are planned and not committed yet, and the table's columns, if they are known.
        self.work: Iterator[tuple[Source, ...]] = iter(())
        self.columns: StructType | None = None

    def plan(self) -> list[tuple[Source, ...]]:
        """Read the table's log and list the sources. Returns the new files, in batches."""
        ctx = self.ctx
        globs = [ctx.params.source] if isinstance(ctx.params.source, str) else ctx.params.source
        taken = self._read_log(globs)
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

    def _read_log(self, globs: list[str]) -> dict[str, int]:
        """Read the table's log and ledger, and check that the sources and the table are the same as before.

        Returns the sizes, in bytes, of the files that are in the table, by their paths.
        """
        ctx, self.figures, taken = self.ctx, Figures(), dict[str, int]()
        self.table.sync_log()
        self.last, self.version = self.table.last(), self.table.version()
        check_globs(globs, ctx.access)
        self.disks = disks_of(globs, ctx.node)
        if isinstance(ctx.checkpoint, dict):
            self._check_disks(ctx.checkpoint.get("disks"), "what this run has committed to the table")
        newest = next(self.table.ledger.pages(self.last), None)
        if newest is not None:
            self._check_disks(newest.disks, f"batch {newest.mark.batch} of the table")
        pages = list(self.table.ledger.pages(self.last))
        for page in reversed(pages):
            self._quarantine(page)  # an earlier attempt may have been killed after its commit, before this step
        for page in pages:
            # Earlier versions wrote a path as its glob spelled it.
            taken.update((canonical(path), size_bytes) for path, size_bytes in page.files)
            if page.run_id == ctx.run_id:
                self.figures.add(page)
        check_hint(ctx.checkpoint, self.table, self.last, self.version)
        return taken

    def _check_disks(self, before: Any, whence: str) -> None:
        check_same(before, self.disks, self.ctx.params.accept_source, self.ctx.node, whence)

    def run(self, work: list[tuple[Source, ...]]) -> None:
        """Ingest all batches of `work`."""
        from spark_tasks.table.delta import Overtaken

        self._claim(first=True)
        with session_of(self.ctx) as spark:
            converter = BatchConverter(self.ctx, self.table, spark, self._progress)
            self._begin(work)
            commit_batches(
                self._following(),
                lambda batch: self._ingest(converter, batch),
                self._following,
                Overtaken,
                self._replan,
            )
        self._raise_refused()

    def _begin(self, work: list[tuple[Source, ...]]) -> None:
        self.work = iter(work)
        self.columns = None
        if work:
            self.total = self.figures.files + sum(map(len, work))
            self._progress()

    def _following(self) -> tuple[Source, ...] | None:
        return next(self.work, None)

    def _replan(self, overtaken: Exception) -> None:
        self.ctx.log.warning("%s: reading the table again", overtaken)
        work = self.plan()
        self._save()
        self._claim(first=False)
        self._begin(work)

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

        If the attempt's own token is current, a greater token that it finds when it begins is from an abandoned
        cluster, because a new cluster counts from 1 again. A greater token that it finds later is from another run of
        the task.
        """
        token = self.ctx.token

        def holder() -> int | None:
            return token if self.version is None else self.table.holder()

        def check_current(held: int | None) -> None:
            self._save()
            if held is not None and held > token and not first:
                raise Fenced(f"another run of {self.ctx.task}, with token {held}, holds {self.table.shown}")

        def claim(token: int, instead_of: int | None) -> bool:
            claimed = self.table.claim(token, instead_of)
            self.version = self.table.version()
            return claimed

        become_holder(token, holder, check_current, claim)

    def _ingest(self, converter: BatchConverter, batch: tuple[Source, ...]) -> None:
        """Commit a batch, but leave out those of its files that are refused."""
        rest = tuple(source for source in batch if source.path not in self.refused)
        while rest:
            if self.ctx.cancelled:
                raise IngestStopped(f"asked to stop; {self.figures.files} of {self.total} files were ingested")
            try:
                self._convert(converter, rest)
                break
            except BadFile as bad:
                if bad.path not in {source.path for source in rest}:
                    raise bad.why from None  # without this file the batch would fail the same way
                self.ctx.log.error("left out: %s", bad.why)  # noqa: TRY400 - the message names the file
                self.refused[bad.path] = bad.why
                rest = tuple(source for source in rest if source.path != bad.path)
        self._progress()

    def _progress(self, inside: str = "") -> None:
        """Report how many files are in the table, and the progress of the present batch."""
        self.ctx.progress(self.figures.files, self.total, f"files; {inside}" if inside else "files")

    def _convert(self, converter: BatchConverter, batch: tuple[Source, ...]) -> None:
        """Plan, convert and commit a batch of files."""
        began_s = time.monotonic()
        mark, plan = self._plan_batch(batch)
        done = converter.convert(batch, mark, self.columns)
        if self.ctx.cancelled:
            raise IngestStopped("asked to stop")
        page = self._commit(batch, mark, plan, done)
        self._log(page, done.counts.read, time.monotonic() - began_s)
        self.columns = done.columns

    def _plan_batch(self, batch: tuple[Source, ...]) -> tuple[Mark, dict[str, Any]]:
        """Commit a checkpoint with the plan of the batch, before the batch is read."""
        mark = Mark(1 if self.last is None else self.last.batch + 1, self.ctx.token)
        check_allowed(batch, self.ctx.access)
        plan = planned(mark.batch, batch)
        self._save(plan)
        said = again(self.ctx.checkpoint, plan)
        self.ctx.log.info("batch %d is planned: %d files, %d bytes%s", mark.batch, len(batch), plan["bytes"], said)
        return mark, plan

    def _commit(self, batch: tuple[Source, ...], mark: Mark, plan: dict[str, Any], done: Converted) -> Page:
        """Commit the batch to the table, with its page in the ledger, and put its malformed rows into the
        quarantine.
        """
        page = Page(
            mark=mark,
            previous=self.last,
            run_id=self.ctx.run_id,
            rows=sum(part.rows for part in done.parts),
            quarantined=done.counts.quarantined,
            files=tuple((source.path, source.size_bytes) for source in batch),
            disks=self.disks,
            dropped=done.counts.dropped,
            failed=done.counts.failed,
            parts=tuple(part.path for part in done.parts + done.widened),
        )
        check_counts(done.counts, page.rows)
        self.table.ledger.write(page)
        self.written = mark.batch
        self._save(plan)
        self.version = self.table.commit(mark, done.columns.json(), done.parts + done.widened, done.replaced)
        self.last = mark
        self.figures.add(page)
        self._quarantine(page)
        self._save()
        return page

    def _log(self, page: Page, read: int, seconds: float) -> None:
        self.ctx.log.info(
            "batch %d: %d rows from %d files, version %d; %d rows read, %d quarantined, %d dropped; %d bytes; %s",
            page.mark.batch,
            page.rows,
            len(page.files),
            self.version,
            read,
            page.quarantined,
            page.dropped,
            sum(size_bytes for _, size_bytes in page.files),
            speed_text(read, seconds),
        )
        if page.quarantined:
            where = quarantine_of(self.table.shown)
            self.ctx.log.warning("batch %d: %d malformed rows are in %s", page.mark.batch, page.quarantined, where)

    def _save(self, plan: dict[str, Any] | None = None) -> None:
        """Commit a checkpoint of the present state. Raises `Fenced` if the run has been taken over.

        `plan` is the present batch's plan. The checkpoint's `intent` is a batch that is not in the table yet, but whose
        page was written by this attempt or an earlier one. If the run moves to another member, that member must see the
        page.
        """
        batch = 0 if self.last is None else self.last.batch
        intent = self.written if self.written is not None and self.written > batch else None
        standing = {"batch": batch, "version": self.version, "intent": intent, "plan": plan}
        figures = {"rows": self.figures.rows, "files": self.figures.files}
        self.ctx.save_checkpoint(standing | figures | {"disks": self.disks})

    def _quarantine(self, page: Page) -> None:
        """Put the malformed rows of a committed batch into the quarantine, unless they are there already."""
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
