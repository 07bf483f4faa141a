"""Converts the files of one batch into Parquet files beside the table, which its log does not name yet."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spark_tasks.files.columns import evolve, loads_columns, table_columns
from spark_tasks.files.evolving import widened
from spark_tasks.files.faults import BadFile, SchemaDrift
from spark_tasks.files.layouts import Layout
from spark_tasks.files.listing import Source
from spark_tasks.files.malformed import BadRow, explained_row
from spark_tasks.files.reading import check_fields, layouts_of
from spark_tasks.files.staging import check_places_seen, check_unchanged, staged
from spark_tasks.files.text_checks import clean_text
from spark_tasks.ingest.errors import IngestFailed, IngestStopped
from spark_tasks.ingest.params import IngestParams
from spark_tasks.ingest.widening import rewritten
from spark_tasks.ingest.writing import BatchWriter, Counts
from spark_tasks.spark.causes import cause, is_sparks
from spark_tasks.spark.exchange import exchange_folder, sweep_exchange
from spark_tasks.spark.progress import followed
from spark_tasks.spark.session import is_local_master
from spark_tasks.table.part import odd_partitions
from tasks.file_guard import FileGuard
from tasks.kind import Context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from spark_tasks.table.delta import Table
    from spark_tasks.table.ledger import Mark
    from spark_tasks.table.part import Part
    from spark_tasks.table.writing import Write


def check_partitions(columns: "StructType", by: Sequence[str], shown: str, *, in_folder: bool) -> None:
    """Raise `SchemaDrift` if the table `shown` cannot have these columns, or cannot be partitioned by the columns `by`.

    In an object store, partition values of other types than text, integer, date and boolean would be spelled
    differently by executors and by Spark itself.
    """
    if by and not set(columns.fieldNames()) - set(by):
        raise SchemaDrift(f"{shown} needs a column that is not in `partition_by`")
    if not in_folder and (odd := odd_partitions(columns, by)):
        raise SchemaDrift(
            f"{shown} is partitioned by {odd[0]}: only a table in a folder may be partitioned by another type "
            "than text, integer, date or boolean"
        )


@dataclass(frozen=True)
class Converted:
    """A converted batch, to be committed."""

    #: The table's columns after the batch.
    columns: "StructType"
    #: The Parquet files of the batch's rows.
    parts: "tuple[Part, ...]"
    #: How many rows were read, quarantined and dropped.
    counts: Counts
    #: The files whose rows are written again because `columns` have wider types than before; None: no type is wider.
    replaced: frozenset[str] | None
    #: The new Parquet files with these rows.
    widened: "tuple[Part, ...]"


class BatchConverter:
    """Converts batches for the table, in one Spark session. `tell` is called with the present batch's progress."""

    def __init__(
        self, ctx: Context[IngestParams], table: "Table", spark: "SparkSession", tell: Callable[[str], None]
    ) -> None:
        self.ctx = ctx
        self.table = table
        self.spark = spark
        self.tell = tell
        self.write: Write | None = None

    def convert(self, batch: Sequence[Source], mark: "Mark", before: "StructType | None") -> Converted:
        """Check and read the files, and write their rows. `before` are the table's columns, if they are known.

        Raises `BadFile` for a file without which the batch may succeed. Also raises `IngestStopped`, `IngestFailed`,
        and the errors of `files`, `writing`, `widening` and the storage's `errors`.
        """
        # Spark on other machines can open files only by their own paths.
        pins = FileGuard(self.ctx.access, "source") if is_local_master(os.environ) else None
        sweep_exchange(os.environ, self.ctx.task, self.ctx.token)
        folder = exchange_folder(os.environ, self.ctx.scratch, self.ctx.task, self.ctx.token)
        with staged(batch, folder / "fetched" / mark.name, pins) as places:
            columns, clean = before, places
            try:
                if pins is None:
                    check_places_seen(self.spark, places)
                clean, taken = clean_text(self.ctx.params, places, folder / "fetched" / mark.name / "clean")
                found = layouts_of(self.spark, self.ctx.params, clean)
                columns = self._columns(before, clean, found)
                check_fields(self.spark, self.ctx.params, columns, clean, found)
                done = self._written(columns, clean, found, mark, taken)
            except BadFile:
                raise
            except Exception as error:
                if self.ctx.cancelled:
                    raise IngestStopped("asked to stop") from error
                better = explained_row(self.spark, self.ctx.params, columns, error, clean)
                if better is None and not is_sparks(error):
                    raise
                raise better or IngestFailed(f"batch {mark.batch}: {cause(str(error)).said}") from None
            check_unchanged(places)
        return done

    def _columns(
        self, before: "StructType | None", places: Mapping[Path, Source], found: Sequence[Layout] | None
    ) -> "StructType":
        """Return the columns that the table has after this batch."""
        if before is None:
            standing, by = self.table.schema_json(), self.table.partitioned_by()
            first = table_columns(self.spark, self.ctx.params, standing, places, by, found)
            columns = evolve(first, self.ctx.params, places, found)
            check_partitions(columns, by, self.table.shown, in_folder=self.table.place.is_local)
            return columns
        return evolve(before, self.ctx.params, places, found)

    def _written(
        self,
        columns: "StructType",
        places: Mapping[Path, Source],
        found: Sequence[Layout] | None,
        mark: "Mark",
        taken: Sequence[BadRow],
    ) -> Converted:
        from spark_tasks.table.writing import batch_writer

        if self.write is None:
            self.write = batch_writer(self.spark, self.table, self.ctx.scratch)
        rows = BatchWriter(self.spark, self.ctx.params, columns, self.table, self.write)
        with followed(self.spark, lambda text: self.tell(f"batch {mark.batch}: {text}")):
            parts, counts = rows.write(places, found, mark, taken)
        replaced, wider = self._widened(columns, mark)
        return Converted(columns, parts, counts, replaced, wider)

    def _widened(self, columns: "StructType", mark: "Mark") -> "tuple[frozenset[str] | None, tuple[Part, ...]]":
        """Write the table's rows again if a column's type becomes wider. Returns the replaced files, or None, and the
        new files.
        """
        standing = self.table.schema_json() if self.ctx.params.schema_evolution == "widen" else None
        names = [] if standing is None else widened(loads_columns(standing), columns)
        if not names:
            return None, ()
        self.ctx.log.info("batch %d: writing the table again with wider columns: %s", mark.batch, ", ".join(names))
        return rewritten(self.spark, self.table, columns, mark, self.ctx.scratch)
