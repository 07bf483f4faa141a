"""Executors write Parquet files into an object store, by pyarrow and fsspec.

It uses Spark's Python Data Source API. Each Spark task writes a file whose name contains the Spark task's attempt, and
returns the file's path, size, rows and statistics. Spark passes the results of the successful Spark tasks to `commit`,
in a process of its own on the driver's machine. `commit` writes them to the attempt's scratch folder for the driver.
Files of a Spark task that was lost or run twice are not among them, and are swept later.
"""

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from spark_tasks.storage.errors import store_errors_at
from spark_tasks.table import parquet_writer
from spark_tasks.table.executor_errors import executor_errors
from spark_tasks.table.parquet_writer import row_groups, write_file
from spark_tasks.table.part import Part, PartitionTexts, PartsFolder, part_from, partition_text
from tasks.places.place import Place

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from spark_tasks.table.ledger import Mark


@dataclass
class Written(WriterCommitMessage):
    """The files that one Spark task wrote: none if it had no rows; several if it wrote for several partitions."""

    parts: tuple[Part, ...]


class ObjectWriter(DataSourceArrowWriter):
    """Writes a Spark task's rows as one file in `folder` of the table at `url`. `options` are fsspec's, with secrets
    resolved.

    `messages` is the file on the driver's machine that `commit` writes. With `by` there is a file for each value of
    these columns, without the columns themselves; rows with the same values must come one after another.
    """

    def __init__(self, url: str, options: dict[str, Any], folder: str, messages: str, by: Sequence[str] = ()) -> None:
        self.url = url
        self.options = options
        self.folder = folder
        self.messages = messages
        self.by = list(by)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Written:
        """Write the rows; runs on an executor. Raises `NoBucket`, `NoPermission` and `StoreAway`."""
        with store_errors_at(self.url):
            place = Place(self.url, self.options)
            found = (self._write(place, batches, texts) for texts, batches in partitions(iterator, self.by))
            return Written(tuple(part for part in found if part is not None))

    def _write(self, place: Place, batches: "Iterator[pa.RecordBatch]", texts: PartitionTexts) -> Part | None:
        """Write one file. Returns None if there are no rows."""
        from pyspark import TaskContext

        task = TaskContext.get()
        number, attempt = (task.partitionId(), task.taskAttemptId()) if task else (0, 0)
        name = f"{self.folder}/part-{number:05d}-{attempt}-{uuid.uuid4().hex}.snappy.parquet"
        groups = row_groups(batches, parquet_writer.GROUP_BYTES)
        first = next(groups, None)
        if first is None:
            return None
        return replace(write_file(place, name, first, groups), partition_values=dict(texts))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Write the results of the successful tasks to a file for the driver; runs on the driver's machine."""
        parts = [asdict(part) for one in messages if isinstance(one, Written) for part in one.parts]
        aside = Path(f"{self.messages}.partial")
        aside.write_text(json.dumps(parts), encoding="utf-8")
        aside.rename(self.messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Do nothing, because the files are swept later together with files of lost Spark tasks, which `messages` does
        not name.
        """


def partitions(
    batches: "Iterable[pa.RecordBatch]", by: Sequence[str]
) -> "Iterator[tuple[PartitionTexts, Iterator[pa.RecordBatch]]]":
    """Group the rows by the columns `by`. Yields the values of these columns as in the log, and the rows without the
    columns.

    Each group must be read before the next one.
    """
    if not by:
        yield (), iter(batches)
        return
    for texts, group in groupby(_runs(batches, by), key=lambda run: run[0]):
        yield texts, (batch for _, batch in group)


def _runs(batches: "Iterable[pa.RecordBatch]", by: Sequence[str]) -> "Iterator[tuple[PartitionTexts, pa.RecordBatch]]":
    from pyarrow import compute

    for batch in batches:
        keys = [batch.column(name) for name in by]
        rest = batch.select([name for name in batch.schema.names if name not in by])
        ends = {end for column in keys for end in compute.run_end_encode(column).run_ends.to_pylist()}
        begin = 0
        for end in sorted(ends):
            texts = tuple((name, partition_text(key[begin].as_py())) for name, key in zip(by, keys, strict=True))
            yield texts, rest.slice(begin, end - begin)
            begin = end


def distributed_writer(
    spark: "SparkSession", table: PartsFolder, scratch: Path
) -> "Callable[[DataFrame, Mark], tuple[Part, ...]]":
    """Return a function with which Spark's executors write the rows of a batch of `table` into its object store."""
    url, options = table.place.url, table.place.options

    # Defined here, so that Spark's processes get the options with the class. Options of a write would be visible in its
    # plan.
    class RotaParquet(DataSource):
        @classmethod
        def name(cls) -> str:
            return "rota_parquet"

        def writer(self, schema: "StructType", overwrite: bool) -> ObjectWriter:
            by = json.loads(self.options["by"])
            return ObjectWriter(url, options, self.options["folder"], self.options["messages"], by)

    spark.dataSource.register(RotaParquet)

    def write(rows: "DataFrame", mark: "Mark") -> tuple[Part, ...]:
        messages = scratch / f"written-{mark.name}-{uuid.uuid4().hex}.json"
        by = table.partitioned_by()
        if by:
            rows = rows.sortWithinPartitions(*("`" + name.replace("`", "``") + "`" for name in by))
        with executor_errors():
            (
                rows.write.format("rota_parquet")
                .mode("append")
                .option("folder", table.parquet_folder(mark))
                .option("messages", str(messages))
                .option("by", json.dumps(by))
                .save()
            )
        parts = tuple(part_from(value) for value in json.loads(messages.read_text(encoding="utf-8")))
        messages.unlink()
        return parts

    return write
