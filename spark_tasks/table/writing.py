"""Write the rows of a batch where no reader sees them yet: into Parquet files that a commit will name.

Into a local folder Spark writes itself. For an object store Spark has no class without jars: on this machine it writes
into the scratch folder, and the driver uploads the files (`uploads`); on a cluster the executors write by pyarrow and
fsspec (`object_writer`), and Spark brings back what they wrote. All give the same `Part`s.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from spark_tasks.spark.seen import check_seen
from spark_tasks.table import object_writer, uploads
from spark_tasks.table.local_parts import local_parts
from spark_tasks.table.part import Part, PartsFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_tasks.table.ledger import Mark

Write = Callable[["DataFrame", "Mark"], tuple[Part, ...]]
"""Writes the rows as the files of that batch; the files. Files that an earlier try left there do not count."""


def batch_writer(spark: "SparkSession", table: PartsFolder, scratch: Path) -> Write:
    """How batches of `table` are written in the session `spark`. `scratch` is a local folder of the attempt.

    What it gives raises what Spark raises; for an object store also `NoBucket`, `NoPermission` and `StoreAway`; for a
    folder `seen.NotSeen`, if Spark's executors are on machines that have another one at its path.
    """
    here = str(spark.sparkContext.master).startswith("local")  # so are its executors
    if table.place.is_local:
        return _local(spark, table, here)
    return uploads.upload_writer(table, scratch) if here else object_writer.distributed_writer(spark, table, scratch)


def _local(spark: "SparkSession", table: PartsFolder, here: bool) -> Write:
    def write(rows: "DataFrame", mark: "Mark") -> tuple[Part, ...]:
        folder = table.parquet_folder(mark)
        if not here:
            _check_shared(spark, Path(table.place.path) / folder)
        rows.write.mode("overwrite").partitionBy(*table.partitioned_by()).parquet(table.place.shown(folder))
        if not here:  # executors that came meanwhile have written as well
            _check_shared(spark, Path(table.place.path) / folder)
        return local_parts(table, folder)

    return write


def _check_shared(spark: "SparkSession", folder: Path) -> None:
    """Raise `NotSeen` unless the executors see what this node puts into the folder.

    Otherwise each would make one of that name on its own disk, and its rows would be missing here without a word.
    """
    folder.mkdir(parents=True, exist_ok=True)
    marker = folder / ".seen"
    marker.write_text("seen")
    try:
        check_seen(spark, [marker], {})
    finally:
        marker.unlink()
