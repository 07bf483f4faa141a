"""One attempt at the maintenance of a table, step by step (`kind` describes the steps)."""

import time
from dataclasses import dataclass, field
from typing import Final

from spark_tasks.maintain.cleaning import clean_ledgers, clean_log
from spark_tasks.maintain.errors import MaintainStopped
from spark_tasks.maintain.layout import DataFile
from spark_tasks.maintain.params import MaintainParams
from spark_tasks.maintain.rewriting import RewriteWork, Rewriting
from spark_tasks.maintain.table import MaintainedTable
from spark_tasks.maintain.vacuuming import RemovedFiles, vacuum
from tasks.kind import Context

HOUR_S: Final = 3600

STEPS: Final = ("rewrite", "remove files", "clean the log", "merge the ledger's pages")
"""The steps of an attempt, in order."""


@dataclass
class MaintainWork:
    """The work that an attempt has done, or would do."""

    #: The table's files before the attempt.
    before: list[DataFile]
    #: The outcome of the rewrites.
    rewritten: RewriteWork = field(default_factory=RewriteWork)
    #: The number and size of the files that were removed.
    removed: RemovedFiles = field(default_factory=RemovedFiles)
    #: The number of files of the log that were removed.
    log_files: int = 0
    #: The number of the ledgers' pages that were removed after they had been merged.
    pages: int = 0


class MaintainAttempt:
    """One attempt at keeping `table` in shape."""

    def __init__(self, ctx: Context[MaintainParams], table: MaintainedTable) -> None:
        self.ctx = ctx
        self.table = table
        self.params = ctx.params

    def run(self) -> MaintainWork:
        """Do all steps. Raises `Fenced`, `MaintainStopped`, and the errors of the steps."""
        params = self.params
        handle = self.table.handle()
        self.table.check_fit(handle, params.cluster_by)
        if not params.dry_run:
            self.table.check_writable()
            self.table.sync_log()
        work = MaintainWork(self.table.data_files(handle))
        self._begin("rewrite")
        work.rewritten = Rewriting(self.ctx, self.table).run()
        self._begin("remove files")
        work.removed = vacuum(self.table, self.ctx.token, params.keep_h, full=params.full, dry_run=params.dry_run)
        self._begin("clean the log")
        if not params.dry_run:
            work.log_files = clean_log(self.table)
        self._begin("merge the ledger's pages")
        work.pages = clean_ledgers(self.table, time.time(), params.keep_h * HOUR_S, dry_run=params.dry_run)
        return work

    def _begin(self, step: str) -> None:
        """Begin a step. Raises `MaintainStopped` if asked to stop, and `Fenced` if the run has been taken over.

        An attempt with an old token would do no harm: its rewrites are refused once the next attempt holds the table,
        and the files that it removes are older than any attempt.
        """
        if self.ctx.cancelled:
            raise MaintainStopped("asked to stop; the next run does the other steps")
        self.ctx.log.info("step: %s", step)
        if not self.params.dry_run:
            self.ctx.save_checkpoint({"step": step})
