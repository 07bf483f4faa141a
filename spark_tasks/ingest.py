"""The kind `ingest`: reads files into a Delta table, every row exactly once.

The new files are cut into batches. The steps of a batch: Spark writes Parquet files into a folder of this attempt; the
batch's page of the ledger is written; a checkpoint says what is intended, and raises `Fenced` if the run has been taken
over; Delta commits, and refuses a batch that another attempt has committed; a checkpoint says what is done. Every
attempt starts by reading the table's log, so a crash between any two steps neither loses nor duplicates a row. The log
decides what is in the table; the checkpoint is only a check of it.

An attempt that has work first makes sure that its token is current, and then writes to the table's log that it holds
the table, after which no attempt with an older token can commit. If one has committed before, the log is read again.
"""

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_tasks import malformed
from spark_tasks.files import (
    Source,
    SourceChanged,
    batches,
    canonical,
    check_allowed,
    check_globs,
    check_unchanged,
    fixed_folder,
    is_local,
    listing,
    local_path,
    new_and_changed,
    staged,
)
from spark_tasks.ledger import Mark, Page
from spark_tasks.params import IngestParams
from spark_tasks.reading import CORRUPT, BadFile, check_fields, explained, frame, settle
from spark_tasks.session import ENVIRONMENT, is_local_master, spark_session
from spark_tasks.source_disks import check_same, disks_of
from tasks.file_guard import FileGuard
from tasks.kind import Context, Fenced, Unretryable
from tasks.reach import Reach, remote
from tasks.source_identity import Facts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from spark_tasks.delta import Table

RESULT = {
    "rows": "the number of rows that this run has committed",
    "files": "the number of files that this run has committed",
    "batches": "the number of batches that this run has committed",
    "skipped": "the number of malformed rows that were skipped",
    "malformed": "the files that keep the skipped rows, 20 at most; absent if there are none",
    "version": "the version of the table",
    "table": "the folder of the table",
    "seconds": "how long the attempt took",
}
"""The fields of a run's result, for the reference."""

MALFORMED_LISTED = 20
"""The most files with skipped rows that the result names. All of them are in the table's `_rota` folder."""

CHECK_S = 0.2
"""How often a running Spark job checks whether the attempt should stop."""


class IngestStopped(Exception):
    """The attempt was asked to stop. The batches that it has committed stay in the table."""


REFUSED_LISTED = 5
"""The most refused files that a run's error describes. Its log describes all of them."""

OTHER = (
    "it was replaced, or this member has another folder at that path. Mount the table's storage here, or set the "
    "task's `group`; to begin a new table, start a new run"
)


class TableReplaced(Unretryable):
    """The table contains less than this run has committed to it: it is another table, or an older copy."""


@dataclass
class _Figures:
    """What all attempts at this run have committed to the table."""

    rows: int = 0
    files: int = 0
    batches: int = 0
    skipped: int = 0

    malformed: list[str] = field(default_factory=list)
    """The files that keep the rows that were skipped."""

    def add(self, page: Page, malformed: Path) -> None:
        self.rows += page.rows
        self.files += len(page.files)
        self.batches += 1
        self.skipped += page.skipped
        self.malformed += [str(malformed)] if page.skipped else []


class FilesRefused(Exception):
    """Some of the new files were not ingested; all others were."""


class FilesUnfit(Unretryable, FilesRefused):
    """As `FilesRefused`, and another attempt would refuse the same files."""


class Ingest:
    """Ingests new CSV or JSON files into a Delta table, every row exactly once, in batches that survive a crash."""

    Params = IngestParams

    @staticmethod
    def local_data(params: IngestParams) -> list[str]:
        """The params that name data on the member's own disk (`tasks.kind.Kind`). A table is always a folder."""
        if params.shared:
            return []
        globs = [params.source] if isinstance(params.source, str) else params.source
        return ["source", "table"] if any(map(is_local, globs)) else ["table"]

    @staticmethod
    def reaches(params: IngestParams, task: str) -> list[Reach]:
        """The paths and hosts that the params of `task` name (`tasks.kind.Kind`)."""
        globs = [params.source] if isinstance(params.source, str) else params.source
        return [
            *(
                Reach("source", "source", url, fixed_folder(local_path(url)))
                if is_local(url)
                else remote("source", "source", url, {})
                for url in globs
            ),
            Reach("table", "destination", params.table, local_path(params.table)),
        ]

    requires = ("pyspark", "pyarrow", "deltalake")
    environment = ENVIRONMENT

    def run(self, ctx: Context[IngestParams]) -> dict[str, Any]:
        """Ingest the new files. Result: rows, files, batches and skipped rows of this run, the files that keep skipped
        rows, the table and its version.

        A file that cannot be read as the task says is left out, and the rest of its batch is ingested. Raises
        `FilesRefused` or `FilesUnfit` for such files at the end; `AccessRefused`, `Fenced`, `IngestStopped`,
        `OtherSource`, `SourceChanged`, `TableReplaced`, and what `files`, `reading`, `delta`, `ledger` and `java` name.
        """
        from spark_tasks.delta import Table

        began_s = time.monotonic()
        _check_table(ctx)
        table = Table(Path(local_path(ctx.params.table)), ctx.task)
        attempt = _Attempt(ctx, table)
        if work := attempt.plan():
            attempt.run(work)
        figures = attempt.figures
        for name in table.clean():
            ctx.log.info("removed %s, which an attempt had written and not committed", name)
        return {
            "rows": figures.rows,
            "files": figures.files,
            "batches": figures.batches,
            "skipped": figures.skipped,
            **({"malformed": figures.malformed[:MALFORMED_LISTED]} if figures.malformed else {}),
            "version": table.version(),
            "table": ctx.params.table,
            "seconds": round(time.monotonic() - began_s, 3),
        }


def _check_table(ctx: Context[IngestParams]) -> None:
    """Raise `AccessRefused` unless this attempt may write to the table's folder, and to the targets of links in it."""
    table, guard = Path(local_path(ctx.params.table)), FileGuard(ctx.access, "destination")
    for folder in (table, table / "_delta_log", table / "_rota" / ctx.task, table / ctx.task):
        guard.resolve(folder)


def _check_hint(hint: Any, table: "Table", last: Mark | None, version: int | None) -> None:
    """Raise `TableReplaced` if the table lacks something that this run's last checkpoint says is in it."""
    if not isinstance(hint, dict):
        return
    promised, standing = hint.get("batch", 0), 0 if last is None else last.batch
    if promised > standing:
        raise TableReplaced(
            f"this run has committed batch {promised} to the table, but the last batch in the table here is "
            f"{standing}: {OTHER}"
        )
    seen = hint.get("version")
    if seen is not None and (version is None or version < seen):
        now = "there is none" if version is None else f"it is at {version}"
        raise TableReplaced(f"this run has read version {seen} of the table, but here {now}: {OTHER}")
    intent = hint.get("intent")
    if intent is not None and intent > standing and not table.ledger.has(intent):
        raise TableReplaced(
            f"this run has written batch {intent} to {table.folder}, but its files are not here: {OTHER}"
        )


def _handle_changed(ctx: Context[IngestParams], changed: list[str]) -> None:
    if not changed:
        return
    if ctx.params.changed == "fail":
        raise SourceChanged(
            f"{', '.join(changed[:5])}: the size has changed since the file was ingested. Put new rows into new files, "
            "or set `changed: ignore`"
        )
    ctx.log.warning("ignored, because they have changed since they were ingested: %s", ", ".join(changed[:20]))


class _Attempt:
    """One attempt, batch by batch."""

    def __init__(self, ctx: Context[IngestParams], table: "Table") -> None:
        self.ctx = ctx
        self.table = table
        self.figures = _Figures()
        self.last: Mark | None = None
        self.version: int | None = None
        self.refused: dict[str, Exception] = {}
        self.disks: dict[str, Facts] = {}

    def plan(self) -> list[tuple[Source, ...]]:
        """Read the table's log and list the sources; the new files, in batches."""
        ctx, self.figures, taken = self.ctx, _Figures(), dict[str, int]()
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
        for page in self.table.ledger.pages(self.last):
            # Earlier versions wrote a path as its glob spelled it.
            taken.update((canonical(path), size_bytes) for path, size_bytes in page.files)
            if page.run_id == ctx.run_id:
                self.figures.add(page, self.table.ledger.malformed(page.mark))
        _check_hint(ctx.checkpoint, self.table, self.last, self.version)
        found = listing(globs, ctx.access)
        if not found:
            ctx.log.warning("no file matches %s", ", ".join(globs))
        fresh = new_and_changed(found, taken)
        _handle_changed(ctx, [source.path for source in fresh.changed])
        standing = self.last.batch if self.last else 0
        ctx.log.info("%d files, %d of them new; last batch in the table: %d", len(found), len(fresh.new), standing)
        return batches(fresh.new, ctx.params.batch_files)

    def _check_disks(self, before: Any, whence: str) -> None:
        check_same(before, self.disks, self.ctx.params.accept_source, self.ctx.node, whence)

    def run(self, work: list[tuple[Source, ...]]) -> None:
        """Ingest all batches of `work`."""
        from spark_tasks.delta import Overtaken

        self._claim(first=True)
        with spark_session(f"{self.ctx.task} {self.ctx.run_id}", self.ctx.scratch) as spark, _stopping(self.ctx, spark):
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
                raise Fenced(f"another run of {self.ctx.task}, with token {holder}, holds {self.table.folder}")
            self.table.claim(token, instead_of=holder)
            self.version = self.table.version()

    def _ingest_all(self, spark: "SparkSession", work: list[tuple[Source, ...]]) -> None:
        total = self.figures.files + sum(map(len, work))
        self.ctx.progress(self.figures.files, total, "files")
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
                    self.ctx.log.error("left out: %s", bad.why)  # noqa: TRY400 - the message names the file
                    self.refused[bad.path] = bad.why
                    rest = tuple(source for source in rest if source.path != bad.path)
            self.ctx.progress(self.figures.files, total, "files")

    def _ingest(self, spark: "SparkSession", schema: "StructType | None", batch: tuple[Source, ...]) -> "StructType":
        mark = Mark(1 if self.last is None else self.last.batch + 1, self.ctx.token)
        check_allowed(batch, self.ctx.access)
        # A Spark on other machines can open files only by their own paths.
        pins = FileGuard(self.ctx.access, "source") if is_local_master(os.environ) else None
        with staged(batch, self.ctx.scratch / "fetched" / mark.name, pins) as places:
            try:
                if schema is None:
                    schema = settle(spark, self.ctx.params, self.table.schema_json(), list(places))
                check_fields(spark, self.ctx.params, schema, places)
                skipped = self._write(spark, schema, places, mark)
            except Exception as error:
                if self.ctx.cancelled:
                    raise IngestStopped("asked to stop") from error
                better = explained(error, places)
                if better is None:
                    raise
                raise better from None
            check_unchanged(places)
        if self.ctx.cancelled:
            raise IngestStopped("asked to stop")
        page = Page(
            mark=mark,
            previous=self.last,
            run_id=self.ctx.run_id,
            rows=self.table.rows_in(mark),
            skipped=skipped,
            files=tuple((source.path, source.size_bytes) for source in batch),
            disks=self.disks,
        )
        self.table.ledger.write(page)
        self._save(intent=mark.batch)
        self.version = self.table.commit(mark, schema.json())
        self.last = mark
        self.figures.add(page, self.table.ledger.malformed(page.mark))
        self._save()
        self.ctx.log.info(
            "batch %d: %d rows from %d files, version %d", mark.batch, page.rows, len(batch), self.version
        )
        if skipped:
            kept = self.table.ledger.malformed(mark)
            self.ctx.log.warning("batch %d: %d malformed rows were skipped, and kept in %s", mark.batch, skipped, kept)
        return schema

    def _save(self, intent: int | None = None) -> None:
        """Commit a checkpoint of the present state. Raises `Fenced` if the run has been taken over."""
        standing = {"batch": 0 if self.last is None else self.last.batch, "version": self.version, "intent": intent}
        self.ctx.save_checkpoint(
            standing | {"rows": self.figures.rows, "files": self.figures.files, "disks": self.disks}
        )

    def _write(self, spark: "SparkSession", schema: "StructType", places: Mapping[Path, Source], mark: Mark) -> int:
        """Write the rows as Parquet; the number of malformed rows that were skipped, and kept in a separate file."""
        rows = frame(spark, self.ctx.params, schema, list(places))
        folder = self.table.parquet_folder(mark)
        if self.ctx.params.malformed == "fail":
            rows.write.mode("overwrite").parquet(str(folder))
            return 0
        from pyspark.sql import Observation
        from pyspark.sql import functions as f

        seen = Observation()
        bad = f.coalesce(f.sum(f.col(CORRUPT).isNotNull().cast("long")), f.lit(0)).alias("bad")
        good = rows.observe(seen, bad).filter(f.col(CORRUPT).isNull()).drop(CORRUPT)
        good.write.mode("overwrite").parquet(str(folder))
        if skipped := int(seen.get["bad"]):
            malformed.keep(
                self.table.ledger.malformed(mark), malformed.texts(rows), places, within=self.table.folder.parent
            )
        return skipped


@contextmanager
def _stopping(ctx: Context[IngestParams], spark: "SparkSession") -> Iterator[None]:
    """While the block lasts, cancel Spark's running jobs once the attempt should stop."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(CHECK_S):
            if ctx.cancelled:
                spark.sparkContext.cancelAllJobs()

    watcher = threading.Thread(target=watch, name="stop-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
