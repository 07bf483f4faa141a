r"""Commits the Parquet files that Spark wrote for a batch to a Delta table, exactly once.

A table's folder after an ingest:

    _delta_log/                              Delta's own log
    TASK/00000007-42/part-*.parquet          the rows of batch 7, written by the attempt with token 42
    _rota/TASK/00000007-42.json              the batch's page in the ledger: its files, its rows, the previous page

**The log decides what is in the table.** A batch's commit carries the app transactions `rota/TASK` with its number and
`rota/TASK/token` with the token of its attempt. Together they name the last valid page of the ledger, and each page
names the previous one. All other files in these folders were written by attempts that did not commit, and are never
read.

**A batch is committed once**, whichever attempt tries: the attempt reads the table, compares the batch number, and
commits against the version that it has read. If another attempt commits the same batch in between, Delta refuses the
second commit, because both carry the same app transaction.

**An attempt with an old token commits nothing** after a later attempt has begun: the later attempt first writes its
token to the log as `rota/TASK/holder`. Every batch's commit carries and checks this transaction as well.

**A power cut loses nothing that was committed**: a batch's files and its page are synced before the log names them, and
the log is synced before the batch is reported as committed.
"""

import json
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import unquote

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import parquet

from spark_tasks.table.ledger import Ledger, Mark, named
from tasks.fsync import sync, sync_names

LOG = "_delta_log"

RECENT = 8
"""The number of newest log entries that may not be on the disk yet: one of each recent writer."""


class Overtaken(Exception):
    """Another attempt has committed this batch, or holds the table now. Nothing of this attempt's batch is in it."""


class TableUnfit(Exception):
    """The table cannot be written by this ingest."""


def app_id(task: str) -> str:
    """The id of the app transaction that counts a task's batches, which Delta keeps in the table's log."""
    return f"rota/{task}"


class Table:
    """A Delta table in a local folder, with the ledger of the task `task`.

    `partition_by` are the columns by which a table that is made here is partitioned.
    """

    def __init__(self, folder: Path, task: str, partition_by: Sequence[str] = ()) -> None:
        self.folder = folder
        self.task = task
        self.partition_by = list(partition_by)
        self.ledger = Ledger(folder, task)

    def _open(self) -> DeltaTable | None:
        try:
            return DeltaTable(self.folder)
        except TableNotFoundError:
            return None

    def schema_json(self) -> str | None:
        """The schema as JSON, in the form that Spark and Delta share; None if there is no table yet."""
        table = self._open()
        return None if table is None else str(table.schema().to_json())

    def partitioned_by(self) -> list[str]:
        """The columns by which the table is, or will be, partitioned.

        Raises `TableUnfit` if the table is there, and partitioned by others than `partition_by` names.
        """
        table = self._open()
        if table is None:
            return self.partition_by
        found = list(table.metadata().partition_columns)
        if self.partition_by and self.partition_by != found:
            by = f"by {', '.join(found)}" if found else "not at all"
            raise TableUnfit(
                f"{self.folder} is partitioned {by}, and the task's `partition_by` is {', '.join(self.partition_by)}: "
                "change the task, or ingest into a new table"
            )
        return found

    def last(self) -> Mark | None:
        """The last batch of this task in the table; None if there is none."""
        table = self._open()
        return None if table is None else self._last(table)

    def _last(self, table: DeltaTable) -> Mark | None:
        batch = table.transaction_version(app_id(self.task))
        token = table.transaction_version(f"{app_id(self.task)}/token")
        return None if batch is None or token is None else Mark(batch, token)

    def holder(self) -> int | None:
        """The token of the attempt that holds this task's part of the table; None if there has been none."""
        table = self._open()
        return None if table is None else self._holder(table)

    def _holder(self, table: DeltaTable) -> int | None:
        holder = table.transaction_version(f"{app_id(self.task)}/holder")
        if holder is None and (last := self._last(table)) is not None:  # written by an earlier version
            return last.token
        return holder

    def claim(self, token: int, instead_of: int | None) -> bool:
        """Make the attempt with `token` the table's holder; False if the present holder is not `instead_of`.

        `instead_of` may be greater than `token`, if it is from an abandoned cluster. The caller must know that its own
        token is current.
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
        """The folder for the Parquet files of that batch, as the attempt with that token writes it."""
        return self.folder / self.task / mark.name

    def rows_in(self, mark: Mark) -> int:
        """The number of rows in the batch's Parquet files, from their footers."""
        return sum(_rows(path) for path in self._parts(mark))

    def _parts(self, mark: Mark) -> list[Path]:
        return sorted(self.parquet_folder(mark).rglob("part-*.parquet"))

    def files(self) -> list[str]:
        """The paths of the files that hold the table's rows."""
        table = self._open()
        return [] if table is None else sorted(table.file_uris())

    def widened_folder(self, mark: Mark) -> Path:
        """The folder for the rows of earlier batches, if that batch widens the table's columns."""
        return self.folder / self.task / f"{mark.name}.widened"

    def rows_of(self, files: Iterable[str]) -> int:
        """The number of rows in those files of the table, from their footers."""
        return sum(_rows(Path(file)) for file in files)

    def rows_widened(self, mark: Mark) -> int:
        """The number of rows in `widened_folder`, from the footers of its files."""
        return sum(map(_rows, self._widened(mark)))

    def _widened(self, mark: Mark) -> list[Path]:
        return sorted(self.widened_folder(mark).glob("part-*.parquet"))

    def commit(self, mark: Mark, schema_json: str, replaced: frozenset[str] | None = None) -> int:
        """Commit the batch's files to the table in one transaction; the table's version after it.

        Columns that the table lacks are added, before. With `replaced`, the files in `widened_folder` take the place of
        these files in the same transaction, and the columns become those of `schema_json`.

        Raises `Overtaken` if another attempt has committed the batch, or if one with a greater token holds the table;
        `TableUnfit` if Delta cannot take the schema, or if an earlier batch is missing. The same attempt may repeat it.
        """
        table = self._open() or self._create(mark, schema_json)
        if not self._is_in(table, mark):
            self._check_follows(mark, self._last(table))
            parts = self._parts(mark) + ([] if replaced is None else self._widened(mark))
            for part in parts:
                sync(part)
            for folder in sorted({self.parquet_folder(mark), *(part.parent for part in parts)}):
                sync_names(folder, within=self.folder.parent)
            if replaced is not None and replaced != set(table.file_uris()):
                raise TableUnfit(f"{self.folder} was written by another program while its columns were widened")
            try:
                if replaced is None:
                    self._add_columns(table, mark, schema_json)
                self._append(
                    table,
                    [self._add(path) for path in parts],
                    [
                        Transaction(app_id(self.task), mark.batch),
                        Transaction(f"{app_id(self.task)}/token", mark.token),
                        self._holds(mark.token),
                    ],
                    {"rota.task": self.task, "rota.batch": str(mark.batch)},
                    wider=None if replaced is None else Schema.from_json(schema_json),
                )
            except DeltaError:
                # The commit was refused, or its outcome is unknown: the log has the answer.
                if not self._is_in(DeltaTable(self.folder), mark):
                    raise
        self.sync_log()
        return int(DeltaTable(self.folder).version())

    def _append(
        self,
        table: DeltaTable,
        files: list[AddAction | RemoveAction],
        transactions: list[Transaction],
        about: dict[str, str] | None = None,
        wider: Schema | None = None,
    ) -> None:
        """Commit against the version of `table`: Delta refuses if one of these app transactions has changed since.

        With `wider`, the files take the place of all others, and the table has these columns. Delta would let a commit
        in between pass, whose files have the columns of before: then this one may not be tried again.
        """
        retries = None if wider is None else 0
        said = CommitProperties(about, max_commit_retries=retries, app_transactions=transactions)
        by = list(table.metadata().partition_columns)
        mode, schema = ("append", table.schema()) if wider is None else ("overwrite", wider)
        table.create_write_transaction(files, mode, schema, partition_by=by, commit_properties=said)

    def _add_columns(self, table: DeltaTable, mark: Mark, schema_json: str) -> None:
        """Add the columns of `schema_json` that `table` lacks. An attempt that was overtaken cannot."""
        known = {field.name for field in table.schema().fields}
        new = [field for field in Schema.from_json(schema_json).fields if field.name not in known]
        if new:
            said = CommitProperties(app_transactions=[self._holds(mark.token)])
            table.alter.add_columns(new, commit_properties=said)

    def sync_log(self) -> None:
        """Sync the newest entries of the log: an attempt may have been killed between its commit and its sync."""
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
        """Make an empty table: Delta checks a commit for conflicts only if there is a table to read.

        If two attempts create a table at the same time, deltalake lets both succeed, and one overwrites the other. So
        the log is made in another folder and renamed into place, which fails for the second attempt.
        """
        try:
            schema = Schema.from_json(schema_json)
        except ValueError as error:
            raise TableUnfit(f"Delta has no type for one of the columns in {schema_json}: {error}") from error
        aside = self.ledger.path(mark).with_suffix(".new")
        aside.mkdir(parents=True, exist_ok=True)
        try:
            DeltaTable.create(str(aside), schema, mode="overwrite", partition_by=self.partition_by)
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
                f"the attempt with token {last.token}, not {mark.token}, has committed batch {mark.batch} to "
                f"{self.folder}"
            )
        holder = self._holder(table)
        if holder is not None and holder > mark.token:
            raise Overtaken(f"the attempt with token {holder}, not {mark.token}, holds {self.folder}")
        return False

    def _check_follows(self, mark: Mark, last: Mark | None) -> None:
        due = 1 if last is None else last.batch + 1
        if mark.batch != due:
            raise TableUnfit(
                f"{self.folder} lacks batches {due} to {mark.batch - 1} of {self.task}: it was restored or replaced"
            )

    def _add(self, path: Path) -> AddAction:
        about = path.stat()
        relative = path.relative_to(self.folder)
        values = partition_values(relative.parent)
        stats = json.dumps({"numRecords": _rows(path)})
        modified_ms = about.st_mtime_ns // 1_000_000
        return AddAction(relative.as_posix(), about.st_size, values, modified_ms, data_change=True, stats=stats)

    def clean(self) -> list[str]:
        """Remove files of earlier attempts that can never be committed; their names.

        Only files of batches that another attempt has committed: a later batch may belong to a running attempt.
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


def partition_values(folder: Path) -> dict[str, str | None]:
    """The values of the partition columns of the files in a folder, by the names that Spark gives to such folders.

    >>> partition_values(Path("TASK/00000001-1/year=2013/at=05%3A00/by=__HIVE_DEFAULT_PARTITION__"))
    {'year': '2013', 'at': '05:00', 'by': None}
    """
    pairs = (part.partition("=") for part in folder.parts if "=" in part)
    return {unquote(name): None if value == _NULL else unquote(value) for name, _, value in pairs}


_NULL = "__HIVE_DEFAULT_PARTITION__"


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _rows(path: Path) -> int:
    return int(parquet.read_metadata(path).num_rows)
