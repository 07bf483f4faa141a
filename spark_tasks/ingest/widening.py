"""Writes the rows of a table again with wider columns, for the commit that widens them.

Delta's own type widening leaves the old files as they are, but is a feature that deltalake neither reads nor writes.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from spark_tasks.files.columns import loads_columns
from spark_tasks.files.faults import SchemaDrift
from spark_tasks.files.staging import for_spark
from spark_tasks.ingest.errors import CountsDiffer
from spark_tasks.storage.url import is_local
from spark_tasks.table.ledger import Mark
from spark_tasks.table.part import Part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from spark_tasks.table.delta import Table


def rewritten(
    spark: "SparkSession", table: "Table", schema: "StructType", mark: Mark
) -> tuple[frozenset[str], tuple[Part, ...]]:
    """Write the rows of the table's files beside those of the batch, with the columns `schema`.

    Gives the files that they were in, and those that they are in now. The table is in a local folder.
    Raises `SchemaDrift` for a partitioned table, and `CountsDiffer`.
    """
    from pyarrow import parquet
    from pyspark.sql import functions as f

    from spark_tasks.table.local_parts import local_parts

    by, files, standing = table.partitioned_by(), table.files(), table.schema_json()
    if by or not all(map(is_local, files)):
        raise SchemaDrift(f"the columns of {table.shown} cannot be widened, as it is partitioned: use a new table")
    if not files or standing is None:
        return files, ()
    rows = spark.read.schema(loads_columns(standing)).parquet(*(for_spark(Path(file)) for file in sorted(files)))
    known = set(rows.columns)
    columns = [f.col(f"`{each.name}`") if each.name in known else f.lit(None) for each in schema]
    cast = [column.cast(each.dataType).alias(each.name) for column, each in zip(columns, schema, strict=True)]
    rows.select(*cast).write.mode("overwrite").parquet(table.place.shown(table.widened_folder(mark)))
    parts = local_parts(table, table.widened_folder(mark))
    before = sum(parquet.read_metadata(file).num_rows for file in files)
    after = sum(part.rows for part in parts)
    if before != after:
        raise CountsDiffer(f"{table.shown} has {before} rows, and {after} of them were written with wider columns")
    return files, parts
