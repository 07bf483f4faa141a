"""The kind `maintain`: keeps a Delta table in shape, with only pyarrow and deltalake, without Spark.

The steps: (1) Merge small files, or sort the rows of partitions, and compare the new files with the old ones before
each commit. (2) Remove files that have not been part of the table for long enough. (3) Write a checkpoint of the log
and remove expired entries. (4) Merge old pages of the ledgers. Each step may be repeated, and the table is correct at
any moment between them.
"""

import time
from typing import TYPE_CHECKING, Any

from spark_tasks.maintain.params import MaintainParams
from spark_tasks.storage.stored import open_place
from tasks.kind import Context
from tasks.needs import Needs
from tasks.reach import Reach

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_tasks.maintain.layout import DataFile

RESULT = {
    "compacted_files": "the number of files that were merged with others",
    "clustered_files": "the number of files whose rows were sorted",
    "compared_rows": "the number of rows in these files, which were compared before and after",
    "checksum": "the sum of the hashes of these rows, which was the same before and after; null if there were none",
    "files_before": "the number of files that held the table's rows before",
    "files_after": "their number after",
    "bytes_before": "the size of the files that held the table's rows before",
    "bytes_after": "their size after",
    "removed_files": "the number of files that were removed, which were not part of the table",
    "removed_bytes": "their size",
    "removed_log_files": "the number of files of the log that were removed",
    "removed_pages": "the number of the ledger's pages that were removed after they had been merged into another",
    "rows": "the number of rows of the table; null if its log does not say",
    "version": "the version of the table",
    "table": "the folder or the URL of the table",
    "dry_run": "whether nothing was done, and the figures say what would be",
    "seconds": "how long the attempt took",
}
"""The fields of a run's result, for the reference."""


class Maintain:
    """Keeps a Delta table in shape: merges small files, sorts rows, removes files that are no longer part of the table.

    Tasks may write the table at the same time. It needs no Spark and no Java.
    """

    Params = MaintainParams
    requires = ("pyarrow", "deltalake")

    @staticmethod
    def local_data(params: MaintainParams) -> list[str]:
        """Return the params that name data on the member's own disk (`tasks.kind.Kind`)."""
        return ["table"] if params.on_own_disk else []

    @staticmethod
    def reaches(params: MaintainParams, task: str) -> list[Reach]:
        """Return the paths and hosts that the params of `task` name (`tasks.kind.Kind`)."""
        return [params.reach("table")]

    @staticmethod
    def needs(params: MaintainParams, task: str) -> Needs:
        """Return the needs of an attempt: the table, the network and credentials (`tasks.kind.Kind`)."""
        reach = params.reach("table")
        return Needs(reaches=(reach,), network=reach.path is None, own_credentials=params.own_credentials)

    def run(self, ctx: Context[MaintainParams]) -> dict[str, Any]:
        """Maintain the table. Returns its files before and after, and the removed files.

        Raises `AccessRefused`, `Fenced`, `LedgerDamaged`, `MissingSecret`, `TableUnfit`, and the errors of
        `maintain.errors` and `storage.errors`.
        """
        from spark_tasks.maintain.attempt import MaintainAttempt
        from spark_tasks.maintain.table import MaintainedTable

        began_s = time.monotonic()
        table = MaintainedTable(open_place(ctx, ctx.params, ("_delta_log", "_rota")), ctx.task)
        work = MaintainAttempt(ctx, table).run()
        handle = table.handle()
        after = table.data_files(handle)
        return {
            "compacted_files": work.rewritten.compacted,
            "clustered_files": work.rewritten.clustered,
            "compared_rows": work.rewritten.sum.rows,
            "checksum": work.rewritten.sum.shown if work.rewritten.sum.rows else None,
            "files_before": len(work.before),
            "files_after": len(after),
            "bytes_before": sum(file.size_bytes for file in work.before),
            "bytes_after": sum(file.size_bytes for file in after),
            "removed_files": work.removed.files,
            "removed_bytes": work.removed.size_bytes,
            "removed_log_files": work.log_files,
            "removed_pages": work.pages,
            "rows": _rows(after),
            "version": handle.version(),
            "table": ctx.params.table,
            "dry_run": ctx.params.dry_run,
            "seconds": round(time.monotonic() - began_s, 3),
        }


def _rows(files: "Sequence[DataFile]") -> int | None:
    known = [file.rows for file in files if file.rows is not None]
    return sum(known) if len(known) == len(files) else None
