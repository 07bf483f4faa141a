"""Executors read the Parquet files of a table, in a folder or an object store, by pyarrow and fsspec.

Spark's own reader has no class for an object store, and takes the values of partition columns from the names of
folders, which here are in folders of several batches. This one takes them from the table's log.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

from spark_tasks.storage.errors import store_errors_at
from tasks.place import Place

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

ROWS: Final = 10_000
"""The number of rows that a reader holds at once."""

_numbers = cycle(range(64))
"""Numbers for the names of formats. Spark keeps each name for as long as it runs, so they are used again."""

FileToRead = tuple[str, Mapping[str, Any]]
"""A file's path in its place, and the values of its partition columns, which it does not hold."""


def frame(
    spark: "SparkSession", place: Place, files: Sequence[FileToRead], columns: "StructType", number: str | None = None
) -> "DataFrame":
    """The rows of the files, with those columns. A column that a file lacks is null.

    With `number` there is another column of that name, with the number of the row's file, from 0. Reading raises
    `NoBucket`, `NoPermission` and `StoreAway` on the executors.
    """
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import LongType, StructType

    schema = StructType([*columns.fields])
    if number is not None:
        schema = schema.add(number, LongType())
    if not files:
        return spark.createDataFrame([], schema)
    arrow = to_arrow_schema(schema, timezone="UTC")
    url, options, held = place.path if place.is_local else place.url, place.options, list(files)
    format_name = f"rota_files_{next(_numbers)}"  # frames that are joined are of sources with names of their own

    # Made here, so that executors get the options with the class: as options of a read they would be shown.
    class FilesReader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(one) for one in range(len(held))]

        def read(self, partition: InputPartition) -> Any:
            path, values = held[partition.value]
            given = dict(values) if number is None else {**values, number: partition.value}
            return read(url, options, path, given, arrow)

    class RotaFiles(DataSource):
        @classmethod
        def name(cls) -> str:
            return format_name

        def schema(self) -> StructType:
            return schema

        def reader(self, schema: StructType) -> DataSourceReader:
            return FilesReader()

    spark.dataSource.register(RotaFiles)
    return spark.read.format(format_name).load()


def read(
    url: str, options: dict[str, Any], path: str, given: Mapping[str, Any], schema: "pa.Schema"
) -> "Iterator[pa.RecordBatch]":
    """The rows of the file `path` at `url`, with the columns `schema`. `given` are values that all its rows have."""
    from pyarrow import parquet

    place = Place(url, options)
    with nullcontext() if place.is_local else store_errors_at(url), place.reading(path) as opened:
        file = parquet.ParquetFile(opened)
        there = set(file.schema_arrow.names)
        wanted = [name for name in schema.names if name in there and name not in given]
        # Without any column, batches would not say how many rows they have.
        for batch in file.iter_batches(ROWS, columns=wanted or file.schema_arrow.names[:1]):
            yield _fitted(batch, given, schema)


def _fitted(batch: "pa.RecordBatch", given: Mapping[str, Any], schema: "pa.Schema") -> "pa.RecordBatch":
    import pyarrow as pa

    columns = []
    for field in schema:
        if field.name in given:
            columns.append(pa.repeat(pa.scalar(given[field.name], field.type), batch.num_rows))
        elif field.name in batch.schema.names:
            column = batch.column(field.name)
            columns.append(column if column.type == field.type else column.cast(field.type))
        else:
            columns.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
