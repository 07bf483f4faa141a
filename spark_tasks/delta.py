r"""From Spark's Parquet files to one Delta commit, which a batch gets once (DESIGN.md, section 12).

A table's folder, as an ingest leaves it:

    _delta_log/                              Delta's own
    TASK/00000007-42/part-*.parquet          what batch 7 brought, written by the attempt with token 42
    _rota/TASK/00000007-42.json              the batch's page in the ledger: its files, its rows, the page before it

**The log is the truth.** A batch's commit carries the app transactions `rota/TASK` with its number and
`rota/TASK/token` with the token that wrote it. Together they name the last page of the ledger that counts, and
each page names the one before. Whatever else lies in these folders was written by an attempt that did not
commit, and nobody reads it.

**A batch is committed once**, whoever tries: the table is read, its batch number compared, and the commit made
against what was read. If another attempt commits the same batch in between, Delta refuses the second one, because
both carry the same app transaction.

**An attempt with an old token commits nothing** once a later one has begun here: that one says so in the log first,
in `rota/TASK/holder`, which every batch's commit carries as well and is checked against.

**A power cut takes nothing that was committed**: a batch's files and its page are on the disk before the log may
name them, and the log is before anybody is told.
"""

import json
import shutil
from pathlib import Path
from urllib.parse import quote

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import parquet

from spark_tasks.durable import sync, sync_names
from spark_tasks.ledger import Ledger, Mark, named

LOG = "_delta_log"

RECENT = 8
"""So many entries of the log may not be on the disk yet: one of each writer that was at work a moment ago."""


class Overtaken(Exception):
    """Another attempt has committed this batch, or has the table now. Nothing of this one's batch is in it."""


class TableUnfit(Exception):
    """The table at that place cannot take this ingest."""


def app_id(task: str) -> str:
    """The app transaction that counts a task's batches. Delta keeps it in the table's own log."""
    return f"rota/{task}"


class Table:
    """A Delta table in a local folder, as the task `task` sees it."""

    def __init__(self, folder: Path, task: str) -> None:
        self.folder = folder
        self.task = task
        self.ledger = Ledger(folder, task)

    def _open(self) -> DeltaTable | None:
        try:
            return DeltaTable(self.folder)
        except TableNotFoundError:
            return None

    def schema_json(self) -> str | None:
        """The schema as JSON, in the form that Spark and Delta share; None if there is no table yet.

        Raises `TableUnfit` for a table that this ingest does not know how to write.
        """
        table = self._open()
        if table is None:
            return None
        if table.metadata().partition_columns:
            raise TableUnfit(f"{self.folder} is partitioned, which an ingest does not write")
        return str(table.schema().to_json())

    def last(self) -> Mark | None:
        """The last batch of this task that is in the table."""
        table = self._open()
        return None if table is None else self._last(table)

    def _last(self, table: DeltaTable) -> Mark | None:
        batch = table.transaction_version(app_id(self.task))
        token = table.transaction_version(f"{app_id(self.task)}/token")
        return None if batch is None or token is None else Mark(batch, token)

    def holder(self) -> int | None:
        """The token of the attempt that has this task's part of the table; None if there has been none."""
        table = self._open()
        return None if table is None else self._holder(table)

    def _holder(self, table: DeltaTable) -> int | None:
        holder = table.transaction_version(f"{app_id(self.task)}/holder")
        if holder is None and (last := self._last(table)) is not None:  # of an earlier version
            return last.token
        return holder

    def claim(self, token: int, instead_of: int | None) -> bool:
        """Say in the log that the attempt with that token has the table; False if its holder is not `instead_of` now.

        Greater tokens may be those of a cluster that was given up: it is for the caller to know that its own is good.
        """
        table = self._open()
        if table is None or self._holder(table) != instead_of:
            return False
        try:
            self._append(table, [], [self._holds(token)])
        except DeltaError:
            if self._holder(DeltaTable(self.folder)) == instead_of:
                raise
            return False
        return True

    def _holds(self, token: int) -> Transaction:
        return Transaction(f"{app_id(self.task)}/holder", token)

    def version(self) -> int | None:
        """The table's version; None if there is no table yet."""
        table = self._open()
        return None if table is None else table.version()

    def parquet_folder(self, mark: Mark) -> Path:
        """Where the attempt with that token writes that batch."""
        return self.folder / self.task / mark.name

    def rows_in(self, mark: Mark) -> int:
        """How many rows the batch's Parquet files hold, by their footers."""
        return sum(_rows(path) for path in self._parts(mark))

    def _parts(self, mark: Mark) -> list[Path]:
        return sorted(self.parquet_folder(mark).glob("part-*.parquet"))

    def commit(self, mark: Mark, schema_json: str) -> int:
        """Put the batch's files into the table, in one transaction. The table's version after it.

        Raises `Overtaken` if the batch is in the table by another attempt's doing, or if one with a greater token has
        the table; `TableUnfit` if Delta cannot take the schema, or if an earlier batch is missing. Safe to repeat by
        the same attempt.
        """
        table = self._open() or self._create(mark, schema_json)
        if not self._is_in(table, mark):
            self._check_follows(mark, self._last(table))
            for part in self._parts(mark):
                sync(part)
            sync_names(self.parquet_folder(mark), within=self.folder.parent)
            try:
                self._append(
                    table,
                    [self._add(path) for path in self._parts(mark)],
                    [
                        Transaction(app_id(self.task), mark.batch),
                        Transaction(f"{app_id(self.task)}/token", mark.token),
                        self._holds(mark.token),
                    ],
                    {"rota.task": self.task, "rota.batch": str(mark.batch)},
                )
            except DeltaError:
                # Refused, or not answered: the log says which.
                if not self._is_in(DeltaTable(self.folder), mark):
                    raise
        self.keep()
        return int(DeltaTable(self.folder).version())

    def _append(
        self,
        table: DeltaTable,
        files: list[AddAction | RemoveAction],
        transactions: list[Transaction],
        about: dict[str, str] | None = None,
    ) -> None:
        """Commit against what `table` has read: Delta refuses if one of these app transactions has moved since."""
        said = CommitProperties(custom_metadata=about, app_transactions=transactions)
        table.create_write_transaction(files, "append", table.schema(), commit_properties=said)

    def keep(self) -> None:
        """See that what the log says is on the disk: who committed it may have been stopped before it was."""
        version = self.version()
        if version is None:
            return
        log = self.folder / LOG
        for each in range(max(0, version + 1 - RECENT), version + 1):
            for path in log.glob(f"{each:020d}.*"):
                sync(path)
        if (log / "_last_checkpoint").exists():
            sync(log / "_last_checkpoint")
        sync_names(log, within=self.folder.parent)

    def _create(self, mark: Mark, schema_json: str) -> DeltaTable:
        """Make the table, empty: a commit is checked against others only where there is a table to read.

        deltalake lets two that create a table at the same moment both succeed, one on top of the other. So the log is
        made aside and renamed into place, which the second one cannot do.
        """
        try:
            schema = Schema.from_json(schema_json)
        except ValueError as error:
            raise TableUnfit(f"Delta has no type for a column of {schema_json}: {error}") from error
        aside = self.ledger.path(mark).with_suffix(".new")
        aside.mkdir(parents=True, exist_ok=True)
        try:
            DeltaTable.create(str(aside), schema, mode="overwrite")
            (aside / LOG).rename(self.folder / LOG)
        except OSError:
            if not DeltaTable.is_deltatable(str(self.folder)):
                raise
        finally:
            shutil.rmtree(aside)
        return DeltaTable(self.folder)

    def _is_in(self, table: DeltaTable, mark: Mark) -> bool:
        last = self._last(table)
        if last == mark:
            return True
        if last is not None and last.batch >= mark.batch:
            raise Overtaken(
                f"batch {mark.batch} is in {self.folder} by the attempt with token {last.token}, not {mark.token}"
            )
        holder = self._holder(table)
        if holder is not None and holder > mark.token:
            raise Overtaken(f"the attempt with token {holder} has {self.folder}, not the one with {mark.token}")
        return False

    def _check_follows(self, mark: Mark, last: Mark | None) -> None:
        due = 1 if last is None else last.batch + 1
        if mark.batch != due:
            raise TableUnfit(
                f"{self.folder} lacks batches {due} to {mark.batch - 1} of {self.task}: it was put back or replaced"
            )

    def _add(self, path: Path) -> AddAction:
        about = path.stat()
        relative = quote(path.relative_to(self.folder).as_posix())
        stats = json.dumps({"numRecords": _rows(path)})
        return AddAction(relative, about.st_size, {}, about.st_mtime_ns // 1_000_000, data_change=True, stats=stats)

    def clean(self) -> list[str]:
        """Remove what earlier attempts wrote and can never commit; the names of what went.

        Only batches that are in the table by another's doing: what belongs to a later batch may be an attempt at work.
        """
        last = self.last()
        if last is None:
            return []
        kept = {page.mark for page in self.ledger.pages(last)}
        gone = []
        for folder in (self.folder / self.task, self.ledger.folder):
            for path in folder.iterdir() if folder.is_dir() else ():
                mark = named(path.name.partition(".")[0])
                if mark is not None and mark.batch <= last.batch and mark not in kept:
                    _remove(path)
                    gone.append(path.relative_to(self.folder).as_posix())
        return sorted(gone)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _rows(path: Path) -> int:
    return int(parquet.read_metadata(path).num_rows)
