"""The kind `ingest`: files in, a Delta table out, every row once.

The new files are cut into batches. For each: Spark writes Parquet files under a name of this attempt's own; the
batch's page of the ledger is written; `save_checkpoint` says what is intended, and raises `Fenced` if the run
has been taken over; Delta commits, and refuses a batch that another attempt has committed; `save_checkpoint`
says what is done. What is in the table is read from its log at every start, so a crash at any of these points
loses no row and doubles none: the log is the truth, the checkpoint only a hint.

An attempt that has work asks the cluster whether its token is good, and says in the table's log that it has the
table: none with an older token commits after that. Where one did before, the log is read again and the work goes on.
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
from spark_tasks.disks import check_same, disks_of
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
    news,
    staged,
)
from spark_tasks.ledger import Mark, Page
from spark_tasks.params import IngestParams
from spark_tasks.reading import CORRUPT, BadFile, check_fields, explained, frame, settle
from spark_tasks.session import is_local_master, spark_session
from tasks.identity import Facts
from tasks.kind import Context, Fenced, Unretryable
from tasks.opened import Guard
from tasks.reach import Reach, remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from spark_tasks.delta import Table

MALFORMED_TOLD = 20
"""The result names this many of the files that keep skipped rows; all are in the table's `_rota` folder."""

LOOK_S = 0.2
"""How often a running Spark job looks whether the attempt should stop."""


class IngestStopped(Exception):
    """The attempt was asked to stop. What it had committed stays."""


REFUSED_TOLD = 5
"""A run's error describes this many of the files that were left out; its log describes all."""

OTHER = (
    "it was replaced, or this member has another folder at that path. Mount the table's storage here, or set the "
    "task's group; to begin with a new table, start a new run"
)


class TableReplaced(Unretryable):
    """The table holds less than this run has put into it: it is another table, or an older copy."""


@dataclass
class _Figures:
    """What this run has put into the table, by all its attempts."""

    rows: int = 0
    files: int = 0
    batches: int = 0
    skipped: int = 0

    malformed: list[str] = field(default_factory=list)
    """Where the rows are that were left out."""

    def add(self, page: Page, malformed: Path) -> None:
        self.rows += page.rows
        self.files += len(page.files)
        self.batches += 1
        self.skipped += page.skipped
        self.malformed += [str(malformed)] if page.skipped else []


class FilesRefused(Exception):
    """Some files are not in the table; all others that are new are."""


class FilesUnfit(Unretryable, FilesRefused):
    """As `FilesRefused`, and another try would find them as they are."""


class Ingest:
    """Puts the rows of new CSV or JSON files into a Delta table, each once, in batches that survive a crash."""

    Params = IngestParams

    @staticmethod
    def local_data(params: IngestParams) -> list[str]:
        """The fields that name data on the member's own disk (`tasks.kind.Kind`). A table is always a folder."""
        if params.shared:
            return []
        globs = [params.source] if isinstance(params.source, str) else params.source
        return ["source", "table"] if any(map(is_local, globs)) else ["table"]

    @staticmethod
    def reaches(params: IngestParams, task: str) -> list[Reach]:
        """What the params of that task name outside of it (`tasks.kind.Kind`)."""
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

    def run(self, ctx: Context[IngestParams]) -> dict[str, Any]:
        """Ingest what is new. Result: rows, files, batches and skipped rows of this run, the table and its version, and
        where skipped rows are kept.

        A file that cannot be read as the task says is left out, and the rest of its batch goes in. Raises
        `FilesRefused` or `FilesUnfit` for those at the end, `Fenced`, `Refused`, `IngestStopped`, and what `files`,
        `reading`, `delta`, `ledger` and `java` name.
        """
        from spark_tasks.delta import Table

        began_s = time.monotonic()
        _check_table(ctx)
        table = Table(Path(local_path(ctx.params.table)), ctx.task)
        attempt = _Attempt(ctx, table)
        if work := attempt.look():
            attempt.run(work)
        figures = attempt.figures
        for name in table.clean():
            ctx.log.info("removed %s, left by an attempt that did not commit", name)
        return {
            "rows": figures.rows,
            "files": figures.files,
            "batches": figures.batches,
            "skipped": figures.skipped,
            **({"malformed": figures.malformed[:MALFORMED_TOLD]} if figures.malformed else {}),
            "version": table.version(),
            "table": ctx.params.table,
            "seconds": round(time.monotonic() - began_s, 3),
        }


def _check_table(ctx: Context[IngestParams]) -> None:
    """Raises `Refused` unless this attempt may write where the table is, and where links in its folder lead."""
    table, guard = Path(local_path(ctx.params.table)), Guard(ctx.access, "destination")
    for folder in (table, table / "_delta_log", table / "_rota" / ctx.task, table / ctx.task):
        guard.resolve(folder)


def _check_hint(hint: Any, table: "Table", last: Mark | None, version: int | None) -> None:
    """What this run's last checkpoint says of the table must be there. Raises `TableReplaced`."""
    if not isinstance(hint, dict):
        return
    promised, standing = hint.get("batch", 0), 0 if last is None else last.batch
    if promised > standing:
        raise TableReplaced(
            f"this run has put batch {promised} into the table, but the table here has {standing}: {OTHER}"
        )
    seen = hint.get("version")
    if seen is not None and (version is None or version < seen):
        now = "there is none" if version is None else f"it is at {version}"
        raise TableReplaced(f"this run has seen the table at version {seen}, but here {now}: {OTHER}")
    intent = hint.get("intent")
    if intent is not None and intent > standing and not table.ledger.has(intent):
        raise TableReplaced(
            f"this run has written batch {intent} to {table.folder}, but here is no trace of it: {OTHER}"
        )


def _judge_changed(ctx: Context[IngestParams], changed: list[str]) -> None:
    if not changed:
        return
    if ctx.params.changed == "fail":
        raise SourceChanged(
            f"{', '.join(changed[:5])}: ingested already, and of another size now. Put new rows into new files, or set "
            "`changed: ignore`"
        )
    ctx.log.warning("changed since they were ingested, and left as they were: %s", ", ".join(changed[:20]))


class _Attempt:
    """One attempt's way through its batches."""

    def __init__(self, ctx: Context[IngestParams], table: "Table") -> None:
        self.ctx = ctx
        self.table = table
        self.figures = _Figures()
        self.last: Mark | None = None
        self.version: int | None = None
        self.refused: dict[str, Exception] = {}
        self.disks: dict[str, Facts] = {}

    def look(self) -> list[tuple[Source, ...]]:
        """Read the table's log and list the sources: the batches that are new."""
        ctx, self.figures, taken = self.ctx, _Figures(), dict[str, int]()
        self.table.keep()
        self.last, self.version = self.table.last(), self.table.version()
        globs = [ctx.params.source] if isinstance(ctx.params.source, str) else ctx.params.source
        check_globs(globs, ctx.access)
        self.disks = disks_of(globs, ctx.node)
        if isinstance(ctx.checkpoint, dict):
            self._check_disks(ctx.checkpoint.get("disks"), "what this run has put into the table")
        newest = next(self.table.ledger.pages(self.last), None)
        if newest is not None:
            self._check_disks(newest.disks, f"batch {newest.mark.batch} of the table")
        for page in self.table.ledger.pages(self.last):
            # Pages of earlier versions spell a path as its glob did.
            taken.update((canonical(path), size_bytes) for path, size_bytes in page.files)
            if page.run_id == ctx.run_id:
                self.figures.add(page, self.table.ledger.malformed(page.mark))
        _check_hint(ctx.checkpoint, self.table, self.last, self.version)
        found = listing(globs, ctx.access)
        if not found:
            ctx.log.warning("no file matches %s", ", ".join(globs))
        fresh = news(found, taken)
        _judge_changed(ctx, [source.path for source in fresh.changed])
        standing = self.last.batch if self.last else 0
        ctx.log.info("%d files, %d of them new; batch %d is in the table", len(found), len(fresh.new), standing)
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
                    self.ctx.log.warning("%s: looking again", error)
                    work = self.look()
                    self._say()
                    self._claim(first=False)
        self._judge_refused()

    def _judge_refused(self) -> None:
        if not self.refused:
            return
        whys = list(self.refused.values())
        told = "; ".join(map(str, whys[:REFUSED_TOLD])) + ("; ..." if len(whys) > REFUSED_TOLD else "")
        final = all(isinstance(why, Unretryable) for why in whys)
        raise (FilesUnfit if final else FilesRefused)(
            f"{len(whys)} of {len(whys) + self.figures.files} files are not in the table, the others are: {told}"
        )

    def _claim(self, *, first: bool) -> None:
        """Say in the table, if there is one, that this attempt has it. Raises `Fenced` if it has been taken over.

        A greater token that an attempt finds when it begins is one of a cluster that was given up, if its own is good:
        a new cluster counts anew. One that comes later is that of another run of the task.
        """
        token = self.ctx.token
        while self.version is not None and (holder := self.table.holder()) != token:
            self._say()
            if holder is not None and holder > token and not first:
                raise Fenced(f"another run of {self.ctx.task}, with token {holder}, has {self.table.folder}")
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
                    raise IngestStopped(f"asked to stop; {self.figures.files} of {total} files are in the table")
                try:
                    schema = self._ingest(spark, schema, rest)
                    break
                except BadFile as bad:
                    self.ctx.log.error("left out: %s", bad.why)  # noqa: TRY400 - the file is at fault, and named
                    self.refused[bad.path] = bad.why
                    rest = tuple(source for source in rest if source.path != bad.path)
            self.ctx.progress(self.figures.files, total, "files")

    def _ingest(self, spark: "SparkSession", schema: "StructType | None", batch: tuple[Source, ...]) -> "StructType":
        mark = Mark(1 if self.last is None else self.last.batch + 1, self.ctx.token)
        check_allowed(batch, self.ctx.access)
        # A Spark on other machines finds files by their own paths only.
        pins = Guard(self.ctx.access, "source") if is_local_master(os.environ) else None
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
        self._say(intent=mark.batch)
        self.version = self.table.commit(mark, schema.json())
        self.last = mark
        self.figures.add(page, self.table.ledger.malformed(page.mark))
        self._say()
        self.ctx.log.info(
            "batch %d: %d rows from %d files, version %d", mark.batch, page.rows, len(batch), self.version
        )
        if skipped:
            kept = self.table.ledger.malformed(mark)
            self.ctx.log.warning("batch %d: %d malformed rows are left out, and kept in %s", mark.batch, skipped, kept)
        return schema

    def _say(self, intent: int | None = None) -> None:
        """Commit where the run stands. Raises `Fenced` if it has been taken over."""
        standing = {"batch": 0 if self.last is None else self.last.batch, "version": self.version, "intent": intent}
        self.ctx.save_checkpoint(
            standing | {"rows": self.figures.rows, "files": self.figures.files, "disks": self.disks}
        )

    def _write(self, spark: "SparkSession", schema: "StructType", places: Mapping[Path, Source], mark: Mark) -> int:
        """Write the rows as Parquet. How many malformed ones are left out, and kept in a file of their own."""
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
    """While the block lasts: once the attempt should stop, Spark's running jobs are cancelled."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_S):
            if ctx.cancelled:
                spark.sparkContext.cancelAllJobs()

    watcher = threading.Thread(target=watch, name="stop-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
