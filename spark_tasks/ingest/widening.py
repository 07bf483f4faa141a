"""Writes the rows of a table again with wider columns, for the commit that widens them.

Delta's own type widening leaves the old files as they are, but is a feature that deltalake neither reads nor writes.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from spark_tasks.files.columns import loads_columns
from spark_tasks.files.faults import SchemaDrift
from spark_tasks.files.listing import is_local
from spark_tasks.files.staging import for_spark
from spark_tasks.ingest.errors import CountsDiffer
from spark_tasks.table.ledger import Mark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from spark_tasks.table.delta import Table


def rewritten(spark: "SparkSession", table: "Table", schema: "StructType", mark: Mark) -> frozenset[str]:
    """Write the rows of the table's files beside those of the batch, with the columns `schema`; the files they were in.

    Raises `SchemaDrift` for a partitioned table, and `CountsDiffer`.
    """
    from pyspark.sql import functions as f

    by, files, standing = table.partitioned_by(), table.files(), table.schema_json()
    if by or not all(map(is_local, files)):
        raise SchemaDrift(f"the columns of {table.folder} cannot be widened, as it is partitioned: use a new table")
    if not files or standing is None:
        return frozenset(files)
    rows = spark.read.schema(loads_columns(standing)).parquet(*(for_spark(Path(file)) for file in files))
    known = set(rows.columns)
    columns = [f.col(f"`{each.name}`") if each.name in known else f.lit(None) for each in schema]
    cast = [column.cast(each.dataType).alias(each.name) for column, each in zip(columns, schema, strict=True)]
    rows.select(*cast).write.mode("overwrite").parquet(str(table.widened_folder(mark)))
    before, after = table.rows_of(files), table.rows_widened(mark)
    if before != after:
        raise CountsDiffer(f"{table.folder} has {before} rows, and {after} of them were written with wider columns")
    return frozenset(files)
