"""The kind `ingest`: reads files into a Delta table, every row exactly once.

The new files are cut into batches. The steps of a batch: Spark writes Parquet files into a folder of this attempt; the
batch's page of the ledger is written; a checkpoint says what is intended, and raises `Fenced` if the run has been taken
over; Delta commits, and refuses a batch that another attempt has committed; a checkpoint says what is done. Every
attempt starts by reading the table's log, so a crash between any two steps neither loses nor duplicates a row. The log
decides what is in the table; the checkpoint is only a check of it.

An attempt that has work first makes sure that its token is current, and then writes to the table's log that it holds
the table, after which no attempt with an older token can commit. If one has committed before, the log is read again.
"""

import time
from pathlib import Path
from typing import Any

from spark_tasks.files.listing import fixed_folder, is_local, local_path
from spark_tasks.ingest.attempt import IngestAttempt
from spark_tasks.ingest.params import IngestParams
from spark_tasks.spark.session import ENVIRONMENT
from spark_tasks.table.ledger import quarantine_folder
from tasks.file_guard import FileGuard
from tasks.kind import Context
from tasks.reach import Reach, remote

RESULT = {
    "rows": "the number of rows that this run has committed",
    "files": "the number of files that this run has committed",
    "batches": "the number of batches that this run has committed",
    "quarantined": "the number of malformed rows that are in the quarantine instead of the table",
    "quarantine": "the folder of the quarantine; absent if this run has put nothing there",
    "dropped": "the number of rows that `expect` left out",
    "expect": "the number of rows of which an expectation is not true, by its name; absent if nothing is expected",
    "waiting": "the number of new files that were not complete yet, by `ready`",
    "version": "the version of the table",
    "table": "the folder of the table",
    "seconds": "how long the attempt took",
}
"""The fields of a run's result, for the reference."""


class Ingest:
    """Ingests new CSV, JSON, Parquet or Avro files into a Delta table, every row exactly once.

    It does so in batches, which survive a crash.
    """

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
            *(Reach("table", "destination", params.table, folder) for folder in _folders(params)),
        ]

    requires = ("pyspark", "pyarrow", "deltalake")
    environment = ENVIRONMENT

    def run(self, ctx: Context[IngestParams]) -> dict[str, Any]:
        """Ingest the new files. Result: what this run has committed, the table and its version.

        A file that cannot be read as the task says is left out, and the rest of its batch is ingested. Raises
        `FilesRefused` or `FilesUnfit` for such files at the end; `AccessRefused`, `Fenced`, `IngestStopped`,
        `OtherSource`, `SourceChanged`, `TableReplaced`, `CountsDiffer`, and what `files`, `table` and `java` name.
        """
        from spark_tasks.table.delta import Table
        from spark_tasks.table.quarantine import Quarantine

        began_s = time.monotonic()
        _check_tables(ctx)
        table = Table(Path(local_path(ctx.params.table)), ctx.task, ctx.params.partition_by)
        quarantine = Quarantine(table.folder, ctx.task)
        attempt = IngestAttempt(ctx, table, quarantine)
        if work := attempt.plan():
            attempt.run(work)
        figures = attempt.figures
        for name in table.clean():
            ctx.log.info("removed %s, which an attempt had written and not committed", name)
        return {
            "rows": figures.rows,
            "files": figures.files,
            "batches": figures.batches,
            "quarantined": figures.quarantined,
            **({"quarantine": str(quarantine.folder)} if figures.quarantined else {}),
            "dropped": figures.dropped,
            **({"expect": {name: figures.failed[name] for name in ctx.params.expect}} if ctx.params.expect else {}),
            "waiting": attempt.waiting,
            "version": table.version(),
            "table": ctx.params.table,
            "seconds": round(time.monotonic() - began_s, 3),
        }


def _folders(params: IngestParams) -> list[str]:
    """The folders of the tables that an ingest writes: its own, and the quarantine's."""
    table = local_path(params.table)
    return [table, str(quarantine_folder(Path(table)))] if params.malformed == "quarantine" else [table]


def _check_tables(ctx: Context[IngestParams]) -> None:
    """Raise `AccessRefused` unless this attempt may write to the tables' folders, and to the targets of links there."""
    guard = FileGuard(ctx.access, "destination")
    for table in map(Path, _folders(ctx.params)):
        for folder in (table, table / "_delta_log", table / "_rota" / ctx.task, table / ctx.task):
            guard.resolve(folder)
