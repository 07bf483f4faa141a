"""Writes a table's rows again with wider column types, for the commit that widens the columns.

Delta's own type widening leaves the old files as they are, but it is a feature that deltalake neither reads nor writes.
"""

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_tasks.files.columns import loads_columns
from spark_tasks.files.faults import SchemaDrift
from spark_tasks.files.staging import for_spark
from spark_tasks.ingest.errors import CountsDiffer
from spark_tasks.storage.errors import store_errors
from spark_tasks.storage.packing import packed
from spark_tasks.table.ledger import Mark
from spark_tasks.table.part import Part, PlainFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from spark_tasks.table.delta import Table
    from spark_tasks.table.live_files import LiveFile
    from tasks.places.place import Place

PORTION_BYTES: Final = 4 << 30
"""About how many bytes of a table in an object store are written at once, because Spark on this machine writes them
into the scratch folder first.
"""

_FOOTERS: Final = 16
"""How many footers of files are read at once."""


def rewritten(
    spark: "SparkSession", table: "Table", schema: "StructType", mark: Mark, scratch: Path
) -> tuple[frozenset[str], tuple[Part, ...]]:
    """Write the rows of the table's present files again, with the columns `schema`, into new files.

    Returns the present files and the new files. `scratch` is a local folder of the attempt.

    Raises `SchemaDrift` for a table that is partitioned, or has features with which its rows differ from those in its
    files. Raises `TableUnfit` for files that a commit could not remove; `CountsDiffer`; and for an object store also
    `NoBucket`, `NoPermission` and `StoreAway`.
    """
    from spark_tasks.table.executor_errors import executor_errors
    from spark_tasks.table.live_files import live_files, row_changing_features
    from spark_tasks.table.writing import batch_writer

    handle = table.handle()
    if handle is None:
        return frozenset(), ()
    if handle.metadata().partition_columns:
        raise SchemaDrift(f"the columns of {table.shown} cannot be widened, as it is partitioned: use a new table")
    if features := row_changing_features(handle):
        raise SchemaDrift(f"the columns of {table.shown} cannot be widened, as it has {', '.join(features)}")
    place, live = table.place, sorted(live_files(handle), key=lambda file: file.path)
    write = batch_writer(spark, PlainFolder(place, table.widened_folder(mark)), scratch)
    standing = loads_columns(str(handle.schema().to_json()))
    parts: list[Part] = []
    for some in packed(live, sys.maxsize if place.is_local else PORTION_BYTES):
        with executor_errors():
            parts += write(_cast(_rows(spark, place, standing, some), schema), mark)
    before, after = _count(place, live), sum(part.rows for part in parts)
    if before != after:
        raise CountsDiffer(f"{table.shown} has {before} rows, and {after} of them were written with wider columns")
    return frozenset(handle.file_uris()), tuple(parts)


def _rows(spark: "SparkSession", place: "Place", columns: "StructType", files: "Sequence[LiveFile]") -> "DataFrame":
    """Return the rows of files of a table that is not partitioned."""
    from spark_tasks.table.parquet_files import ParquetRows, load_parquet

    if not place.is_local:
        return load_parquet(spark, place, columns, [ParquetRows(file.path, file.size_bytes) for file in files])
    return spark.read.schema(columns).parquet(*(for_spark(Path(place.path) / file.path) for file in files))


def _cast(rows: "DataFrame", schema: "StructType") -> "DataFrame":
    """Return the rows with the columns `schema`. Columns that the rows lack are null."""
    from pyspark.sql import functions as f

    known = set(rows.columns)
    columns = [f.col(f"`{each.name}`") if each.name in known else f.lit(None) for each in schema]
    return rows.select(
        *(column.cast(each.dataType).alias(each.name) for column, each in zip(columns, schema, strict=True))
    )


def _count(place: "Place", files: "Sequence[LiveFile]") -> int:
    """Return the number of rows in the files, from their footers."""
    from pyarrow import parquet

    def count(file: "LiveFile") -> int:
        with place.reading(file.path) as opened:
            return int(parquet.read_metadata(opened).num_rows)

    with store_errors(place), ThreadPoolExecutor(_FOOTERS) as pool:
        return sum(pool.map(count, files))
