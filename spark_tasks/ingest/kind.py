"""The kind `ingest`: reads files into a Delta table, every row exactly once.

The new files are cut into batches. The steps of a batch: (1) A checkpoint records the plan before any file is read, and
raises `Fenced` if the run has been taken over. (2) Spark writes Parquet files into a folder of this attempt. (3) The
batch's page of the ledger is written. (4) A checkpoint records the page. (5) Delta commits the batch, and refuses it if
another attempt has committed it. (6) A checkpoint records the visible batch.

Every attempt starts by reading the table's log, so a crash between any two steps neither loses nor duplicates a row.
The log decides what is in the table; the checkpoint only serves to check the log.

An attempt that has work first makes sure that its token is current, and then records in the table's log that it holds
the table. From then on no attempt with an older token can commit. If an older attempt has committed in between, the log
is read again.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel

from spark_tasks.files.listing import fixed_folder
from spark_tasks.ingest.attempt import IngestAttempt
from spark_tasks.ingest.params import IngestParams
from spark_tasks.spark.sample import PreviewArgs
from spark_tasks.spark.session import AT_ONCE, ENVIRONMENT, prepare, session_of
from spark_tasks.spark.tools import SPARK_TOOLS
from spark_tasks.storage.stored import INNER
from spark_tasks.storage.url import is_local, without_protocol
from spark_tasks.table.ledger import quarantine_of
from tasks.datasets import Datasets, stored_at
from tasks.file_guard import FileGuard
from tasks.kind import Context
from tasks.needs import Needs, credential_groups
from tasks.places.place import Place, resolved
from tasks.reach import Reach, remote

RESULT = {
    "rows": "the number of rows that this run has committed",
    "files": "the number of files that this run has committed",
    "batches": "the number of batches that this run has committed",
    "bytes": "the bytes of those files, as they are stored",
    "latest_batches": "the latest of them, 50 at most: the number of each batch, its files, their bytes, its rows",
    "quarantined": "the number of malformed rows that are in the quarantine instead of the table",
    "quarantine": "the folder or the URL of the quarantine; absent if this run has put nothing there",
    "dropped": "the number of rows that `expect` left out",
    "expect": "the number of rows of which an expectation is not true, by its name; absent if nothing is expected",
    "waiting": "the number of new files that were not complete yet, by `ready`",
    "version": "the version of the table",
    "table": "the folder or the URL of the table",
    "seconds": "how long the attempt took",
}
"""The fields of a run's result, for the reference."""


class Ingest:
    """Ingests new CSV, JSON, Parquet or Avro files into a Delta table, every row exactly once.

    It works in batches: after a crash, at most one batch is repeated.
    """

    Params = IngestParams

    @staticmethod
    def local_data(params: IngestParams) -> list[str]:
        """Return the params that name data on the member's own disk (`tasks.kind.Kind`)."""
        if params.shared:
            return []
        globs = [params.source] if isinstance(params.source, str) else params.source
        named = {"source": any(map(is_local, globs)), "table": is_local(params.table)}
        return [field for field, local in named.items() if local]

    @staticmethod
    def reaches(params: IngestParams, task: str) -> list[Reach]:
        """Return the paths and hosts that the params of `task` name (`tasks.kind.Kind`)."""
        globs = [params.source] if isinstance(params.source, str) else params.source
        return [
            *(
                Reach("source", "source", url, fixed_folder(without_protocol(url)), links=True)
                if is_local(url)
                else remote("source", "source", url, {})
                for url in globs
            ),
            *(_reach(params, table) for table in _tables(params)),
        ]

    @staticmethod
    def datasets(params: IngestParams, task: str) -> Datasets:
        """Return the folders of the files, and the table (`tasks.kind.Kind`)."""
        globs = [params.source] if isinstance(params.source, str) else params.source
        return Datasets(tuple(map(stored_at, globs)), (stored_at(params.table),))

    @staticmethod
    def needs(params: IngestParams, task: str) -> Needs:
        """Return the needs of an attempt: paths, servers, tools and credentials (`tasks.kind.Kind`)."""
        globs = [params.source] if isinstance(params.source, str) else params.source
        groups = {group for url in globs for group in credential_groups(url, {})}
        groups |= {*credential_groups(params.table, params.options)}
        return Needs(
            reaches=tuple(Ingest.reaches(params, task)), tools=(SPARK_TOOLS,), own_credentials=tuple(sorted(groups))
        )

    requires = ("pyspark", "pyarrow", "deltalake")
    environment = ENVIRONMENT
    prepare = staticmethod(prepare)
    prepare_tools = (SPARK_TOOLS,)
    at_once = AT_ONCE
    one_at_a_time = True

    actions: ClassVar[Mapping[str, type[BaseModel]]] = {"preview": PreviewArgs}

    def preview(self, ctx: Context[IngestParams], args: PreviewArgs) -> dict[str, Any]:
        """Return the first rows of new files as the table would have them, and Spark's plan. Nothing is written."""
        from spark_tasks.ingest.previewing import preview_files
        from spark_tasks.table.delta import Table

        table = Table(_place(ctx, _table(ctx.params)), ctx.task, ctx.params.partition_by)
        return preview_files(ctx, table, args.rows, lambda: session_of(ctx))

    def run(self, ctx: Context[IngestParams]) -> dict[str, Any]:
        """Ingest the new files. Returns this run's figures, the table and its version.

        A file that cannot be read with the task's settings is left out, and the rest of its batch is ingested. Raises
        `FilesRefused` or `FilesUnfit` for such files at the end; also `AccessRefused`, `Fenced`, `IngestStopped`,
        `OtherSource`, `SourceChanged`, `TableReplaced`, `CountsDiffer`, and the errors of `files`, `table`, `java` and
        the storage's `errors`.
        """
        from spark_tasks.table.delta import Table
        from spark_tasks.table.quarantine import Quarantine

        began_s = time.monotonic()
        quarantine = quarantine_of(_table(ctx.params))
        table = Table(_place(ctx, _table(ctx.params)), ctx.task, ctx.params.partition_by)
        for each in _tables(ctx.params):
            _check_links(ctx, each)
        attempt = IngestAttempt(ctx, table, lambda: Quarantine(_place(ctx, quarantine), table))
        if work := attempt.plan():
            attempt.run(work)
        figures = attempt.figures
        for name in table.clean(ctx.run_id):
            ctx.log.info("removed %s, which an attempt had written and not committed", name)
        return {
            "rows": figures.rows,
            "files": figures.files,
            "batches": figures.batches,
            "bytes": figures.bytes,
            "latest_batches": figures.latest(),
            "quarantined": figures.quarantined,
            **({"quarantine": quarantine} if figures.quarantined else {}),
            "dropped": figures.dropped,
            **({"expect": {name: figures.failed[name] for name in ctx.params.expect}} if ctx.params.expect else {}),
            "waiting": attempt.waiting,
            "version": table.version(),
            "table": ctx.params.table,
            "seconds": round(time.monotonic() - began_s, 3),
        }


def _table(params: IngestParams) -> str:
    """Return the path of the table's folder, or its URL."""
    return without_protocol(params.table) if is_local(params.table) else params.table


def _tables(params: IngestParams) -> list[str]:
    """Return the tables that an ingest writes, as paths or URLs: its own, and the quarantine."""
    table = _table(params)
    return [table, quarantine_of(table)] if params.malformed == "quarantine" else [table]


def _reach(params: IngestParams, table: str) -> Reach:
    if is_local(table):
        return Reach("table", "destination", params.table, table, inner=INNER)
    return remote("table", "destination", table, params.options)


def _check_links(ctx: Context[IngestParams], table: str) -> None:
    """Raise `AccessRefused` unless this attempt may write to a table's folder, and to the targets of symlinks in it."""
    if is_local(table):
        folder, guard = Path(table), FileGuard(ctx.access, "destination")
        for inner in (folder, folder / "_delta_log", folder / "_rota" / ctx.task, folder / ctx.task):
            guard.resolve(inner)


def _place(ctx: Context[IngestParams], table: str) -> Place:
    """Return the place of a table of this ingest. Raises `AccessRefused`, `MissingSecret` and `BadDestination`."""
    _check_links(ctx, table)
    if is_local(table):
        return Place(table, {}, ctx.access)
    return Place(table, resolved(ctx.params.options, ctx.secret), ctx.access)
