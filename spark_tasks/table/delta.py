r"""Commits the Parquet files that Spark wrote for a batch to a Delta table, exactly once.

A table is a local folder, or a prefix in an object store that supports conditional writes. Its content after an ingest:

    _delta_log/                              Delta's own log
    TASK/00000007-42/part-*.parquet          the rows of batch 7, written by the attempt with token 42
    _rota/TASK/00000007-42.json              the batch's page in the ledger: its files, its rows, the previous page

**The log decides what is in the table.** A batch's commit carries the app transactions `rota/TASK` with its number and
`rota/TASK/token` with the token of its attempt. Together they name the last valid page of the ledger, and each page
names the previous one. All other files in these folders were written by attempts that did not commit, and are never
read.

**A batch is committed once**, whichever attempt tries: the attempt reads the table, compares the batch number, and
commits against the version that it has read. If another attempt commits the same batch in between, Delta refuses the
second commit, because both carry the same app transaction. If two writers create one version of the log, one of them
fails: by a hard link in a folder, and by a conditional write in an object store.

**An attempt with an old token commits nothing** after a later attempt has begun: the later attempt first writes its
token to the log as `rota/TASK/holder`. Every batch's commit carries and checks this transaction as well.

**A power cut loses nothing that was committed**: a batch's files and its page are synced before the log names them, and
the log is synced before the batch is reported as committed. An object store keeps what it has acknowledged.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from spark_tasks.storage.errors import StoreAway, store_errors
from spark_tasks.storage.store import heeds_conditions, open_store
from spark_tasks.table.ledger import Ledger, Mark, mark_named
from spark_tasks.table.part import Part
from tasks.places.fsync import sync, sync_names
from tasks.places.place import Place

LOG = "_delta_log"

FIRST = f"{LOG}/{0:020d}.json"
"""The first entry of a table's log."""

PROBE = "_rota/.conditional-writes"
"""The path of an empty object that tests a store: a second write on condition that the object does not exist
must fail.
"""

RECENT = 8
"""The number of newest log entries to sync: each may be from a writer that was killed before it synced its entry."""


class Overtaken(Exception):
    """Another attempt has committed this batch, or holds the table now. The table has no rows of this attempt."""


class TableUnfit(Exception):
    """The table cannot be written by this ingest."""


def app_id(task: str) -> str:
    """Return the id of the app transaction that counts a task's batches, which Delta keeps in the table's log."""
    return f"rota/{task}"


class Table:
    """A Delta table at `place`, with the ledger of the task `task`.

    `partition_by` are the partition columns, if the table is created here.

    All methods raise `NoBucket`, `NoPermission` and `StoreAway` for an object store that fails.
    """

    def __init__(self, place: Place, task: str, partition_by: Sequence[str] = ()) -> None:
        self.place = place
        self.task = task
        self.partition_by = list(partition_by)
        self.ledger = Ledger(place, task)
        self._store = open_store(place)
        self._knows_conditions = place.is_local

    @property
    def shown(self) -> str:
        """The table's path or URL, for messages."""
        return self.place.path if self.place.is_local else self.place.url

    def _load(self) -> DeltaTable:
        try:
            with store_errors(self.place):
                return DeltaTable(self.shown, storage_options=self._store)
        except TableNotFoundError:
            raise
        except DeltaError as error:
            said = str(error).partition("\n")[0]
            why = "is a file, and a table is a folder" if self._is_file() else f"has a log that cannot be read: {said}"
            raise TableUnfit(f"{self.shown} {why}") from None

    def _is_file(self) -> bool:
        return self.place.is_local and Path(self.place.path).is_file()

    def _open(self) -> DeltaTable | None:
        try:
            return self._load()
        except TableNotFoundError:
            return None

    def schema_json(self) -> str | None:
        """Return the schema as JSON, in the form that Spark and Delta share; None if there is no table yet."""
        table = self._open()
        return None if table is None else str(table.schema().to_json())

    def table_id(self) -> str:
        """Return the id that Delta gave to the table when it was created. Raises `TableNotFoundError`."""
        return str(self._load().metadata().id)

    def partitioned_by(self) -> list[str]:
        """Return the columns by which the table is, or will be, partitioned.

        Raises `TableUnfit` if the table exists and its partition columns are not those of `partition_by`.
        """
        table = self._open()
        if table is None:
            return self.partition_by
        found = list(table.metadata().partition_columns)
        if self.partition_by and self.partition_by != found:
            by = f"by {', '.join(found)}" if found else "not at all"
            raise TableUnfit(
                f"{self.shown} is partitioned {by}, and the task's `partition_by` is {', '.join(self.partition_by)}: "
                "change the task, or use a new table"
            )
        return found

    def last(self) -> Mark | None:
        """Return the last batch of this task in the table; None if there is no batch."""
        table = self._open()
        return None if table is None else self._last(table)

    def _last(self, table: DeltaTable) -> Mark | None:
        batch = table.transaction_version(app_id(self.task))
        token = table.transaction_version(f"{app_id(self.task)}/token")
        return None if batch is None or token is None else Mark(batch, token)

    def holder(self) -> int | None:
        """Return the token of the attempt that holds this task's part of the table; None if no attempt has ever held
        it.
        """
        table = self._open()
        return None if table is None else self._holder(table)

    def _holder(self, table: DeltaTable) -> int | None:
        holder = table.transaction_version(f"{app_id(self.task)}/holder")
        if holder is None and (last := self._last(table)) is not None:  # an earlier version of Rota wrote it
            return last.token
        return holder

    def claim(self, token: int, instead_of: int | None) -> bool:
        """Make the attempt with `token` the table's holder. Returns False if the present holder is not `instead_of`.

        `instead_of` may be greater than `token`, if it is from an abandoned cluster. The caller must know that its own
        token is current.
        """
        table = self._open()
        if table is None or self._holder(table) != instead_of:
            return False
        self._check_conditions()
        try:
            self._append(table, [], [self._holds(token)])
        except DeltaError:
            if self._holder(self._load()) == instead_of:
                raise
            return False
        return True

    def _holds(self, token: int) -> Transaction:
        return Transaction(f"{app_id(self.task)}/holder", token)

    def version(self) -> int | None:
        """Return the table's version; None if there is no table yet."""
        table = self._open()
        return None if table is None else table.version()

    def parquet_folder(self, mark: Mark) -> str:
        """Return the folder in the table for the Parquet files of the batch and attempt that `mark` names."""
        return f"{self.task}/{mark.name}"

    def handle(self) -> DeltaTable | None:
        """Return the table at its present version; None if there is no table yet."""
        return self._open()

    def widened_folder(self, mark: Mark) -> str:
        """Return the folder in the table for rows of earlier batches that a batch writes again because it widens
        columns.
        """
        return f"{self.task}/{mark.name}.widened"

    def _folders(self, mark: Mark) -> set[str]:
        return {self.parquet_folder(mark), self.widened_folder(mark)}

    def commit(
        self, mark: Mark, schema_json: str, parts: Sequence[Part], replaced: frozenset[str] | None = None
    ) -> int:
        """Commit the batch's files to the table in one transaction, and return the table's version after it.

        Columns that the table lacks are added first. `replaced` are the paths of all files in the table, if `parts`
        replace them in the same transaction. Then `parts` also hold the rows of these files, and the table's columns
        become those of `schema_json`.

        Raises `Overtaken` if another attempt has committed the batch, or if an attempt with a greater token holds the
        table; `TableUnfit` if Delta cannot represent the schema, or if an earlier batch is missing. The same attempt
        may repeat the commit.
        """
        self._check_conditions()
        table = self._open() or self._create(schema_json)
        if not self._is_in(table, mark):
            self._check_follows(mark, self._last(table))
            self._sync_parts(mark, parts)
            if replaced is not None and replaced != frozenset(table.file_uris()):
                raise TableUnfit(f"{self.shown} was written by another program while its columns were widened")
            try:
                if replaced is None:
                    self._add_columns(table, mark, schema_json)
                self._append(
                    table,
                    [add_action(part) for part in parts],
                    [
                        Transaction(app_id(self.task), mark.batch),
                        Transaction(f"{app_id(self.task)}/token", mark.token),
                        self._holds(mark.token),
                    ],
                    {"rota.task": self.task, "rota.batch": str(mark.batch)},
                    wider=None if replaced is None else Schema.from_json(schema_json),
                )
            except (DeltaError, StoreAway):
                # The commit was refused, or its outcome is unknown: the log has the answer.
                if not self._is_in(self._load(), mark):
                    raise
        self.sync_log()
        return int(self._load().version())

    def _sync_parts(self, mark: Mark, parts: Sequence[Part]) -> None:
        if not self.place.is_local:
            return
        folder = Path(self.place.path)
        for part in parts:
            sync(folder / part.path)
        own = folder / self.parquet_folder(mark)
        for each in sorted({own, *((folder / part.path).parent for part in parts)}):
            if each.is_dir():
                sync_names(each, top=folder)

    def _append(
        self,
        table: DeltaTable,
        files: list[AddAction | RemoveAction],
        transactions: list[Transaction],
        about: dict[str, str] | None = None,
        wider: Schema | None = None,
        *,
        alone: bool = False,
    ) -> None:
        """Commit against the version of `table`. Delta refuses the commit if one of these app transactions has changed
        since.

        With `wider`, `files` replace all files of the table, and its columns become those of `wider`. Such a commit is
        not retried, because Delta would accept it after another commit whose files have the earlier columns. With
        `alone` it is not retried either, so that any commit in between makes it fail.
        """
        retries = 0 if alone or wider is not None else None
        said = CommitProperties(about, max_commit_retries=retries, app_transactions=transactions)
        by = list(table.metadata().partition_columns)
        mode, schema = ("append", table.schema()) if wider is None else ("overwrite", wider)
        with store_errors(self.place):
            table.create_write_transaction(files, mode, schema, partition_by=by, commit_properties=said)

    def _add_columns(self, table: DeltaTable, mark: Mark, schema_json: str) -> None:
        """Add the columns of `schema_json` that `table` lacks. Delta refuses this commit of an attempt that was
        overtaken.
        """
        known = {field.name for field in table.schema().fields}
        new = [field for field in Schema.from_json(schema_json).fields if field.name not in known]
        if new:
            said = CommitProperties(app_transactions=[self._holds(mark.token)])
            with store_errors(self.place):
                table.alter.add_columns(new, commit_properties=said)

    def sync_log(self) -> None:
        """Sync the newest entries of the log, because an attempt may have been killed between its commit and
        its sync.
        """
        version = self.version() if self.place.is_local else None
        if version is None:
            return
        folder = Path(self.place.path)
        log = folder / LOG
        for each in range(max(0, version + 1 - RECENT), version + 1):
            for path in log.glob(f"{each:020d}.*"):
                sync(path)
        if (log / "_last_checkpoint").exists():
            sync(log / "_last_checkpoint")
        sync_names(log, top=folder)

    def _create(self, schema_json: str) -> DeltaTable:
        """Create an empty table, because Delta checks a commit for conflicts only if there is a table to read.

        If two attempts create a table at the same time, deltalake lets both succeed, and one replaces the other's
        table. So the log's first entry is made in a temporary folder, and written to the table only if the table has no
        first entry yet. Then only one of the two succeeds.
        """
        try:
            schema = Schema.from_json(schema_json)
        except ValueError as error:
            raise TableUnfit(f"Delta has no type for one of the columns in {schema_json}: {error}") from error
        with tempfile.TemporaryDirectory() as folder:
            DeltaTable.create(folder, schema, partition_by=self.partition_by)
            entry = (Path(folder) / FIRST).read_bytes()
        with store_errors(self.place):
            self.place.write_new(FIRST, entry)
        return self._load()

    def _check_conditions(self) -> None:
        """Raise `TableUnfit` if the store ignores the condition of a write, and so overwrites an object that exists."""
        if self._knows_conditions:
            return
        if not heeds_conditions(self.place, PROBE):
            raise TableUnfit(
                f"{self.shown}: the store ignores conditional writes (If-None-Match: *), without which two "
                "attempts could overwrite each other's commits: use a store or a version of it that supports them"
            )
        self._knows_conditions = True

    def _is_in(self, table: DeltaTable, mark: Mark) -> bool:
        last = self._last(table)
        if last == mark:
            return True
        if last is not None and last.batch >= mark.batch:
            raise Overtaken(
                f"the attempt with token {last.token}, not {mark.token}, has committed batch {mark.batch} to "
                f"{self.shown}"
            )
        holder = self._holder(table)
        if holder is not None and holder > mark.token:
            raise Overtaken(f"the attempt with token {holder}, not {mark.token}, holds {self.shown}")
        return False

    def _check_follows(self, mark: Mark, last: Mark | None) -> None:
        due = 1 if last is None else last.batch + 1
        if mark.batch != due:
            raise TableUnfit(
                f"{self.shown} lacks batches {due} to {mark.batch - 1} of {self.task}: it was restored or replaced"
            )

    def clean(self, run_id: str) -> list[str]:
        """Remove files of earlier attempts that can never be committed, and return their paths in the table.

        A file is removed if another attempt has committed its batch; files of a later batch stay, because they may
        belong to a running attempt. In an object store, files of the run `run_id` are also removed if its pages do not
        list them, because Spark may run a task twice.
        """
        last = self.last()
        if last is None:
            return []
        pages = list(self.ledger.pages(last))
        kept = {page.mark for page in pages}
        gone = []
        with store_errors(self.place):
            there = {f"{each}/{name}" for each in (self.task, self.ledger.folder) for name in self.place.names(each)}
            for path in there:
                mark = mark_named(path.rpartition("/")[2].partition(".")[0])
                if mark is not None and mark.batch <= last.batch and mark not in kept:
                    gone.append(path)
            if not self.place.is_local:
                for page in pages:
                    for folder in self._folders(page.mark) & there if page.run_id == run_id else ():
                        gone += {f"{folder}/{name}" for name in self.place.names(folder)} - set(page.parts)
            for path in gone:
                self.place.inside(path).remove_folder()
        return sorted(gone)


def add_action(part: Part) -> AddAction:
    """Return the log entry that adds a file. deltalake encodes the path itself."""
    return AddAction(
        part.path,
        part.size_bytes,
        dict(part.partition_values),
        part.modified_ms,
        data_change=True,
        stats=part.stats,
    )
