"""Spark on this machine writes a batch's Parquet files into the scratch folder, and the driver uploads them.

Executors on other machines write into the store themselves (`object_writer`). Here, their Python processes would share
the processors with Spark, which writes Parquet in less time than it takes to hand the rows to Python.
"""

import shutil
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spark_tasks.storage.errors import store_errors
from spark_tasks.table.local_parts import parts_in
from spark_tasks.table.parquet_writer import uploading
from spark_tasks.table.part import Part, PartsFolder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_tasks.table.ledger import Mark

UPLOADS: Final = 4
"""How many files are uploaded at once. Each holds `parquet_writer.UPLOAD_BYTES` in memory."""

_COPY_BYTES: Final = 1 << 20


def upload_writer(table: PartsFolder, scratch: Path) -> "Callable[[DataFrame, Mark], tuple[Part, ...]]":
    """A function that writes the rows of a batch of `table`, which is in an object store.

    It raises `NoBucket`, `NoPermission`, `StoreAway`, and what Spark raises.
    """
    place, aside = table.place, scratch / "uploads"

    def write(rows: "DataFrame", mark: "Mark") -> tuple[Part, ...]:
        folder = table.parquet_folder(mark)
        rows.write.mode("overwrite").partitionBy(*table.partitioned_by()).parquet(str(aside / folder))

        def upload(part: Part) -> Part:
            # The log has the values of partitions, and Spark's folders for them may have names that stores quote.
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
