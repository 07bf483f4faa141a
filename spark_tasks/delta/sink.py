"""A Delta table as a sink: a batch is one commit of its log, which also records the batch.

The commit carries the batch's number and token as app transactions, and the run. The batch's page in the ledger beside
the table has the cursor. `batch_table` records which attempt holds the table, and refuses an attempt that was
overtaken.

A commit that removes files is valid only for the version of the table from which they were chosen. If another
program has committed to the table since, the commit is refused, and the batch is made again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from spark_tasks.contracts.sink import About, Committed, SinkOvertaken, SinkUnfit, Staged, Visible
from spark_tasks.delta.batch_columns import check_columns, check_named, check_names, chosen, with_full_partitions
from spark_tasks.delta.batch_table import STAGED, BatchTable, as_sink, visible
from spark_tasks.delta.merge import KeyedBatch, merged
from spark_tasks.delta.params import DeltaTarget
from spark_tasks.files.columns import loads_columns
from spark_tasks.storage.errors import store_errors
from spark_tasks.table.delta import add_action
from spark_tasks.table.ledger import Mark, Page
from spark_tasks.table.live_files import LiveFile, live_files, row_changing_features
from spark_tasks.table.parquet_files import ParquetRows, load_parquet
from spark_tasks.table.part import Part, PartitionTexts, PlainFolder, odd_partitions, partition_text
from spark_tasks.table.writing import batch_writer
from tasks.places.place import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

TRIES: Final = 10
"""How often a batch is made again, or its commit repeated, because another program has committed to the table."""


class TableBusy(Exception):
    """Other programs kept committing to the table while a batch was made for it. Another attempt may succeed."""


@dataclass(frozen=True)
class _Change:
    """The change that a batch makes: the table's columns, the version to commit to (None: any), and the files to
    remove.
    """

    columns: "StructType"
    handle: DeltaTable | None
    gone: "Callable[[DeltaTable], list[LiveFile]]"
    deleted: int = 0


class DeltaSink:
    """The table of `params` at `place`, to which the task `task` writes. `scratch` is a local folder for messages of
    executors.

    It implements `contracts.sink.Sink`. Its methods also raise `LedgerDamaged` and, for an object store, `NoBucket`,
    `NoPermission` and `StoreAway`.
    """

    def __init__(self, params: DeltaTarget, place: Place, task: str, scratch: Path) -> None:
        self.params = params
        self.scratch = scratch
        self.table = BatchTable(place, task, params.partition_by)
        self.changes: dict[Mark, _Change] = {}
        self.pages: list[Page] = []
        self.refused = 0

    def last(self) -> Visible | None:
        """Return the last visible batch; None if no batch is visible."""
        with as_sink():
            page = self.table.last_page()
        return None if page is None else visible(page)

    def has_run(self, run_id: str) -> bool:
        """Whether one of the newest visible batches is of that run."""
        return self.table.has_run(run_id)

    def holder(self) -> int | None:
        """Return the token of the attempt that holds the table for this task."""
        return self.table.holder()

    def claim(self, token: int, instead_of: int | None) -> bool:
        """Make the attempt with `token` the holder."""
        with as_sink():
            return self.table.claim(token, instead_of)

    def write(self, rows: "DataFrame", mark: Mark) -> Staged:
        """Write the rows into a folder of this attempt. A merge also writes the rows that it keeps of the files it
        replaces.
        """
        self.scratch.mkdir(parents=True, exist_ok=True)
        with as_sink():
            columns = self._columns(rows.schema)
            rows = with_full_partitions(rows, self.table.partitioned_by(), self.table.shown)
            if self.params.mode == "merge":
                return self._merge(rows, columns, mark)
            spark = rows.sparkSession
            parts = batch_writer(spark, self.table, self.scratch)(chosen(rows, columns.fieldNames()), mark)
        self.changes[mark] = _Change(columns, None, self._gone(parts))
        return Staged(sum(part.rows for part in parts), parts)

    def _columns(self, batch: "StructType") -> "StructType":
        """Return the columns that the table has after the batch. Raises `SinkUnfit` if the batch does not fit."""
        named = [self.params.tombstone] if self.params.tombstone else []
        check_named([*named, *self.params.keys, *self.params.partition_by], batch)
        written = type(batch)([field for field in batch.fields if field.name not in named])
        check_names(written, self.table.shown)
        standing, by = self.table.schema_json(), self.table.partitioned_by()
        columns = check_columns(None if standing is None else loads_columns(standing), written, self.table.shown)
        if not set(columns.fieldNames()) - set(by):
            raise SinkUnfit(f"{self.table.shown} needs a column that is not in `partition_by`")
        if (odd := odd_partitions(columns, by)) and (self.params.mode != "append" or not self.table.place.is_local):
            raise SinkUnfit(
                f"{self.table.shown} is partitioned by {odd[0]}: "
                "only a batch that is appended in a folder may be partitioned by another type than text, integer, date "
                "or boolean"
            )
        return columns

    def _gone(self, parts: tuple[Part, ...]) -> "Callable[[DeltaTable], list[LiveFile]]":
        """Return a function that, given a version of the table, returns the files that a batch with these parts
        replaces.
        """
        touched = {tuple(sorted(part.partition_values.items())) for part in parts}
        match self.params.mode:
            case "overwrite_partitions":
                return lambda handle: [file for file in live_files(handle) if _texts(file) in touched]
            case "replace":
                return live_files
            case _:
                return lambda _: []

    def _merge(self, rows: "DataFrame", columns: "StructType", mark: Mark) -> Staged:
        spark, place = rows.sparkSession, self.table.place
        # The rows are staged, since a merge reads them several times, and they must be the same each time.
        staged = batch_writer(spark, PlainFolder(place, self._staged(mark)), self.scratch)(rows, mark)
        schema = type(columns)([*columns.fields, *(f for f in rows.schema.fields if f.name == self.params.tombstone)])
        batch = KeyedBatch(
            load_parquet(spark, place, schema, [ParquetRows(part.path, part.size_bytes) for part in staged]),
            sum(part.size_bytes for part in staged),
            self.params.keys,
            self.params.tombstone,
            self.table.shown,
        )
        handle = self.table.opened(columns.json())
        self._check_readable(handle)
        found = merged(
            batch,
            columns,
            place,
            live_files(handle, self.params.keys),
            batch_writer(spark, self.table, self.scratch),
            mark,
        )
        self.changes[mark] = _Change(columns, handle, lambda _: list(found.gone), found.deleted)
        return Staged(found.rows, found.parts)

    def _staged(self, mark: Mark) -> str:
        return f"{self.table.parquet_folder(mark)}.{STAGED}"

    def _check_readable(self, handle: DeltaTable) -> None:
        if self.params.mode != "append" and (features := row_changing_features(handle)):
            raise SinkUnfit(
                f"{self.table.shown} has {', '.join(features)}, with which `mode: {self.params.mode}` cannot be used: "
                "write to a table without it"
            )

    def commit(self, mark: Mark, written: Staged, about: About) -> Committed:
        """Commit the batch to the table's log. Raises the errors of `Sink.commit`, and `TableBusy`."""
        change = self.changes.pop(mark)
        with as_sink():
            if change.handle is not None:
                self._commit_merge(mark, written, about, change)
            else:
                self._commit_again(mark, written, about, change)
        if change.handle is not None:
            with store_errors(self.table.place):
                self.table.place.inside(self._staged(mark)).remove_folder()
        return Committed(written.rows, change.deleted)

    def _commit_merge(self, mark: Mark, written: Staged, about: About, change: _Change) -> None:
        if self._commit(mark, written, about, change):
            self.refused = 0
            return
        self.refused += 1
        said = f"another program has committed to {self.table.shown} during a merge"
        if self.refused == TRIES:
            raise TableBusy(f"{said}, {TRIES} times")
        # No row of the batch is visible. The attempt makes it again, from the source.
        raise SinkOvertaken(said)

    def move(self, mark: Mark, about: About) -> None:
        """Commit a batch without files, with the cursor of `about`. Raises the errors of `CursorSink.move`, and
        `TableBusy`.
        """
        with as_sink():
            standing = self.table.schema_json()
            if standing is None:
                raise SinkUnfit(
                    f"{self.table.shown} is not there yet, and its log keeps the cursor: let the task run once"
                )
            nothing = _Change(loads_columns(standing), None, lambda _: [])
            self._commit_again(mark, Staged(0, ()), about, nothing)

    def _commit_again(self, mark: Mark, written: Staged, about: About, change: _Change) -> None:
        """Commit, and try again if other programs commit in between, up to `TRIES` times."""
        if not any(self._commit(mark, written, about, change) for _ in range(TRIES)):
            raise TableBusy(f"{self.table.shown}: {TRIES} commits of other programs came in between")

    def _commit(self, mark: Mark, written: Staged, about: About, change: _Change) -> bool:
        handle = self.table.opened(change.columns.json()) if change.handle is None else change.handle
        if self.table.check(handle, mark):
            return True
        self._check_readable(handle)
        page = Page(
            mark=mark,
            previous=self.table.previous(handle),
            run_id=about.run_id,
            rows=written.rows,
            quarantined=0,
            files=(),
            parts=tuple(part.path for part in written.parts),
            cursor=about.cursor,
        )
        self.table.ledger.write(page)
        files: list[AddAction | RemoveAction] = [
            *map(add_action, written.parts),
            *(file.remove() for file in change.gone(handle)),
        ]
        alone = self.params.mode != "append"
        done = self.table.apply(handle, mark, written.parts, files, {"rota.run": about.run_id}, alone=alone)
        if done:
            self.pages.append(page)
        return done

    def sweep(self) -> list[str]:
        """Remove the files of overtaken attempts, and files that Spark wrote twice, and return their paths."""
        gone = self.table.sweep()
        if self.table.place.is_local:
            return gone
        newest = self.table.last_page()
        twice = []
        with store_errors(self.table.place):
            for page in [*self.pages, *([] if newest is None or newest in self.pages else [newest])]:
                folder = self.table.parquet_folder(page.mark)
                twice += sorted({f"{folder}/{name}" for name in self.table.place.names(folder)} - set(page.parts))
            for path in twice:
                self.table.place.remove(path)
        self.pages.clear()
        return [*gone, *twice]


def _texts(file: LiveFile) -> PartitionTexts:
    return tuple(sorted((name, partition_text(value)) for name, value in file.partition.items()))
