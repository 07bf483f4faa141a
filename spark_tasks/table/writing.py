"""Write the rows of a batch where no reader sees them yet: into Parquet files that a commit will name.

Into a local folder Spark writes itself. For an object store Spark has no class without jars, so the executors write by
pyarrow and fsspec (`object_writer`), and Spark brings back what they wrote. Both give the same `Part`s.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from spark_tasks.table import object_writer
from spark_tasks.table.local_parts import local_parts
from spark_tasks.table.part import Part, PartsFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_tasks.table.ledger import Mark

Write = Callable[["DataFrame", "Mark"], tuple[Part, ...]]
"""Writes the rows as the files of that batch; the files. Files that an earlier try left there do not count."""


def writer(spark: "SparkSession", table: PartsFolder, scratch: Path) -> Write:
    """How batches of `table` are written in the session `spark`. `scratch` is a local folder for messages.

    What it gives raises what Spark raises; for an object store also `NoBucket`, `NoPermission` and `StoreAway`.
    """
    return _local(table) if table.place.is_local else object_writer.writer(spark, table, scratch)


def _local(table: PartsFolder) -> Write:
    def write(rows: "DataFrame", mark: "Mark") -> tuple[Part, ...]:
        folder = table.parquet_folder(mark)
        rows.write.mode("overwrite").partitionBy(*table.partitioned_by()).parquet(table.place.shown(folder))
        return local_parts(table, folder)

    return write
