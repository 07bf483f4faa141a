"""A table that is maintained: its data files at a version, and commits that replace some files by others.

**A rewrite is committed to exactly one version**, in which all files that it removes are still part of the table. If
another program commits in between, the commit of the rewrite is refused. It is then tried on the newer version if all
files to be removed are still part of that version. If they are not, their rows may have changed, and the rewrite is
given up. So each version of the table has each row as often as before, however late a commit arrives.

**One attempt at a time** may commit rewrites. Before it writes anything, an attempt claims the table by an app
transaction in the table's log, with its token. An attempt that finds another attempt's token there stops. No task's
name is empty, so this app transaction cannot be a task's.
"""

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import types

from spark_tasks.maintain.errors import NoTable, TableInUse
from spark_tasks.maintain.layout import DataFile
from spark_tasks.storage.errors import StoreAway, store_errors
from spark_tasks.table.delta import LOG, Table, TableUnfit
from spark_tasks.table.live_files import row_changing_features, spelled_path
from spark_tasks.table.part import Part, partition_text

HOLDER: Final = "rota//maintain"
"""The app transaction with the token of the attempt that maintains the table."""

REWRITE: Final = "rota.rewrite"
"""The field of a rewrite's commit that has the rewrite's own id."""

FOLDER: Final = "maintain-"
"""The prefix of the folder for an attempt's new files, in the folder of its task."""

TRIES: Final = 20
"""How often a commit is tried if other writers commit in between. A try takes little more time than reading the log."""

FORGETS: Final = "delta.setTransactionRetentionDuration"
"""The table property that makes Delta forget which batches are in the table."""

_WRITABLE: Final = frozenset(
    "appendOnly invariants checkConstraints changeDataFeed generatedColumns timestampNtz v2Checkpoint "
    "vacuumProtocolCheck".split()
)
"""The features of a table's protocol that do not prevent a rewrite, because a rewrite does not change any row."""


@dataclass(frozen=True)
class TableForm:
    """The properties of a table on which the meaning of its files' rows depends."""

    table_id: str
    schema_json: str
    partition_by: tuple[str, ...]


class MaintainedTable(Table):
    """The existing table at `place`, which the task `task` maintains."""

    def handle(self) -> DeltaTable:
        """Open the table at its newest version. Raises `NoTable`."""
        try:
            return self._load()
        except TableNotFoundError:
            raise NoTable(
                f"there is no Delta table at {self.shown}: correct `table`, or run the task that makes it first"
            ) from None

    def check_fit(self, handle: DeltaTable, cluster_by: Sequence[str]) -> None:
        """Raise `TableUnfit` if the table cannot be maintained, or cannot be clustered by these columns."""
        about, protocol = handle.metadata(), handle.protocol()
        beyond = {*row_changing_features(handle), *(set(protocol.writer_features or ()) - _WRITABLE)}
        for feature, why in (
            ("deletionVectors", "set `delta.enableDeletionVectors` to false, purge the table and drop the feature"),
            ("columnMapping", "write the table anew without `delta.columnMapping.mode`"),
        ):
            if feature in beyond:
                raise TableUnfit(f"{self.shown} has {feature}, with which this kind cannot rewrite files: {why}")
        if beyond:
            raise TableUnfit(f"{self.shown} has features that this kind does not know: {', '.join(sorted(beyond))}")
        if FORGETS in about.configuration:
            raise TableUnfit(
                f"{self.shown} has the property {FORGETS}, so its log forgets which batches are in it once it is "
                "cleaned, and files would be ingested twice: remove the property"
            )
        columns = {field.name: field.type for field in schema_in_files(handle)}
        for name in cluster_by:
            if name in about.partition_columns:
                raise TableUnfit(
                    f"{self.shown} is partitioned by {name!r}, so that its rows are near each other already: leave it "
                    "out of `cluster_by`"
                )
            if name not in columns:
                raise TableUnfit(f"{self.shown} has no column {name!r}: correct `cluster_by`")
            if types.is_nested(columns[name]):
                raise TableUnfit(
                    f"the column {name!r} of {self.shown} is nested, and has no order: correct `cluster_by`"
                )

    def check_writable(self) -> None:
        """Raise `TableUnfit` if the table is in a store that ignores conditional writes."""
        self._check_conditions()

    def form(self, handle: DeltaTable) -> TableForm:
        """Return the form of the table's rows at that version."""
        about = handle.metadata()
        return TableForm(str(about.id), str(handle.schema().to_json()), tuple(about.partition_columns))

    def data_files(self, handle: DeltaTable) -> list[DataFile]:
        """Return the files that hold the table's rows at that version.

        Raises `TableUnfit` for a file outside of the table, and for a partition value that programs write differently.
        """
        found = pa.table(handle.get_add_actions(flatten=True))
        by = [f"partition.{name}" for name in handle.metadata().partition_columns]
        wanted = ["path", "size_bytes", "modification_time", "num_records", *by]
        rows = found.select([name for name in wanted if name in found.column_names]).to_pylist()
        return [self._data_file(row, by) for row in rows]

    def _data_file(self, row: Mapping[str, Any], by: Sequence[str]) -> DataFile:
        movable = spelled_path(row["path"])
        path = unquote(row["path"]) if movable is None else movable
        if "://" in path or path.startswith("/") or ".." in path.split("/"):
            raise TableUnfit(
                f"{self.shown} has the file {path}, which is not in its folder, as in a shallow clone: copy the table"
            )
        try:
            partition = tuple(partition_text(row.get(name)) for name in by)
        except TypeError as error:
            raise TableUnfit(f"{self.shown} cannot be maintained: {error}") from None
        return DataFile(
            path,
            row["size_bytes"],
            row.get("num_records"),
            partition,
            row["modification_time"],
            movable=movable is not None,
        )

    def holder_of(self, handle: DeltaTable) -> int | None:
        """Return the token of the attempt that maintains the table at that version; None if no attempt has ever
        maintained it.
        """
        found = handle.transaction_version(HOLDER)
        return None if found is None else int(found)

    def hold(self, token: int) -> None:
        """Make the attempt with that token the one that may maintain the table. Raises `TableInUse`.

        The caller must know that its token is current. From then on every earlier attempt's commits are refused.
        """
        for _ in range(TRIES):
            handle = self.handle()
            if self.holder_of(handle) == token:
                self.sync_log()
                return
            try:
                self._append(handle, [], [Transaction(HOLDER, token)], alone=True)
            except (DeltaError, StoreAway):
                # The commit was refused, or its outcome is unknown: the log has the answer.
                if self.handle().version() == handle.version():
                    raise
        raise TableInUse(f"other writers commit to {self.shown} all the time: run this task when fewer are active")

    def check_held(self, handle: DeltaTable, token: int) -> None:
        """Raise `TableInUse` if another attempt has begun to maintain the table."""
        holder = self.holder_of(handle)
        if holder != token:
            raise TableInUse(
                f"another attempt (token {holder}, this one has {token}) has begun to maintain {self.shown}: let one "
                "task at a time do so. What this one has committed stays"
            )

    def exchange(
        self, token: int, form: TableForm, old: Collection[DataFile], new: Sequence[Part], rewrite_id: str
    ) -> bool:
        """Add the `new` files to the table and remove the `old` ones, in one commit. Returns False if no commit was
        made.

        No commit is made if one of the old files is not part of the table any more, or if the table's columns have
        changed. Raises `TableInUse` if another attempt maintains the table, or if other writers commit in between too
        many times.
        """
        gone = {file.path for file in old}
        by = form.partition_by
        for _ in range(TRIES):
            handle = self.handle()
            self.check_fit(handle, ())
            self.check_held(handle, token)
            if self.form(handle) != form or not gone <= {file.path for file in self.data_files(handle) if file.movable}:
                return False
            if self._replace(handle, [*map(_added, new), *(_removed(file, by) for file in old)], token, rewrite_id):
                self.sync_log()
                return True
        raise TableInUse(f"other writers commit to {self.shown} all the time: run this task when fewer are active")

    def _replace(self, handle: DeltaTable, files: list[AddAction | RemoveAction], token: int, rewrite_id: str) -> bool:
        """Commit to the version of `handle`, or not at all. Returns False if another writer has committed first."""
        said = CommitProperties(
            {REWRITE: rewrite_id, "rota.task": self.task, "rota.token": str(token)}, max_commit_retries=0
        )
        by = list(handle.metadata().partition_columns)
        try:
            with store_errors(self.place):
                handle.create_write_transaction(
                    files, "append", handle.schema(), partition_by=by, commit_properties=said
                )
        except (DeltaError, StoreAway, OSError):
            # The commit was refused, or its outcome is unknown: the entry of the next version shows which commit it is.
            mine = self.is_committed(handle.version() + 1, rewrite_id)
            if mine is None:
                raise
            return mine
        return True

    def is_committed(self, version: int, rewrite_id: str) -> bool | None:
        """Whether that rewrite made that version of the table; None if the version does not exist yet."""
        with store_errors(self.place):
            entry = self.place.read(f"{LOG}/{version:020d}.json")
        if entry is None:
            return None
        return any(
            json.loads(line).get("commitInfo", {}).get(REWRITE) == rewrite_id
            for line in entry.splitlines()
            if REWRITE.encode() in line
        )


def schema_in_files(handle: DeltaTable) -> pa.Schema:
    """Return the columns in the table's files, all of them nullable: every column except the partition columns."""
    by = set(handle.metadata().partition_columns)
    fields = pa.schema(handle.schema().to_arrow())
    return pa.schema([pa.field(field.name, field.type) for field in fields if field.name not in by])


def _added(part: Part) -> AddAction:
    return AddAction(
        part.path, part.size_bytes, dict(part.partition_values), part.modified_ms, data_change=False, stats=part.stats
    )


def _removed(file: DataFile, by: Sequence[str]) -> RemoveAction:
    return RemoveAction(
        file.path,
        data_change=False,
        deletion_timestamp=time.time_ns() // 1_000_000,
        size=file.size_bytes,
        partition_values=dict(zip(by, file.partition, strict=True)),
    )
