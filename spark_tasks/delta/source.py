"""Reads the rows of one version of a Delta table, or the changes of later versions.

A plan names one version, or two: the last version that was read before, and the last version of the batch. A version
never changes, so the rows of a plan are the same whenever they are read, as long as no vacuum removes their files. The
cursor has the table's id, the version, and a digest of the version's entry in the log. They show whether the table was
replaced, or was restored and then got other versions with the same numbers.
"""

import os
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from spark_tasks.contracts.incremental import Incremental
from spark_tasks.contracts.source import Cursor, Plan, SourceReplaced, SourceUnfit, last_rows
from spark_tasks.delta.log import (
    BEFORE_UPDATE,
    DELETED,
    INSERTED,
    ChangedRows,
    TableFile,
    VersionEntry,
    changed,
    entry,
    feed_after,
    feed_is_on,
    path_in_table,
    why_not_plain,
)
from spark_tasks.delta.params import DeltaRows
from spark_tasks.files.columns import loads_columns
from spark_tasks.spark.seen import check_seen
from spark_tasks.spark.session import is_local_master
from spark_tasks.storage.errors import store_errors
from spark_tasks.storage.store import open_store
from spark_tasks.table.parquet_files import ParquetRows, load_parquet
from tasks.file_guard import FileGuard
from tasks.places.place import Place

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

LOG: Final = "_delta_log"

CHANGE: Final = "_change_type"
VERSION: Final = "_commit_version"
"""Columns that the change data feed adds. The table itself cannot have columns with these names."""

_ANEW: Final = "`rota etl reset` sets where to begin"


class DeltaReader:
    """The rows of the table in `place`. `guard` checks local files; None for an object store.

    It implements `RowSource`. Its methods raise `AccessRefused`, `NoBucket`, `NoPermission`, `SourceReplaced`,
    `SourceUnfit` and `StoreAway`.
    """

    def __init__(
        self, params: DeltaRows, place: Place, guard: FileGuard | None, incremental: Incremental | None
    ) -> None:
        self.params = params
        self.place = place
        self.guard = guard
        self.incremental = incremental
        self._store: dict[str, str] | None = None
        self._entries: dict[int, VersionEntry] = {}

    @property
    def _shown(self) -> str:
        return self.params.at

    def plan(self, after: Cursor | None) -> Plan | None:
        """Plan the next batch (`RowSource`)."""
        self._store = open_store(self.place)
        table = self._opened()
        now, newest = str(table.metadata().id), table.version()
        if self.incremental is None:
            return Plan(None, {"table": now, "version": newest})
        feed = feed_is_on(table.metadata().configuration)
        if after is None:
            return Plan(self._reaches(now, newest, feed), {"table": now, "version": newest})
        self._check_same(after, now, newest)
        low, before = int(after["value"]), bool(after.get("feed", feed))
        if newest == low:
            return None
        most = self.incremental.batch_versions
        high = newest if most is None else min(newest, low + most)
        entries = self._entries_of(low, high)
        self._changed(entries, feed=before)  # raises before Spark is started, if a version cannot be read
        reaches = self._reaches(now, high, feed_after(entries, before))
        return Plan(reaches, {"table": now, "above": low, "version": high, "feed": before}, more=high < newest)

    def _reaches(self, table: str, version: int, feed: bool) -> Cursor:
        text = self._log([version]).get(version)
        digest = None if text is None else blake2b(text, digest_size=8).hexdigest()
        return {"versions": True, "value": version, "table": table, "entry": digest, "feed": feed}

    def _check_same(self, after: Cursor, table: str, newest: int) -> None:
        if after.get("versions") is not True:
            raise SourceReplaced(
                f"the sink's last batch was read by {after}, and the task now says `versions`: {_ANEW}"
            )
        version = int(after["value"])
        if after.get("table", table) != table or newest < version:
            was = f"version {version} of the table with the id {after.get('table', table)}"
            raise SourceReplaced(
                f"{self._shown}: the sink's last batch reaches {was}, and this is version {newest} of the one with the "
                f"id {table}: it was replaced, or restored to an earlier state. {_ANEW}"
            )
        text = self._log([version]).get(version)
        if text is not None and after.get("entry") not in (None, blake2b(text, digest_size=8).hexdigest()):
            raise SourceReplaced(
                f"{self._shown}: version {version} is not the one that the sink's last batch reaches: the table was "
                f"restored to an earlier state and has been written since. {_ANEW}"
            )

    def _entries_of(self, low: int, high: int) -> list[VersionEntry]:
        wanted = range(low + 1, high + 1)
        unread = [version for version in wanted if version not in self._entries]
        texts = self._log(unread)
        for version in unread:
            if version not in texts:
                raise SourceUnfit(
                    f"{self._shown}: the log has no entry of version {version} any more, which was not read yet: keep "
                    f"entries for longer (`delta.logRetentionDuration`), or let the task run more often. {_ANEW}"
                )
            self._entries[version] = entry(version, texts[version], self._shown)
        return [self._entries[version] for version in wanted]

    def _log(self, versions: Sequence[int]) -> dict[int, bytes]:
        """Return the log entries of these versions, except those that were removed."""
        names, guard = {f"{LOG}/{version:020d}.json": version for version in versions}, self.guard
        for name in names if guard is not None else ():
            assert guard is not None
            guard.resolve(f"{self.place.path}/{name}")
        with store_errors(self.place):
            return {names[name]: text for name, text in self.place.read_many(names).items()}

    def _opened(self, version: int | None = None) -> "DeltaTable":
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        if self.guard is not None:
            for folder in (self.place.path, f"{self.place.path}/{LOG}"):
                self.guard.resolve(folder)
        at = self.place.path if self.place.is_local else self.place.url
        try:
            with store_errors(self.place):
                table = DeltaTable(at, version=version, storage_options=self._store)
        except TableNotFoundError:
            raise SourceUnfit(f"{self._shown}: there is no Delta table here") from None
        except DeltaError as error:
            raise SourceUnfit(f"{self._shown}: {error}") from None
        about = table.protocol()
        why = why_not_plain(about.min_reader_version, about.reader_features or (), table.metadata().configuration)
        if why is not None:
            raise SourceUnfit(f"{self._shown}: {why}")
        return table

    def load(self, spark: "SparkSession", plan: Plan) -> "DataFrame":
        """Return the rows of the plan (`RowSource`)."""
        table = self._opened(plan.about["version"])
        columns = _nullable(loads_columns(str(table.schema().to_json())))
        if plan.reaches is None or self.params.tombstone is None:
            files = [_plain(one.file) for one in self._rows(table, plan)]
            self._check_seen(spark, files)
            return load_parquet(spark, self.place, columns, files, self.guard, _vacuumed)
        from pyspark.sql.types import LongType, StringType, StructType

        self._check_columns(columns, self.params.tombstone)
        wider = StructType([*columns.fields]).add(CHANGE, StringType()).add(VERSION, LongType())
        files = [_with_change(one) for one in self._rows(table, plan)]
        self._check_seen(spark, files)
        rows = load_parquet(spark, self.place, wider, files, self.guard, _vacuumed)
        return last_changes(rows, self.params.keys, self.params.tombstone)

    def _check_seen(self, spark: "SparkSession", files: Sequence[ParquetRows]) -> None:
        if self.place.is_local and not is_local_master(os.environ):
            check_seen(spark, [Path(self.place.path) / file.path for file in files], {})

    def _rows(self, table: "DeltaTable", plan: Plan) -> list[ChangedRows]:
        by = frozenset(table.metadata().partition_columns)
        if "above" in plan.about:
            entries = self._entries_of(plan.about["above"], plan.about["version"])
            found = self._changed(entries, feed=plan.about["feed"])
        else:
            found = [ChangedRows(file, table.version(), INSERTED) for file in files_of(table)]
        for one in found:
            if missing := by - one.file.partition.keys():
                raise SourceUnfit(
                    f"{self._shown}: version {one.version} does not say the values of {', '.join(sorted(missing))} of "
                    f"{one.file.path}"
                )
        return found

    def _changed(self, entries: Sequence[VersionEntry], *, feed: bool) -> list[ChangedRows]:
        return changed(
            entries,
            feed,
            read_feed=self.params.tombstone is not None,
            skip=self.params.on_rewrite == "skip",
            shown=self._shown,
        )

    def _check_columns(self, columns: "StructType", tombstone: str) -> None:
        names = columns.fieldNames()
        if twice := [name for name in (tombstone, CHANGE, VERSION) if name in names]:
            raise SourceUnfit(f"{self._shown} has a column {', '.join(twice)} already: give `tombstone` another name")
        if missing := [name for name in self.params.keys if name not in names]:
            raise SourceUnfit(f"{self._shown} has no column {', '.join(missing)}; it has {', '.join(names)}")

    def release(self) -> None:
        """Forget the log's entries (`RowSource`): a plan has no other resources."""
        self._entries.clear()


def files_of(table: "DeltaTable") -> list[TableFile]:
    """Return the files of the loaded version. deltalake gives their paths encoded, and they are decoded here."""
    import pyarrow as pa

    found = pa.table(table.get_add_actions())
    wanted = [name for name in ("path", "size_bytes", "partition") if name in found.column_names]
    return [
        TableFile(path_in_table(unquote(row["path"])), row["size_bytes"], row.get("partition") or {})
        for row in found.select(wanted).to_pylist()
    ]


def _vacuumed(shown: str) -> SourceUnfit:
    return SourceUnfit(
        f"{shown} is gone: a vacuum removed it before this task read it. Let the task run more often than the table is "
        "vacuumed, and start anew with another task name"
    )


def _plain(file: TableFile) -> ParquetRows:
    return ParquetRows(file.path, file.size_bytes, file.partition)


def _with_change(one: ChangedRows) -> ParquetRows:
    constants: dict[str, Any] = {**one.file.partition, VERSION: one.version}
    if one.change is not None:
        constants[CHANGE] = one.change
    return ParquetRows(one.file.path, one.file.size_bytes, constants)


def _nullable(columns: "StructType") -> "StructType":
    """Return the columns, all of them nullable, because older files lack columns that were added later."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(each.name, each.dataType) for each in columns.fields])


def last_changes(rows: "DataFrame", keys: Sequence[str], tombstone: str) -> "DataFrame":
    """Return the rows of a change data feed, with the additional column `tombstone`: whether the row was deleted.

    With `keys`, only the last change of each key is returned. The row before an update counts as deleted, unless the
    row after the update has the same keys. Without `keys`, each change is a row, and rows before updates are left out.
    """
    from pyspark.sql import functions as f

    gone = f.col(CHANGE) == DELETED
    if keys:
        gone = f.col(CHANGE).isin(DELETED, BEFORE_UPDATE)
        # If one version changed a key twice, both rows stay: the sink reports the error.
        rows = last_rows(rows, keys, [f.col(VERSION).desc(), gone.asc()], ties=True)
    else:
        rows = rows.filter(f.col(CHANGE) != BEFORE_UPDATE)
    return rows.withColumn(tombstone, gone).drop(CHANGE, VERSION)
