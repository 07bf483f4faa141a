"""Writes the rows of a batch where no reader sees them yet: into Parquet files that a commit will name.

Spark itself writes only into a local folder, because for an object store it would need jars. In local mode with an
object store, Spark writes into the scratch folder, and the driver uploads the files, because Python processes would
only share the processors with Spark, which writes Parquet in less time than it takes to pass the rows to Python. On a
cluster the executors write by pyarrow and fsspec (`object_writer`), and Spark returns the list of their files. In all
three cases the same `Part`s are returned.
"""

import shutil
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from pyarrow import parquet

from spark_tasks.spark.seen import check_seen
from spark_tasks.storage.errors import store_errors
from spark_tasks.table import object_writer
from spark_tasks.table.parquet_writer import uploading
from spark_tasks.table.part import Part, PartsFolder
from spark_tasks.table.statistics import statistics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_tasks.table.ledger import Mark

UPLOADS: Final = 4
"""How many files are uploaded at once. Each holds `parquet_writer.UPLOAD_BYTES` in memory."""

_COPY_BYTES: Final = 1 << 20
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"

Write = Callable[["DataFrame", "Mark"], tuple[Part, ...]]
"""Writes the rows as files of the batch, and returns these files, without files that an earlier try has left there."""


def batch_writer(spark: "SparkSession", table: PartsFolder, scratch: Path) -> Write:
    """Return a function that writes batches of `table` in the session `spark`. `scratch` is a local folder of the
    attempt.

    The function raises Spark's errors; for an object store also `NoBucket`, `NoPermission` and `StoreAway`; and for a
    folder `seen.NotSeen`, if executors on other machines have a different folder at its path.
    """
    here = str(spark.sparkContext.master).startswith("local")  # its executors run on this machine, too
    if table.place.is_local:
        return _local(spark, table, here)
    return upload_writer(table, scratch) if here else object_writer.distributed_writer(spark, table, scratch)


def _local(spark: "SparkSession", table: PartsFolder, here: bool) -> Write:
    def write(rows: "DataFrame", mark: "Mark") -> tuple[Part, ...]:
        folder = table.parquet_folder(mark)
        if not here:
            _check_shared(spark, Path(table.place.path) / folder)
        rows.write.mode("overwrite").partitionBy(*table.partitioned_by()).parquet(table.place.shown(folder))
        if not here:  # executors that joined meanwhile have written as well
            _check_shared(spark, Path(table.place.path) / folder)
        return local_parts(table, folder)

    return write


def _check_shared(spark: "SparkSession", folder: Path) -> None:
    """Raise `NotSeen` unless the executors see the files that this node puts into the folder.

    Otherwise each executor would create the folder on its own disk, and its rows would be lost without an error.
    """
    folder.mkdir(parents=True, exist_ok=True)
    marker = folder / ".seen"
    marker.write_text("seen")
    try:
        check_seen(spark, [marker], {})
    finally:
        marker.unlink()


def local_parts(table: PartsFolder, folder: str) -> tuple[Part, ...]:
    """Return the Parquet files in that folder of the table, with the statistics in their footers."""
    return parts_in(Path(table.place.path), folder)


def parts_in(root: Path, folder: str) -> tuple[Part, ...]:
    """Return the Parquet files in `folder`, relative to `root`, with the statistics in their footers."""
    return tuple(_part(path, path.relative_to(root)) for path in sorted((root / folder).rglob("part-*.parquet")))


def _part(path: Path, inner: Path) -> Part:
    about, footer = path.stat(), parquet.read_metadata(path)
    modified_ms = about.st_mtime_ns // 1_000_000
    values = partition_values(inner.parent)
    return Part(
        path=inner.as_posix(),
        size_bytes=about.st_size,
        modified_ms=modified_ms,
        rows=footer.num_rows,
        stats=statistics(footer),
        partition_values=values,
    )


def partition_values(folder: Path) -> dict[str, str | None]:
    """Return the values of the partition columns of a folder's files, from the names that Spark gives to such folders.

    >>> partition_values(Path("TASK/00000001-1/year=2013/at=05%3A00/by=__HIVE_DEFAULT_PARTITION__"))
    {'year': '2013', 'at': '05:00', 'by': None}
    """
    pairs = (part.partition("=") for part in folder.parts if "=" in part)
    return {unquote(name): None if value == _NULL else unquote(value) for name, _, value in pairs}


def upload_writer(table: PartsFolder, scratch: Path) -> Write:
    """Return a function that writes the rows of a batch of `table` with Spark, and uploads the files to its object
    store.

    The function raises `NoBucket`, `NoPermission`, `StoreAway`, and Spark's errors.
    """
    place, aside = table.place, scratch / "uploads"

    def write(rows: "DataFrame", mark: "Mark") -> tuple[Part, ...]:
        folder = table.parquet_folder(mark)
        rows.write.mode("overwrite").partitionBy(*table.partitioned_by()).parquet(str(aside / folder))

        def upload(part: Part) -> Part:
            # The name is without Spark's partition folders, because the log has the values, and stores may quote such
            # names.
            sent = replace(part, path=f"{folder}/part-{uuid.uuid4().hex}.snappy.parquet")
            with (aside / part.path).open("rb") as file, uploading(place, sent.path) as out:
                shutil.copyfileobj(file, out, _COPY_BYTES)
            (aside / part.path).unlink()
            return sent

        with store_errors(place), ThreadPoolExecutor(UPLOADS) as pool:
            parts = tuple(pool.map(upload, (part for part in parts_in(aside, folder) if part.rows)))
        shutil.rmtree(aside)
        return parts

    return write
