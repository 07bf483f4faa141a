"""Rewrites the files of a table that are not in shape, and commits one group of bins (see `layout`) at a time.

The rows of a group are first written and compared, and then committed (`MaintainedTable.exchange`). If another writer
has changed one of the group's files meanwhile, the new files are removed, and the work is planned again.
"""

import uuid
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from deltalake import DeltaTable

from spark_tasks.maintain.bin_writer import BinWriter, WrittenBin
from spark_tasks.maintain.errors import FileUnreadable, MaintainStopped, TableInUse
from spark_tasks.maintain.layout import Bin, bins, cluster_mark, groups
from spark_tasks.maintain.params import MaintainParams
from spark_tasks.maintain.reading import FileGone
from spark_tasks.maintain.row_sums import RowSum
from spark_tasks.maintain.table import FOLDER, MaintainedTable, TableForm, schema_in_files
from tasks.kind import Context

ROUNDS: Final = 5
"""The most rounds of planning. Another round is needed if other writers change some of the files while they are
rewritten.
"""


@dataclass
class RewriteWork:
    """The files that were or would be rewritten: how many were compacted and clustered, and the sum of their rows."""

    compacted: int = 0
    clustered: int = 0
    sum: RowSum = field(default_factory=RowSum)

    def count(self, some: Collection[Bin], rows: RowSum) -> None:
        """Count the files of these bins, whose rows have the sum `rows`."""
        self.compacted += sum(len(one.files) for one in some if one.how == "compact")
        self.clustered += sum(len(one.files) for one in some if one.how == "cluster")
        self.sum += rows


class Rewriting:
    """Rewrites the files of `table` in one attempt. `work` counts the files that it has committed so far."""

    def __init__(self, ctx: Context[MaintainParams], table: MaintainedTable) -> None:
        self.ctx = ctx
        self.table = table
        self.params = ctx.params
        self.work = RewriteWork()
        self._numbers = 0
        self._told: tuple[int, int] = (0, 0)

    def run(self) -> RewriteWork:
        """Rewrite all bins; with `dry_run` only count them. Raises `Fenced`, and the errors of `maintain.errors`."""
        for _ in range(ROUNDS):
            handle = self.table.handle()
            self.table.check_fit(handle, self.params.cluster_by)
            wanted = self._planned(handle)
            if not wanted:
                self.ctx.log.info("all files are in shape")
                return self.work
            if self.params.dry_run:
                self.work.count(wanted, RowSum())
                return self.work
            if self._rewrite(handle, wanted):
                return self.work
        raise TableInUse(
            f"other writers changed files of {self.table.shown} during each of {ROUNDS} rewrites: run this task when "
            "fewer writers are active, or run it more often, so that each run has less to do"
        )

    def _planned(self, handle: DeltaTable) -> list[Bin]:
        params, files = self.params, self.table.data_files(handle)
        fixed = sum(not file.movable for file in files)
        if fixed:
            self.ctx.log.warning(
                "%d files stay as they are: another program has spelled their paths in the table's log in a way that "
                "deltalake cannot name",
                fixed,
            )
        mark = cluster_mark(params.cluster_by) if params.cluster_by else None
        return bins(files, mark, params.target_bytes, params.min_files)

    def _rewrite(self, handle: DeltaTable, wanted: list[Bin]) -> bool:
        """Rewrite bins of the table at the version of `handle`. Returns False if other writers have changed some of the
        files.
        """
        params, form = self.params, self.table.form(handle)
        writer = BinWriter(
            place=self.table.place,
            schema=schema_in_files(handle),
            by=form.partition_by,
            folder=f"{self.ctx.task}/{FOLDER}{self.ctx.token}-{uuid.uuid4().hex}",
            scratch=self.ctx.scratch,
            memory_bytes=params.memory_bytes,
            target_bytes=params.target_bytes,
            progress=self._check_cancelled,
        )
        size_bytes = sum(one.size_bytes for one in wanted)
        self.ctx.log.info("rewrite %d files with %d bytes", sum(len(one.files) for one in wanted), size_bytes)
        self._checkpoint(0, size_bytes)
        self.table.hold(self.ctx.token)
        whole, done_bytes = True, 0
        for some in groups(wanted, params.target_bytes):
            if done_bytes:
                self._checkpoint(done_bytes, size_bytes)
            written = self._written(writer, some)
            if written is None or not self._committed(writer, form, some, written):
                self.ctx.log.info("others have changed some of these files: they are planned anew")
                whole = False
            done_bytes += sum(one.size_bytes for one in some)
        self.ctx.progress(size_bytes, size_bytes, "bytes")
        return whole

    def _checkpoint(self, done_bytes: int, size_bytes: int) -> None:
        """Report the progress, and commit a checkpoint. Raises `MaintainStopped`, and `Fenced`."""
        self._check_cancelled()
        self.ctx.progress(done_bytes, size_bytes, "bytes")
        self.ctx.save_checkpoint({"step": "rewrite", "bytes": done_bytes, "of": size_bytes})

    def _check_cancelled(self) -> None:
        if self.ctx.cancelled:
            raise MaintainStopped("asked to stop; what was committed stays, and the next run does the rest")

    def _written(self, writer: BinWriter, some: Sequence[Bin]) -> list[WrittenBin] | None:
        """Write the new files of these bins, and compare them with the old ones. Returns None if an old file was
        removed meanwhile.
        """
        written: list[WrittenBin] = []
        columns, mark = self.params.cluster_by, cluster_mark(self.params.cluster_by)
        try:
            for one in some:
                self._numbers += 1
                written.append(writer.write(one, self._numbers, columns, mark))
        except FileGone as error:
            self._remove(writer, written)
            self._check_gone(some, error)
            return None
        except BaseException:
            with suppress(Exception):  # the storage may have failed; a vacuum with `full` finds files that remain
                self._remove(writer, written)
            raise
        return written

    def _remove(self, writer: BinWriter, written: Sequence[WrittenBin]) -> None:
        writer.remove([part for one in written for part in one.parts])

    def _check_gone(self, some: Sequence[Bin], error: FileGone) -> None:
        """Raise `FileUnreadable` if a missing file is still part of the table."""
        there = {file.path for file in self.table.data_files(self.table.handle())}
        if all(file.path in there for one in some for file in one.files):
            raise FileUnreadable(
                f"{error} is not there, though the table's log names it: another program has removed it, as by a "
                "vacuum that keeps files for less time than their writers take. Restore it, or take it out of the table"
            ) from None

    def _committed(self, writer: BinWriter, form: TableForm, some: Sequence[Bin], written: list[WrittenBin]) -> bool:
        rows = sum((one.sum for one in written), RowSum())
        old = [file for one in some for file in one.files]
        new = [part for one in written for part in one.parts]
        self.ctx.log.info("compared: %d rows, checksum %s", rows.rows, rows.shown)
        # If this raises, the outcome may be unknown, so the new files stay. A vacuum with `full` finds them if they
        # were not committed.
        if not self.table.exchange(self.ctx.token, form, old, new, uuid.uuid4().hex):
            self._remove(writer, written)
            return False
        self.work.count(some, rows)
        self.ctx.log.info("committed: %d files instead of %d", len(new), len(old))
        return True
